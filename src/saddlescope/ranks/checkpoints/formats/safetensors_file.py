"""Safetensors files; the library checks their headers against their sizes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saddlescope.ranks.checkpoints.formats.tensor_file import TensorFile, reported


def _torch_name(kind: str) -> str:
    """Return PyTorch's name of a type, such as float8_e4m3fn of F8_E4M3."""
    name = re.sub(r"^(B?)F(?=\d)", lambda found: f"{found[1].lower()}float", kind)
    return name.lower() + {"E4M3": "fn", "E8M0": "fnu"}.get(name[-4:], "")


@contextmanager
def open_safetensors(file: Path) -> Iterator[TensorFile]:
    """Open a file; any error of the reader becomes one sentence."""
    from safetensors import SafetensorError, safe_open

    sentence = f"{file} must be a complete safetensors file; got one that cannot be read"
    kinds = (SafetensorError, OSError, ValueError)
    with reported(sentence, ". Fetch it again.", kinds), safe_open(file, "pt", device="cpu") as handle:

        def describe(name: str) -> tuple[tuple[int, ...], str]:
            part = handle.get_slice(name)
            return tuple(part.get_shape()), _torch_name(part.get_dtype())

        yield TensorFile(list(handle.keys()), describe, handle.get_tensor, header=dict(handle.metadata() or {}))
