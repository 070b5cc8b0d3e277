"""Weights at the start of training, from which a tracker counts updates: in memory, on disk, or in a checkpoint.

Each parameter is stored once, in its own type, whatever is computed from it: products of heads are formed from the
stored parameters a layer at a time, when a record is made. Names are those of the whole model.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saddlescope._shared.errors import InputError

_CHUNK = 2**26  # bytes hashed at once


class InitialWeights(ABC):
    """Stored parameters by name.

    Attributes:
        rounded: True if they may have been rounded when they were stored: this then counts to the noise floor.
    """

    rounded: bool
    _digest: str | None = None

    @abstractmethod
    def of(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return some of the parameters by name, on the host.

        Raises:
            InputError: they can no longer be read.
        """

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """Names of all parameters that are stored."""

    def digest(self) -> str:
        """Return the SHA-256 of all parameters, with their names, types and shapes."""
        if self._digest is None:
            digest = hashlib.sha256()
            for name in sorted(self.names):
                add_to_digest(digest, name, self.of([name])[name])
            self._digest = digest.hexdigest()
        return self._digest


def add_to_digest(digest: Any, name: str, tensor: Tensor) -> None:
    """Hash name, type, shape and bytes of a tensor on the host."""
    digest.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
    for chunk in chunks(tensor):
        digest.update(chunk)


def chunks(tensor: Tensor) -> Iterator[memoryview]:
    """Yield the bytes of a tensor on the host, for a digest or a file."""
    for chunk in tensor.contiguous().flatten().view(torch.uint8).split(_CHUNK):
        yield chunk.numpy().data


class HeldWeights(InitialWeights):
    """Parameters in the memory of the host.

    Args:
        tensors: parameters by name, which nothing else changes.
        rounded: as the attribute.
    """

    def __init__(self, tensors: Mapping[str, Tensor], *, rounded: bool) -> None:
        self.tensors, self.rounded = dict(tensors), rounded

    @property
    def names(self) -> Sequence[str]:
        """See `InitialWeights`."""
        return tuple(self.tensors)

    def of(self, names: Iterable[str]) -> dict[str, Tensor]:
        """See `InitialWeights`."""
        return {name: self.tensors[name] for name in names}


class Reference(ABC):
    """Place where a tracker keeps the initial weights."""

    @abstractmethod
    def keep(self, names: Sequence[str], read: Callable[[str], Tensor], *, rounded: bool) -> InitialWeights:
        """Store parameters.

        Args:
            names: names of the parameters.
            read: function from a name to the parameter, on any device.
            rounded: True if they may have been rounded before.
        """


@dataclass(frozen=True)
class InMemory(Reference):
    """Initial weights in the memory of the host.

    Attributes:
        dtype: type in which floating-point parameters of more digits are stored, such as torch.bfloat16: half the
            memory of float32. The rounding counts to the noise floor. None keeps the type of each.
    """

    dtype: torch.dtype | None = None

    def keep(self, names: Sequence[str], read: Callable[[str], Tensor], *, rounded: bool) -> InitialWeights:
        """See `Reference`."""
        kept: dict[str, Tensor] = {}
        for name in names:
            parameter = read(name)
            kept[name] = parameter.detach().to("cpu", shorter(parameter, self.dtype), copy=True)
            rounded |= kept[name].dtype != parameter.dtype
        return HeldWeights(kept, rounded=rounded)


@dataclass(frozen=True)
class OnDisk(Reference):
    """Initial weights in a safetensors file, from which each record reads a layer at a time; needs no memory.

    Checkpoints of the tracker refer to the file instead of containing the weights.

    Attributes:
        folder: folder for the file, whose name has the digest of its content. Created if absent.
        dtype: as in `InMemory`.
    """

    folder: str | Path
    dtype: torch.dtype | None = None

    def keep(self, names: Sequence[str], read: Callable[[str], Tensor], *, rounded: bool) -> InitialWeights:
        """See `Reference`."""
        from saddlescope.ranks.tracker.reference_weights import StoredWeights  # imports the checkpoint readers

        def shortened(name: str) -> Tensor:
            parameter = read(name)
            return parameter.to(shorter(parameter, self.dtype))

        rounded |= any(shorter(parameter := read(name), self.dtype) != parameter.dtype for name in names)
        return StoredWeights.write(names, shortened, self.folder, rounded=rounded)


def shorter(parameter: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Return the type in which to store a parameter: `dtype` if that takes less memory, else its own."""
    if dtype is None or not parameter.is_floating_point() or dtype.itemsize >= parameter.dtype.itemsize:
        return parameter.dtype
    return dtype


def require_reference(reference: Any) -> None:
    """Raise InputError for a reference of another kind, or with a type that is not floating-point."""
    if reference is not None and not isinstance(reference, Reference):
        raise InputError(f"reference must be InMemory() or OnDisk(folder); got {reference!r}.")
    kind = getattr(reference, "dtype", None)
    if kind is not None and kind not in (torch.float32, torch.bfloat16, torch.float16):
        raise InputError(f"dtype must be torch.float32, torch.bfloat16 or torch.float16; got {kind!r}.")
