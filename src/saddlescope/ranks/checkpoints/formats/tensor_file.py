"""Opened files of tensors, whatever their format."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from saddlescope._shared.errors import InputError


def first_line(error: BaseException) -> str:
    """Return the first line of an error, for a message."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__


class Placeholder:
    """Object in place of one of a class that is not loaded: it takes every argument, and has the attributes alone.

    Attributes:
        of: name of the class.
        attributes: the attributes by name.
        state: the state of an object that has another one.
    """

    of = ""
    attributes: Mapping[str, Any] = MappingProxyType({})
    state: object = None

    def __new__(cls, *_: object, **__: object) -> "Placeholder":
        """Return one, whatever the arguments."""
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.attributes = state
        else:
            self.state = state


@dataclass(frozen=True)
class TensorFile:
    """Opened file, or folder, of tensors.

    Attributes:
        names: names of the tensors.
        describe: function from a name to the shape, and the name of the type in PyTorch, such as "bfloat16".
        read: function from a name to the tensor.
        settings: plain values of a configuration in the file.
        header: texts that the program that wrote the file has added.
        states: keys of the state dicts in the file, that of the read one first; none if it is a state dict.
        remarks: sentences on the file.
    """

    names: Sequence[str]
    describe: Callable[[str], tuple[tuple[int, ...], str]]
    read: Callable[[str], Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)
    header: Mapping[str, str] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@contextmanager
def reported(sentence: str, end: str = ".", kinds: tuple[type[Exception], ...] = (Exception,)) -> Iterator[None]:
    """Let errors of a reader, of these kinds or of any, become one sentence with the reason; our own pass."""
    try:
        yield
    except InputError:
        raise
    except kinds as error:
        raise InputError(f"{sentence} ({first_line(error)}){end}") from error


def require_dense(file: Path, name: str, tensor: Tensor) -> None:
    """Raise InputError unless a tensor is dense: a few stored bytes can be declared a matrix of terabytes."""
    dense = tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"
    if not dense or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        kind = f"shape {tuple(tensor.shape)}, {tensor.layout}, on {tensor.device}"
        raise InputError(
            f"{file} must hold dense tensors with their own storage; got {name} ({kind}). Save a copy of it."
        )
