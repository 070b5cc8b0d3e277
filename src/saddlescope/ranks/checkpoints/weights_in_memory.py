"""Weights in memory as a checkpoint: mappings and pytrees of arrays of NumPy, JAX or PyTorch.

    {"mlp": {"kernel": array}}    mlp.kernel: mappings, such as Flax's parameters and state dicts, by their keys
    model.layers[0].weight        layers.0.weight: dataclasses, such as Equinox's modules, and named tuples by the names
                                  of their fields, lists by numbers

What is no array (functions, settings, None) is left out. JAX is not imported.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.files import Checkpoint, StoredTensor, natural_order, unambiguous
from saddlescope.ranks.checkpoints.formats.numpy_file import as_tensor

Source: TypeAlias = str | Path | Mapping[Any, Any] | object
"""A checkpoint: a file, a folder, or a mapping or pytree of arrays."""

_DEEPEST = 64  # containers in each other


@dataclass(frozen=True, eq=False, repr=False)
class HeldCheckpoint(Checkpoint):
    """Weights in memory; see `Checkpoint`. A tensor is converted when it is read."""

    _arrays: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:  # type: ignore[override]
        """Nothing: a tree of arrays has no configuration."""
        return {}

    def _tensors_of(self, names: Sequence[str]) -> dict[str, Tensor]:
        return {name: as_tensor(name, self._arrays[self.tensors[name].name]) for name in names}


def open_weights(source: Source, label: str, **options: Any) -> Checkpoint:
    """Open weights on disk by `Checkpoint.open`, or take those in memory.

    Args:
        source: a file, a folder, or a mapping or pytree of arrays.
        label: name for messages of weights in memory.
        **options: of `Checkpoint.open`.

    Raises:
        InputError: as `Checkpoint.open`; or the source holds no arrays, or several of one name.
    """
    if isinstance(source, str | Path):
        return Checkpoint.open(source, **options)
    path = Path(label)
    found = list(_named(source, "", 0))
    if not found:
        raise InputError(f"{label} must be a file, a folder, or a tree of arrays; got {type(source).__name__}.")
    names = unambiguous(path, ((name, name) for name, _ in found))
    arrays = dict(found)
    tensors = {
        name: StoredTensor(path, name, tuple(arrays[name].shape), _type_of(arrays[name]))
        for name in sorted(names, key=natural_order)
    }
    return HeldCheckpoint(path, tensors, _arrays=arrays)


def _type_of(array: Any) -> str:
    return str(getattr(array.dtype, "name", array.dtype)).removeprefix("torch.")


def _named(place: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a tree with their paths."""
    if depth > _DEEPEST:
        raise InputError(f"weights must be a tree of at most {_DEEPEST} levels; got more at {name:.80}.")
    if hasattr(place, "shape") and hasattr(place, "dtype"):
        yield name, place
        return
    inside: Iterable[tuple[Any, Any]] = ()
    if isinstance(place, Mapping):
        inside = place.items()
    elif is_dataclass(place) and not isinstance(place, type):
        inside = ((one.name, getattr(place, one.name, None)) for one in fields(place))
    elif isinstance(place, list | tuple):
        inside = zip(getattr(place, "_fields", range(len(place))), place, strict=True)
    for key, value in inside:
        yield from _named(value, f"{name}.{key}" if name else str(key), depth + 1)
