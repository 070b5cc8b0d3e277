"""Safetensors files; the library checks their headers against their sizes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.formats.tensor_file import TensorFile, clear_names, first_line


def _torch_name(kind: str) -> str:
    """Return PyTorch's name of a type, such as float8_e4m3fn of F8_E4M3."""
    name = re.sub(r"^(B?)F(?=\d)", lambda found: f"{found[1].lower()}float", kind)
    return name.lower() + ("fn" if name.endswith("E4M3") else "")


class _SafeFile(TensorFile):
    """Opened safetensors file."""

    def __init__(self, file: Path, handle: Any) -> None:
        self._file, self._handle = file, handle

    def names(self) -> list[str]:
        return clear_names(self._file, list(self._handle.keys()))

    def describe(self, name: str) -> tuple[tuple[int, ...], str]:
        part = self._handle.get_slice(name)
        return tuple(part.get_shape()), _torch_name(part.get_dtype())

    def read(self, name: str) -> Tensor:
        return self._handle.get_tensor(name)

    def header(self) -> dict[str, str]:
        return dict(self._handle.metadata() or {})


@contextmanager
def open_safetensors(file: Path) -> Iterator[TensorFile]:
    """Open a file; any error of the reader becomes one sentence."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt", device="cpu") as handle:
            yield _SafeFile(file, handle)
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{file} must be a complete safetensors file; got one that cannot be read ({first_line(error)}). "
            "Fetch it again."
        ) from error
