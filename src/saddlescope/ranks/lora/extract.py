"""Extraction of an adapter from two checkpoints: the update of each linear layer, truncated at a rank by its spectrum.

Memory holds one weight of two checkpoints at a time, and the adapter. Embeddings, convolutions and experts get adapters
on request, and any module can be stored whole; all other changes (biases, norms) are reported.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import require_writable_folder
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure import update_noise_floor
from saddlescope.ranks.checkpoints.files import Checkpoint, raise_error, require_finite
from saddlescope.ranks.checkpoints.opened_model import OpenedModel, open_model
from saddlescope.ranks.checkpoints.tensor_matching import (
    MatchedCheckpoint,
    below_noise_message,
    match_tensors,
    trainable_tensors,
)
from saddlescope.ranks.checkpoints.transformers_model import LoadedCheckpoint
from saddlescope.ranks.lora.adapter import (
    Format,
    LoraFactors,
    adapter_path,
    refuse_foreign,
    require_format,
    require_type,
    single_precision,
    with_both_projections,
    write_adapter,
)
from saddlescope.ranks.lora.chosen_weights import (
    ChosenWeight,
    Option,
    choose_weights,
    torch_attention,
    vocabulary_layers,
)
from saddlescope.ranks.lora.pipeline_parts import pipeline_part
from saddlescope.ranks.lora.task_types import task_type, whole_modules
from saddlescope.ranks.lora.truncated_svd import TruncatedSVD, Truncation
from saddlescope.ranks.module_names import first_few
from saddlescope.ranks.tracker.matrix_selection import MatrixSelection


@dataclass(frozen=True, eq=False, repr=False)
class ExtractedLayer(ReprMixin):
    """Update of one linear layer, and the rank of its adapter.

    Attributes:
        name: name of the module in the model.
        shape: shape of its weight as stored.
        values: singular values of the update, descending; of a large layer those up to its rank.
        rank: rank of the adapter; 0 without an adapter.
        energy: energy of the update, |W - W0|_F^2.
        excess: bound on |W - W0 - B A|_F beyond that of the best adapter of this rank, over |W - W0|_F; 0 if all
            singular values were computed.
        modules: number of modules that share the weight; each has the adapter.
    """

    name: str
    shape: tuple[int, int]
    values: Float[np.ndarray, " values"]
    rank: int
    energy: float
    excess: float = 0.0
    modules: int = 1

    def captured_energy(self, rank: int | None = None) -> float:
        """Return the fraction of the energy at this rank (default: the adapter's); 1 if nothing changed.

        Raises:
            InputError: singular values were computed up to a smaller rank.
        """
        rank = self.rank if rank is None else rank
        if min(rank, *self.shape) > len(self.values):
            raise InputError(f"rank must be at most {len(self.values)}, that of {self.name}; got {rank!r}.")
        return min(1.0, float((self.values[:rank] ** 2).sum()) / self.energy) if self.energy else 1.0


@dataclass(frozen=True, eq=False, repr=False)
class Extraction(ReprMixin):
    """Result of `extract_lora` or `merge_lora`.

    Attributes:
        folder: folder of the adapter.
        layers: the layers that were examined.
        left_out: names of changed or added tensors that the adapter does not hold.
        whole: names of the tensors that it holds whole.
        whole_parameters: their number of parameters.
        remarks: sentences on the checkpoints.
        format: format of the adapter.
        vocabulary: number of tokens of the embeddings that it holds whole, if that of the base is another one.
    """

    folder: Path
    layers: tuple[ExtractedLayer, ...]
    left_out: tuple[str, ...]
    whole: tuple[str, ...] = ()
    whole_parameters: int = 0
    remarks: tuple[str, ...] = ()
    format: Format = "peft"
    vocabulary: int | None = None

    @property
    def adapter(self) -> Path:
        """Path to load the adapter from: the folder, or a file in it."""
        return adapter_path(self.folder, self.format)

    @property
    def parameters(self) -> int:
        """Number of parameters of the adapter."""
        return sum(layer.modules * layer.rank * sum(layer.shape) for layer in self.layers) + self.whole_parameters

    @property
    def captured_energy(self) -> float:
        """Fraction of the energy of all layers together that the adapter captures."""
        return self._mean([layer.captured_energy() for layer in self.layers])

    def at_rank(self, rank: int) -> tuple[float, float, int]:
        """Return captured energy overall, its minimum over layers, and parameters, for one rank in all layers.

        Raises:
            InputError: singular values of a layer were computed up to a smaller rank.
        """
        captured = [layer.captured_energy(rank) for layer in self.layers]
        parameters = sum(layer.modules * min(rank, *layer.shape) * sum(layer.shape) for layer in self.layers)
        return self._mean(captured), min(captured), parameters

    def _mean(self, captured: Sequence[float]) -> float:
        """Return the mean of fractions of energy, weighted by the energies of the layers."""
        total = sum(layer.energy for layer in self.layers)
        return sum(fraction * layer.energy for fraction, layer in zip(captured, self.layers, strict=True)) / total


@validate_arguments
def extract_lora(
    base: str | Path,
    tuned: str | Path,
    out: str | Path,
    *,
    energy: float | None = None,
    rank: int | None = None,
    max_rank: int | None = None,
    matrices: MatrixSelection | None = None,
    exclude: str | Sequence[str] = (),
    embeddings: bool = False,
    convolutions: bool = False,
    experts: bool = False,
    modules_to_save: str | Sequence[str] = (),
    format: str = "peft",
    dtype: str | None = None,
    report: Report = silent,
    on_error: Callable[[str], None] = raise_error,
) -> Extraction:
    """Write the best adapter from one checkpoint to another, in the format of PEFT, Diffusers or kohya's scripts.

    At a given rank, updates of large layers are decomposed by a randomised method: the error is at most 1e-3 of the
    norm of the update above that of the best adapter, which a certificate shows; where it fails, all singular values
    are computed.

    Args:
        base: the checkpoint at the start; see `saddlescope.ranks.checkpoints.checkpoint_spectra`.
        tuned: the checkpoint after training.
        out: folder of the adapter; an earlier one there is replaced.
        energy: fraction of |W - W0|_F^2 that each layer captures at least, in (0, 1]; determines its rank.
        rank: rank of every layer, in place of `energy`.
        max_rank: with `energy`, the largest rank of a layer, which may then capture less.
        matrices: selection of weights; see `saddlescope.ranks.tracker.matrix_selection`. None selects all linear layers
            but heads of language models.
        exclude: patterns on names of weights or modules that get no adapter.
        embeddings: give adapters also to embeddings of tokens and to the heads of language models; those whose
            vocabulary was resized are stored whole.
        convolutions: give adapters also to convolutions, but for those in groups.
        experts: give adapters also to the experts of mixtures, all those of one parameter with one rank.
        modules_to_save: patterns on names of modules whose weights and biases are stored whole, such as "*norm*". The
            classifiers that PEFT always stores are, too.
        format: "peft", "diffusers" or "kohya". The latter two are for parts of pipelines of Diffusers, and "kohya" also
            for files of a denoiser alone.
        dtype: type of the stored numbers, "float32", "float16" or "bfloat16"; None stores factors in float32, and whole
            modules in their own type.
        report: called with the finished fraction and a note.
        on_error: called with a sentence on each layer that cannot be used, which gets no adapter. The default raises.

    Raises:
        InputError: files, names or numbers that cannot be used, or checkpoints that do not differ.
    """
    cut = Truncation.stated(energy, rank, max_rank)
    stored_type = require_type(dtype)
    form = require_format(format)
    out = Path(out)
    refuse_foreign(out)
    require_writable_folder(out)
    opened = open_model(Checkpoint.open(base, on_error=on_error), 1, on_error)  # heads do not matter here
    start, model = opened.base, opened.model
    end = opened.named(Checkpoint.open(tuned, on_error=on_error))
    also = {"embeddings": embeddings, "convolutions": convolutions, "experts": experts}
    options: list[Option] = [option for option in get_args(Option) if also[option]]
    for option in ("embeddings", "experts"):
        if also[option] and not (opened.known and form == "peft"):
            raise InputError(
                f"{option} need a base whose config.json names a model of Transformers, since their use decides, and "
                f"the format of PEFT; got {base} and format {form}. Omit --{option}."
            )
    task = task_type(start.config) and (task_type(end.config) or task_type(start.config))
    matched = match_tensors(start, end, (), on_error)
    added = trainable_tensors(end, sorted(end.tensors.keys() - {*matched.names.values(), *matched.unfit.values()}))
    patterns = [modules_to_save] if isinstance(modules_to_save, str) else [*modules_to_save]
    if embeddings:
        patterns += _resized(opened, matched)
    whole = _whole(model, patterns, task, {name.rpartition(".")[0] for name in added})
    if whole and form != "peft":
        raise InputError(f"modules_to_save need the format of PEFT; got {form}, which holds none. Omit them.")
    chosen = choose_weights(
        model,
        start.tensors,
        matrices=matrices,
        exclude=exclude,
        also=options,
        known=opened.known,
        denoiser="_class_name" in start.config,
    )
    chosen = {n: one for n, one in chosen.items() if n.rpartition(".")[0] not in whole and n not in start.lost}
    part = None if form == "peft" else pipeline_part(start, form)
    if part is not None:
        chosen = {n: one for n, one in chosen.items() if part.holds(n) and n.endswith(".weight")}
    match = match_tensors(start, end, chosen, on_error)
    layers: list[ExtractedLayer] = []
    factors: dict[str, LoraFactors] = {}
    transposed: list[bool] = []
    for number, (name, one) in enumerate(chosen.items()):
        report(number / (len(chosen) + 1), name)
        if name not in match.names:
            continue  # reported when the names were matched
        try:
            found, pairs = _decompose(one, start, match, cut)
            made = {}
            for module in one.modules if pairs else ():
                token_layer = one.kind == "linear" and opened.known
                embedding = token_layer and isinstance(model.get_submodule(module), nn.Embedding)
                own = one.factors(pairs, start.tensors[name].shape, embedding=embedding)
                made[module] = single_precision(tuned, name, own, stored_type or torch.float32)
        except InputError as error:
            on_error(str(error))
            continue
        layers += found
        factors |= {module if part is None else part.module(module): own for module, own in made.items()}
        transposed += [one.kind == "linear" and one.transposed] * bool(made)
    if not factors:
        raise InputError(f"{tuned} must differ from {base} in a linear layer; got no update that can be measured.")
    report(len(chosen) / (len(chosen) + 1), "comparing all other tensors")
    stored, held = _stored_whole(model, whole, start, match)
    stored |= end.read(name for name in added if name.rpartition(".")[0] in whole)
    for name, tensor in stored.items():
        if stored_type is not None and not bool(tensor.to(stored_type).isfinite().all()):
            raise InputError(f"{tuned}: {name} must be of a size that {dtype} can hold. Choose another dtype.")
    for sentence in _untied(model, end):
        on_error(sentence)
    left_out = (*(name for name in added if name not in stored), *_changed(start, match, held | set(chosen)))
    names = [name for name, _ in model.named_modules()]
    attention = torch_attention(model)
    write_adapter(
        out, with_both_projections(factors, attention), form=form, base=str(base), transposed=all(transposed),
        task=task, modules=names, whole=stored, dtype=stored_type,
    )  # fmt: skip
    report(1.0, "done")
    numbers = sum(tensor.numel() for tensor in stored.values())
    remarks = [*start.remarks, *end.remarks, *opened.remarks, *match.remarks]
    remarks += [
        f"{' and '.join(one.modules)} share one weight, and each has its adapter: use it unmerged, since PEFT's "
        "merge_and_unload adds both to the weight."
        for one in chosen.values()
        if one.kind == "linear" and len(one.modules) > 1 and not factors.keys().isdisjoint(one.modules)
    ]
    if lacking := [name for name in left_out if name.removesuffix(".out_proj.weight") in attention]:
        remarks.append(
            f"{first_few(lacking)} must be set by hand: of torch.nn.MultiheadAttention only in_proj_weight got an "
            "adapter, since PEFT adds an update of out_proj twice (github.com/huggingface/peft/pull/3774)."
        )
    if not opened.known and (outer := [layer.name for layer in layers if not re.search(r"\.\d+\.", layer.name)]):
        remarks.append(
            f"{base} names no model of Transformers, so every matrix counts as a linear layer unless its name is that "
            f"of an embedding: also {first_few(outer, 6)}. Leave others out by --exclude."
        )
    unique = tuple(dict.fromkeys(remarks))
    vocabulary = next((len(one) for name, one in stored.items() if name in match.unfit), None)
    return Extraction(out, tuple(layers), left_out, tuple(stored), numbers, unique, form, vocabulary)


def _whole(model: nn.Module, patterns: Sequence[str], task: str | None, added: set[str]) -> frozenset[str]:
    """Return the names of the modules to store whole: those of the patterns, and those that PEFT stores for a task.

    Also of those that the tuned model has added.
    """
    own = {name for name, module in model.named_modules() if any(True for _ in module.parameters(recurse=False))}
    own |= added
    found = {name for name in own if name.rpartition(".")[2] in whole_modules(task)}
    for pattern in patterns:
        matching = {name for name in own if fnmatchcase(name, pattern)}
        if not matching:
            raise InputError(
                f"modules_to_save must match modules with weights; got {pattern!r}, which matches none of "
                f"{first_few(sorted(own))}."
            )
        found |= matching
    shared = {
        other
        for name in found - added
        for one in model.get_submodule(name).parameters(recurse=False)
        for other in own - added
        if any(one is theirs for theirs in model.get_submodule(other).parameters(recurse=False))
    }
    return frozenset(found | shared)


def _stored_whole(
    model: nn.Module, modules: frozenset[str], start: Checkpoint, match: MatchedCheckpoint
) -> tuple[dict[str, torch.Tensor], set[str]]:
    """Return the tuned weights of modules by the names of all their parameters, and the names in the base."""
    first: dict[int, str] = {}
    found: dict[str, torch.Tensor] = {}
    held: set[str] = set()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        canonical = first.setdefault(id(parameter), name)
        source = match.names.get(canonical, match.unfit.get(canonical))
        if name.rpartition(".")[0] in modules and source is not None:
            found[name] = match.checkpoint.read([source])[source]
            held.add(canonical)
    return found, held


@torch.no_grad()
def _decompose(
    chosen: ChosenWeight, start: Checkpoint, match: MatchedCheckpoint, cut: Truncation
) -> tuple[list[ExtractedLayer], list[tuple[torch.Tensor, torch.Tensor]]]:
    """Return the layers of a weight with their rank, and B and A of each; no factors if nothing changed."""
    name = chosen.name
    before = start.read([name])[name]
    after = match.checkpoint.read([match.names[name]])[match.names[name]]
    for checkpoint, weight in ((start, before), (match.checkpoint, after)):
        require_finite(checkpoint.path, name, weight)
    update = after.to(torch.float64, copy=True).sub_(before)  # exact: half and single precision widen within
    try:
        svds = {own: TruncatedSVD.of(one, cut.rank) for own, one in chosen.matrices(update).items()}
    except OverflowError as error:
        raise InputError(
            f"{match.checkpoint.path}: {name} must have a change whose square float64 can hold; got one of size"
            f" {float(update.abs().max()):.2g}. Use an earlier checkpoint."
        ) from error
    old, new = chosen.matrices(before), chosen.matrices(after)
    floors = {own: float(update_noise_floor(new[own], old[own])) for own, one in svds.items() if one.values[0] > 0}
    if noisy := [own for own, floor in floors.items() if not float(svds[own].values[0]) > floor]:
        weights = [name if chosen.kind != "experts" else own for own in noisy]
        raise InputError(below_noise_message(match.checkpoint, start, weights))
    rank, pairs = cut.of([*svds.values()])
    shared = len(chosen.modules)
    layers = [
        ExtractedLayer(
            own, (len(old[own]), old[own].shape[1]), one.values.numpy(), rank, one.energy, one.excess, shared
        )
        for own, one in svds.items()
    ]
    return layers, pairs


def _resized(opened: OpenedModel, match: MatchedCheckpoint) -> list[str]:
    """Return the names of the layers of tokens whose vocabulary was resized."""
    vocabulary = vocabulary_layers(opened.model)
    modules = (name.rpartition(".")[0] for name in match.unfit)
    return [name for name in modules if opened.model.get_submodule(name) in vocabulary]


def _untied(model: nn.Module, end: Checkpoint) -> Iterator[str]:
    """Yield a sentence on each weight of which the tuned checkpoint holds two versions, and its base one."""
    raw = end.origin if isinstance(end, LoadedCheckpoint) else None
    shared: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if raw is not None and name in raw.tensors:
            shared.setdefault(id(parameter), []).append(name)
    for first, *others in shared.values():
        if raw is not None and others and not raw.holds_same(first, raw, others[0]):
            yield (
                f"{end.path} must share the weights {first} and {others[0]}, as its base does; got different ones, and "
                f"the adapter has no change of {others[0]}. Save the base with a copy of the weight for each, and "
                "tie_word_embeddings=False."
            )


def _changed(start: Checkpoint, match: MatchedCheckpoint, chosen: set[str]) -> tuple[str, ...]:
    """Return the names of changed tensors that no adapter holds, the largest first; other shapes are changes, too."""
    rest = (name for name in trainable_tensors(start, match.names) if name not in chosen)
    found = [name for name in rest if not start.holds_same(name, match.checkpoint, match.names[name])]
    found += [name for name in match.unfit if name not in chosen]
    return tuple(sorted(found, key=lambda name: -math.prod(start.tensors[name].shape)))
