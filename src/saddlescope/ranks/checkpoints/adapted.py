"""Base plus adapter as a checkpoint: weights are merged on request, in float64, one at a time.

The base counts as exact: the adapter was trained on the stored weights, whatever their precision.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn

from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope.ranks.attention.linear_weights import is_conv1d
from saddlescope.ranks.checkpoints.adapter_files import CONFIG, PREFIX, AdapterFile
from saddlescope.ranks.checkpoints.adapter_updates import with_lengths
from saddlescope.ranks.checkpoints.files import Checkpoint, StoredTensor
from saddlescope.ranks.checkpoints.formats.tensor_file import first_line
from saddlescope.ranks.checkpoints.tensor_matching import align_names
from saddlescope.ranks.checkpoints.transformers_model import offline, stored_name
from saddlescope.ranks.module_names import around, first_few
from saddlescope.ranks.tracker.matrix_selection import parameter_name

_NO_SIZE = re.compile(r"seed|prng_key|alpha|step|scal|^t(init|final)$|^deltaT$")  # numbers that allocate nothing
_MERGE = "Merge it first: PeftModel.merge_and_unload(), then save_pretrained."
INSIDE = "model.diffusion_model."  # where a file of a whole pipeline has its denoiser
KOHYA = re.compile(r"^(lora|lycoris)(_unet|_te\d?|_transformer|_prior_te|_prior_unet)?_")


Change: TypeAlias = Callable[[Tensor, str], Tensor]
"""Function of a weight in float64, and of its name in the base, that returns the changed weight."""


@dataclass(frozen=True, eq=False, repr=False)
class AdaptedCheckpoint(Checkpoint):
    """Weights of a base, its origin, in float64, with those of an adapter merged into them.

    Attributes:
        frozen: names of the tensors that the adapter does not change.
    """

    _changes: Mapping[str, Sequence[Change]] = field(default_factory=dict)

    def roundoff(self, name: str) -> float:
        """Return 0: the stored weights count as exact."""
        return 0.0

    def _tensors_of(self, names: Sequence[str]) -> dict[str, Tensor]:
        assert self.origin is not None
        found = {}
        for name, tensor in self.origin.read(names).items():
            found[name] = tensor.double() if tensor.is_floating_point() else tensor
            for change in self._changes.get(name, ()):
                found[name] = change(found[name], name)
        return found


def exact(base: Checkpoint) -> AdaptedCheckpoint:
    """Return a base in float64, whose stored weights count as exact."""
    return AdaptedCheckpoint(base.path, base.tensors, base.lost, origin=base)


def adapted(base: Checkpoint, adapter: AdapterFile, model: nn.Module, on_error: Callable[[str], None]) -> Checkpoint:
    """Return base plus adapter.

    Args:
        base: the base, under the names of the model.
        adapter: the adapter.
        model: the empty model of the base.
        on_error: called with a sentence on parts of the adapter that the base lacks.

    Raises:
        InputError: the method of the adapter changes no weights, or PEFT cannot merge it; no part fits the base.
    """
    adapter.require_mergeable()
    if adapter.method == "LORA":
        adapter.report(on_error)
        changes = _of_lora(base, adapter, model)
    else:
        changes = _of_peft(base, adapter, model)
    absent = [name for name in changes if name not in base.tensors]
    if absent:
        sentence = f"{adapter.path} must fit {base.path}; got parts that it does not have: {first_few(absent)}."
        names, first = (dict(model.named_parameters(remove_duplicate=once)).keys() for once in (False, True))
        if (names - first).intersection(absent):
            sentence += " Save the base with a copy of each shared weight, and tie_word_embeddings=False."
        if len(absent) == len(changes):
            raise InputError(sentence)
        on_error(sentence)
    frozen = frozenset(name for name in base.tensors if name not in changes)
    return replace(exact(base), path=adapter.path, frozen=frozen, remarks=adapter.remarks, _changes=changes)


def _in_base(base: Checkpoint, adapter: AdapterFile, model: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Return names in the base by the names of parameters in an adapter.

    Raises:
        InputError: two parameters are one in the base, as those of two text encoders.
    """
    names = list(names)
    renamed = {name: name if name in base.tensors else _in_memory(base, model, name) for name in names}
    aligned = {theirs: ours for ours, theirs in align_names(base.tensors, list(renamed.values())).items()}
    flat: dict[str, list[str]] = {}  # kohya's names have underscores for dots
    for name in base.tensors:
        path, _, own = name.rpartition(".")
        flat.setdefault(f"{path.removeprefix(INSIDE).replace('.', '_')}.{own}", []).append(name)

    def found(name: str) -> str:
        if name in aligned:
            return aligned[name]
        own = KOHYA.sub("", name)
        candidates = flat.get(own) or flat.get(own.removeprefix("text_model_"), [])  # which CLIP has in files alone
        return candidates[0] if len(candidates) == 1 else name

    theirs: dict[str, str] = {}
    for name, one in renamed.items():
        first = theirs.setdefault(found(one), name)
        if first != name:
            cure = _MERGE if one == renamed[first] else "Remove those of the other model."  # experts, or two models
            raise InputError(
                f"{adapter.path} must have one update of {found(one)} of {base.path}; got {first} and {name}. {cure}"
            )
    return {name: own for own, name in theirs.items()}


def _in_memory(base: Checkpoint, model: nn.Module, name: str) -> str:
    """Return the name in memory of a parameter, which may stand after that of a part of a pipeline.

    PEFT's factors of `torch.nn.MultiheadAttention` have the name of the module, and `base_layer` within it.
    """
    plain = name.replace(".base_layer.", ".")
    for own in (plain, f"{plain.removesuffix('.weight')}.in_proj_weight"):
        if own in base.tensors:
            return own
    own, inner = stored_name(model, name), stored_name(model, name.partition(".")[2])
    return inner if own not in base.tensors and inner in base.tensors else own


def _of_lora(base: Checkpoint, adapter: AdapterFile, model: nn.Module) -> dict[str, list[Change]]:
    """Return the changes by name in the base: PEFT stores an embedding whole, to which its factors are then added."""
    whole: dict[str, Change] = {
        own: partial(_replaced, adapter, stored) for own, stored in adapter.other_tensors().items()
    }
    modules: dict[str, list[str]] = {}
    for module, one in adapter.updates.items():
        modules.setdefault(parameter_name(one.weight), []).append(module)
    added: dict[str, Change] = {name: partial(_updated, adapter, own, model) for name, own in modules.items()}
    added |= {bias: partial(_shifted, adapter, *addition) for bias, addition in adapter.additions().items()}
    found: dict[str, list[Change]] = {}
    for step in (whole, added):
        for own, name in _in_base(base, adapter, model, step).items():
            found.setdefault(name, []).append(step[own])
    return found


def _replaced(adapter: AdapterFile, stored: str, weight: Tensor, name: str) -> Tensor:
    return _fitting(adapter, name, adapter.stored.read([stored])[stored].double(), weight)


def _shifted(adapter: AdapterFile, stored: str, scale: float, weight: Tensor, _: str) -> Tensor:
    return weight + scale * adapter.stored.read([stored])[stored].double()


def _updated(adapter: AdapterFile, modules: Sequence[str], model: nn.Module, weight: Tensor, name: str) -> Tensor:
    own, deltas = adapter.updates[modules[0]], [adapter.update(module) for module in modules]
    delta = deltas[0] if own.expert is None else torch.stack(deltas)
    flip = not own.embedding and _is_transposed(model, name)
    rows = weight.mT if flip else weight
    if own.expert is None and delta.shape != rows.shape and delta.flatten(1).shape == rows.flatten(1).shape:
        delta = delta.reshape(rows.shape)  # a kernel, whose factors are matrices
    rows = rows + _fitting(adapter, name, delta, rows)
    if own.magnitude is not None:
        lengths = adapter.stored.read([own.magnitude])[own.magnitude]
        by_shape = "lengths" in own.parts
        rows = with_lengths(rows.T, lengths).T if own.embedding else with_lengths(rows, lengths, by_shape=by_shape)
    return rows.mT.contiguous() if flip else rows


def _fitting(adapter: AdapterFile, name: str, found: Tensor, weight: Tensor) -> Tensor:
    """Return a tensor of the shape of a weight; raise InputError for another shape."""
    if found.shape != weight.shape:
        raise InputError(
            f"{adapter.path} must have the shapes of its base; got {tuple(found.shape)} for {name}, "
            f"{tuple(weight.shape)}. Pass the base that it was trained on, such as one with a resized vocabulary."
        )
    return found


def _of_peft(base: Checkpoint, adapter: AdapterFile, model: nn.Module) -> dict[str, list[Change]]:
    """Return changes by PEFT itself, each in a model of one layer.

    Raises:
        InputError: the configuration is not beside the weights, or states sizes that no tensor has.
    """
    if not (adapter.stored.path.parent / CONFIG).is_file():
        raise InputError(
            f"{adapter.path} must have {CONFIG} beside it, since its method is {adapter.method}; got none."
        )
    if adapter.config.get("save_projection") is False:
        raise InputError(
            f"{adapter.path} must hold its projections, which depend on all layers; got {adapter.method} without them "
            f"(save_projection). {_MERGE}"
        )
    _require_sizes(base, adapter)
    modules = {name.removesuffix(".weight"): name for name, one in base.tensors.items() if _is_matrix(name, one)}
    stored: dict[str, list[str]] = {}
    changes: dict[str, list[Change]] = {}
    for name in adapter.stored.tensors:
        own = name.removeprefix(PREFIX)
        if own in base.tensors:  # of modules_to_save
            changes[own] = [partial(_replaced, adapter, name)]
            continue
        module = next((one for one in reversed(around(own)) if one in modules), None)
        stored.setdefault(module or "", []).append(name)
    shared = stored.pop("", [])
    if not stored:
        raise InputError(
            f"{adapter.path} must hold tensors of each matrix of {base.path} that it changes; got {adapter.method}, "
            "which has none in its file."
        )
    for module, names in stored.items():
        changes[modules[module]] = [partial(_merged_by_peft, adapter, [*names, *shared], model)]
    return changes


def _require_sizes(base: Checkpoint, adapter: AdapterFile) -> None:
    """Raise InputError for a setting larger than any tensor: PEFT allocates what a configuration states."""
    tensors = [*base.tensors.values(), *adapter.stored.tensors.values()]
    largest = max(size for one in tensors for size in (1, *one.shape))
    for name, value in adapter.config.items():
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
        sizes = [one for one in values if isinstance(one, int | float) and abs(one) > largest]
        if sizes and not _NO_SIZE.search(name):
            raise InputError(
                f"{adapter.path} must have settings no larger than the largest dimension, {largest}, of its tensors "
                f"and those of its base; got {name} {sizes[0]}."
            )


def _merged_by_peft(adapter: AdapterFile, stored: Sequence[str], model: nn.Module, weight: Tensor, name: str) -> Tensor:
    with MissingExtraError.named(f"An adapter of {adapter.method}"):
        import peft
    tensors = {own: one.double() for own, one in adapter.stored.read(stored).items()}
    flip = _is_transposed(model, name)
    layer = nn.Linear(*(weight.shape if flip else weight.shape[::-1]), bias=False)
    layer.weight = nn.Parameter((weight.T if flip else weight).contiguous(), requires_grad=False)
    root = nn.Module()
    place = root
    *parents, own, _ = name.split(".")
    for parent in parents:
        place.add_module(parent, nn.Module())
        place = place.get_submodule(parent)
    place.add_module(own, layer)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), offline():
            warnings.simplefilter("ignore")  # on target modules that a model of one layer lacks
            config = peft.PeftConfig.from_pretrained(str(adapter.stored.path.parent))
            config.task_type = None
            whole = peft.get_peft_model(root, config, autocast_adapter_dtype=False).double()
            loading = peft.set_peft_model_state_dict(whole, tensors)
            if loading.unexpected_keys:
                raise ValueError(f"it has {first_few(loading.unexpected_keys)} beside this layer")
            merged = whole.merge_and_unload().get_parameter(name).detach()  # type: ignore[operator]
    except Exception as error:  # each method has its own errors
        raise InputError(
            f"{adapter.path} must be a method that PEFT can merge layer by layer; got {adapter.method} "
            f"({first_line(error)}). {_MERGE}"
        ) from error
    return merged.T.contiguous() if flip else merged


def _is_matrix(name: str, stored: StoredTensor) -> bool:
    return name.endswith(".weight") and len(stored.shape) == 2 and stored.floating


def _is_transposed(model: nn.Module, name: str) -> bool:
    """Return True for a weight that is stored as (inputs, outputs), also for each expert."""
    try:
        module = model.get_submodule(name.rpartition(".")[0])
    except AttributeError:
        return False
    return is_conv1d(module) or bool(getattr(module, "is_transposed", False))
