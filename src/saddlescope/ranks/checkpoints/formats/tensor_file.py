"""Opened files of tensors, whatever their format."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope._shared.visible_text import visible


def first_few(names: Iterable[str], most: int = 3) -> str:
    """Return the first few of many names, for a message."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def first_line(error: BaseException) -> str:
    """Return the first line of an error, for a message."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__


class TensorFile(ABC):
    """Opened file, or folder, of tensors."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the tensors."""

    @abstractmethod
    def describe(self, name: str) -> tuple[tuple[int, ...], str]:
        """Return the shape of a tensor, and the name of its type in PyTorch, such as "bfloat16"."""

    @abstractmethod
    def read(self, name: str) -> Tensor:
        """Read a tensor."""

    def settings(self) -> dict[str, Any]:
        """Return plain values of a configuration in the file."""
        return {}

    def header(self) -> dict[str, str]:
        """Return texts that the program that wrote the file has added."""
        return {}

    def states(self) -> tuple[str, ...]:
        """Return the keys of the state dicts in the file, that of the read one first; none if it is a state dict."""
        return ()


def clear_names(file: Path, names: list[str]) -> list[str]:
    """Return the names of tensors.

    Raises:
        InputError: one has control characters, which no file or page can hold.
    """
    if odd := [name for name in names if visible(name) != name or "\n" in name]:
        raise InputError(f"{file} must have names of tensors without control characters; got {odd[0]!r:.80}.")
    return names


def require_dense(file: Path, name: str, tensor: Tensor) -> None:
    """Raise InputError unless a tensor is dense: a few stored bytes can be declared a matrix of terabytes."""
    dense = tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"
    if not dense or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        kind = f"shape {tuple(tensor.shape)}, {tensor.layout}, on {tensor.device}"
        raise InputError(
            f"{file} must hold dense tensors with their own storage; got {name} ({kind}). Save a copy of it."
        )
