"""Extraction of an adapter from two checkpoints: the update of each linear layer, truncated at a rank by its spectrum.

Memory holds one matrix of two checkpoints at a time, and the adapter. Embeddings get adapters on request, and any
module can be stored whole; all other changes (biases, norms) are reported.
"""

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import require_writable_folder
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure import energy_rank, update_noise_floor
from saddlescope.ranks.checkpoints.files import Checkpoint, raise_error, require_finite
from saddlescope.ranks.checkpoints.formats.tensor_file import first_few
from saddlescope.ranks.checkpoints.opened_model import open_model
from saddlescope.ranks.checkpoints.tensor_matching import (
    MatchedCheckpoint,
    below_noise_message,
    match_tensors,
    trainable_tensors,
)
from saddlescope.ranks.lora.adapter import LoraFactors, refuse_foreign, write_adapter
from saddlescope.ranks.lora.task_types import task_type, whole_modules
from saddlescope.ranks.lora.truncated_svd import TruncatedSVD
from saddlescope.ranks.tracker.matrix_selection import MatrixSelection, matches, select_matrices

_NOT_LINEAR = ("wte", "wpe", "shared", "lm_head", "relative_attention_bias", "tok", "pos")  # of models without code


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
    """Result of `extract_lora`.

    Attributes:
        folder: folder of the adapter.
        layers: the linear layers that were examined.
        left_out: names of changed tensors that the adapter does not hold.
        whole: names of the tensors that it holds whole.
        whole_parameters: their number of parameters.
        remarks: sentences on the checkpoints.
    """

    folder: Path
    layers: tuple[ExtractedLayer, ...]
    left_out: tuple[str, ...]
    whole: tuple[str, ...] = ()
    whole_parameters: int = 0
    remarks: tuple[str, ...] = ()

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


_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


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
    modules_to_save: str | Sequence[str] = (),
    dtype: str | None = None,
    report: Report = silent,
    on_error: Callable[[str], None] = raise_error,
) -> Extraction:
    """Write the best adapter from one checkpoint to another, in the format of PEFT.

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
        embeddings: give adapters also to embeddings of tokens and to the heads of language models.
        modules_to_save: patterns on names of modules whose weights and biases are stored whole, such as "*norm*". The
            classifiers that PEFT always stores are, too.
        dtype: type of the stored numbers, "float32", "float16" or "bfloat16"; None stores factors in float32, and whole
            modules in their own type.
        report: called with the finished fraction and a note.
        on_error: called with a sentence on each layer that cannot be used, which gets no adapter. The default raises.

    Raises:
        InputError: files, names or numbers that cannot be used, or checkpoints that do not differ.
    """
    _check_numbers(energy, rank, max_rank, dtype)
    out = Path(out)
    refuse_foreign(out)
    require_writable_folder(out)
    opened = open_model(Checkpoint.open(base, on_error=on_error), 1, on_error)  # heads do not matter here
    start, model = opened.base, opened.model
    end = opened.named(Checkpoint.open(tuned, on_error=on_error))
    if embeddings and not opened.known:
        raise InputError(
            "embeddings need a base whose config.json names a model of Transformers, since heads may share their "
            f"weights; got {base}. Omit --embeddings."
        )
    task = task_type(start.config)
    whole = _whole(model, modules_to_save, task)
    chosen = _chosen(model, matrices, exclude, embeddings=embeddings, known=opened.known)
    chosen = [name for name in chosen if name.rpartition(".")[0] not in whole and name not in start.lost]
    match = match_tensors(start, end, chosen, on_error)
    layers: list[ExtractedLayer] = []
    factors: dict[str, LoraFactors] = {}
    flipped: list[bool] = []
    for number, name in enumerate(chosen):
        report(number / (len(chosen) + 1), name)
        if name not in match.names:
            continue  # reported when the names were matched
        try:
            layer, B, A = _decompose(name, start, match, energy, rank, max_rank)
            _require_held(tuned, name, layer.rank, (B, A), dtype or "float32")
        except InputError as error:
            on_error(str(error))
            continue
        modules = _modules_of(model, name)
        layers.append(replace(layer, modules=len(modules)))
        if layer.rank:
            for module in modules:
                is_embedding = isinstance(model.get_submodule(module), nn.Embedding)
                flip = type(model.get_submodule(module)).__name__ == "Conv1D"
                flipped.append(flip)
                swap = flip or is_embedding
                factors[module] = LoraFactors(*((B.T, A.T) if swap else (A, B)), embedding=is_embedding)
    if not factors:
        raise InputError(f"{tuned} must differ from {base} in a linear layer; got no update that can be measured.")
    report(len(chosen) / (len(chosen) + 1), "comparing all other tensors")
    stored, held = _stored_whole(model, whole, start, match)
    for name, tensor in stored.items():
        if dtype is not None and not bool(tensor.to(_TYPES[dtype]).isfinite().all()):
            raise InputError(f"{tuned}: {name} must be of a size that {dtype} can hold. Choose another dtype.")
    done = {layer.name + ".weight" for layer in layers} | held | set(chosen)
    left_out = _changed(start, match, done)
    write_adapter(
        out,
        factors,
        modules=[name for name, _ in model.named_modules()],
        base=str(base),
        transposed=all(flipped),
        whole=stored,
        task=task,
        dtype=None if dtype is None else _TYPES[dtype],
    )
    report(1.0, "done")
    numbers = sum(tensor.numel() for tensor in stored.values())
    remarks = [*start.remarks, *end.remarks, *opened.remarks, *match.remarks]
    if not opened.known and (outer := [layer.name for layer in layers if not re.search(r"\.\d+\.", layer.name)]):
        remarks.append(
            f"{base} names no model of Transformers, so every matrix counts as a linear layer unless its name is that "
            f"of an embedding: also {first_few(outer, 6)}. Leave others out by --exclude."
        )
    return Extraction(out, tuple(layers), left_out, tuple(stored), numbers, tuple(dict.fromkeys(remarks)))


def _check_numbers(energy: float | None, rank: int | None, max_rank: int | None, dtype: str | None) -> None:
    if (energy is None) == (rank is None):
        raise InputError(
            "energy or rank must be given, and only one of them. Pass --energy 0.95 or --rank 8, for example."
        )
    if energy is not None and not 0 < energy <= 1:
        raise InputError(f"energy must be greater than 0 and at most 1; got {energy!r}.")
    if rank is not None and rank < 1:
        raise InputError(f"rank must be at least 1; got {rank!r}.")
    if max_rank is not None and (max_rank < 1 or energy is None):
        given = "rank, which is the rank of every layer" if energy is None else repr(max_rank)
        raise InputError(f"max_rank must be at least 1, and beside energy; got {given}.")
    if dtype is not None and dtype not in _TYPES:
        raise InputError(f"dtype must be {', '.join(_TYPES)}; got {dtype!r}.")


def _chosen(
    model: nn.Module,
    matrices: MatrixSelection | None,
    exclude: str | Sequence[str],
    *,
    embeddings: bool,
    known: bool,
) -> list[str]:
    """Return the names of the weights that get adapters, in the order of the model."""
    vocabulary = _vocabulary_layers(model) if known else frozenset()

    def usual(name: str, parameter: nn.Parameter) -> bool:
        if not name.endswith(".weight"):
            return False
        if not known:
            return not _is_called_embedding(name)
        module = model.get_submodule(name.removesuffix(".weight"))
        if module in vocabulary:
            return embeddings
        return isinstance(module, nn.Linear) or _is_conv1d(model, name)

    found = tuple(select_matrices(model, usual if matrices is None else matrices, experts=False))
    if odd := [name for name in found if not name.endswith(".weight")]:
        raise InputError(
            f"matrices must select weights of linear layers, since adapters exist only for these; got {odd[0]}."
        )
    patterns = (exclude,) if isinstance(exclude, str) else tuple(exclude)
    for pattern in patterns:
        if not any(matches(name, pattern) for name in found):
            raise InputError(
                f"exclude must match weights that would get an adapter; got {pattern!r}, which matches none."
            )
    kept = [name for name in found if not any(matches(name, pattern) for pattern in patterns)]
    if not kept:
        raise InputError(f"exclude must leave a weight; got {', '.join(patterns)}, which matches all.")
    return kept


def _is_conv1d(model: nn.Module, name: str) -> bool:
    return type(model.get_submodule(name.removesuffix(".weight"))).__name__ == "Conv1D"


def _vocabulary_layers(model: nn.Module) -> frozenset[nn.Module]:
    """Return the layers of a model of Transformers that read or write tokens, by their use in it."""
    getters = (getattr(model, name, None) for name in ("get_input_embeddings", "get_output_embeddings"))
    found = set()
    for getter in getters:
        with contextlib.suppress(NotImplementedError, AttributeError):  # of models without tokens
            found.add(getter() if callable(getter) else None)
    return frozenset(one for one in found if isinstance(one, nn.Embedding | nn.Linear))


def _is_called_embedding(name: str) -> bool:
    """Return True for a matrix whose name, without the model's code, is that of an embedding or of a head."""
    own = name.removesuffix(".weight").rpartition(".")[2].lower()
    return "emb" in own or own in _NOT_LINEAR


def _modules_of(model: nn.Module, name: str) -> list[str]:
    """Return the modules that share a weight: PEFT adapts each of them."""
    weight = model.get_parameter(name)
    shared = [other for other, one in model.named_parameters(remove_duplicate=False) if one is weight]
    return [other.removesuffix(".weight") for other in shared if other.endswith(".weight")]


def _whole(model: nn.Module, patterns: str | Sequence[str], task: str | None) -> frozenset[str]:
    """Return the names of the modules to store whole: those of the patterns, and those that PEFT stores for a task."""
    patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    own = {name for name, module in model.named_modules() if any(True for _ in module.parameters(recurse=False))}
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
        for name in found
        for one in model.get_submodule(name).parameters(recurse=False)
        for other in own
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
        if name.rpartition(".")[0] in modules and canonical in match.names:
            source = match.names[canonical]
            found[name] = match.checkpoint.read([source])[source]
            held.add(canonical)
    return found, held


@torch.no_grad()
def _decompose(
    name: str, start: Checkpoint, match: MatchedCheckpoint, energy: float | None, rank: int | None, most: int | None
) -> tuple[ExtractedLayer, torch.Tensor, torch.Tensor]:
    """Return the layer with its rank, and the factors; of rank 0 if nothing changed."""
    before = start.read([name])[name]
    after = match.checkpoint.read([match.names[name]])[match.names[name]]
    for checkpoint, weight in ((start, before), (match.checkpoint, after)):
        require_finite(checkpoint.path, name, weight)
    update = after.to(torch.float64, copy=True).sub_(before)  # exact: half and single precision widen within
    try:
        svd = TruncatedSVD.of(update, rank)
    except OverflowError as error:
        raise InputError(
            f"{match.checkpoint.path}: {name} must have a change whose square float64 can hold; got one of size"
            f" {float(update.abs().max()):.2g}. Use an earlier checkpoint."
        ) from error
    values = svd.values.numpy()
    if values[0] > 0 and not values[0] > float(update_noise_floor(after, before)):
        raise InputError(below_noise_message(match.checkpoint, start, [name]))
    if values[0] == 0:
        truncation = 0
    elif energy is not None:
        truncation = min(int(energy_rank(values, fraction=energy)), most or len(values))
    else:
        truncation = min(rank or 0, len(values))
    B, A = svd.truncate(truncation)
    layer = ExtractedLayer(
        name.removesuffix(".weight"), (B.shape[0], A.shape[1]), values, truncation, svd.energy, svd.excess
    )
    return layer, B.float(), A.float()


def _require_held(tuned: object, name: str, rank: int, factors: tuple[torch.Tensor, ...], dtype: str) -> None:
    """Raise unless the factors are still finite, and not zero, in the type in which they are stored."""
    stored = [one.to(_TYPES[dtype]) for one in factors if rank]
    if not all(bool(one.isfinite().all() and one.any()) for one in stored):
        raise InputError(
            f"{tuned}: {name} must have a change whose factors {dtype} can hold; got larger or smaller ones."
            " Choose another dtype."
        )


def _changed(start: Checkpoint, match: MatchedCheckpoint, chosen: set[str]) -> tuple[str, ...]:
    """Return the names of changed tensors that no adapter holds, the largest first; other shapes are changes, too."""
    rest = (name for name in trainable_tensors(start, match.names) if name not in chosen)
    found = [name for name in rest if not start.holds_same(name, match.checkpoint, match.names[name])]
    return tuple(sorted([*match.unfit, *found], key=lambda name: -math.prod(start.tensors[name].shape)))
