"""Files of tensors: safetensors, and `torch.save` with `weights_only=True`, so that nothing in a file is ever executed.

A file of a training script holds more than weights: the optimiser's state, settings, the best loss (which may be a
tensor itself). `_state_dict` finds the one state dict in it, and `settings` the plain values of its configuration.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope._shared.visible_text import visible
from saddlescope.ranks.pickle_scan import require_plain

SAFE = (".safetensors",)
TORCH = (".bin", ".pt", ".pth", ".ckpt")
_STATES = ("state_dict", "model_state_dict", "model", "module")  # keys of the weights in files of training scripts
_SETTINGS = ("config", "hyper_parameters", "model_args")  # keys of the configuration; later ones take precedence
_PLAIN = (int, float, str, list, tuple, dict)
_BEFORE_1_6 = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # with which PyTorch began its files


def first_few(names: Iterable[str], most: int = 3) -> str:
    """Return the first few of many names, for a message."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def first_line(error: BaseException) -> str:
    """Return the first line of an error, for a message."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__


class TensorFile(Protocol):
    """Opened file of tensors."""

    def names(self) -> list[str]:
        """Return the names of the tensors."""
        ...

    def describe(self, name: str) -> tuple[tuple[int, ...], bool]:
        """Return the shape of a tensor, and True for floating-point numbers."""
        ...

    def read(self, name: str) -> Tensor:
        """Read a tensor."""
        ...

    def settings(self) -> dict[str, Any]:
        """Return plain values of a configuration in the file."""
        ...


class _SafeFile:
    """Opened safetensors file; the library has checked its header against its size."""

    def __init__(self, file: Path, handle: Any) -> None:
        self._file, self._handle = file, handle

    def names(self) -> list[str]:
        return _clear_names(self._file, list(self._handle.keys()))

    def describe(self, name: str) -> tuple[tuple[int, ...], bool]:
        part = self._handle.get_slice(name)
        return tuple(part.get_shape()), part.get_dtype().startswith(("F", "BF"))

    def read(self, name: str) -> Tensor:
        return self._handle.get_tensor(name)

    def settings(self) -> dict[str, Any]:
        return {}


class _TorchFile:
    """Memory-mapped file of `torch.save`."""

    def __init__(self, file: Path, content: Any) -> None:
        self._file, self._content = file, content
        self._tensors = _state_dict(file, content)

    def names(self) -> list[str]:
        return _clear_names(self._file, list(self._tensors))

    def describe(self, name: str) -> tuple[tuple[int, ...], bool]:
        tensor = self._tensors[name]
        return tuple(tensor.shape), tensor.is_floating_point()

    def read(self, name: str) -> Tensor:
        return self._tensors[name].detach()

    def settings(self) -> dict[str, Any]:
        """Return the plain values of the configuration that a training script stored beside the weights."""
        found: dict[str, Any] = {}
        for key in _SETTINGS:
            values = self._content.get(key) if isinstance(self._content, dict) else None
            if isinstance(values, dict):
                found |= {k: v for k, v in values.items() if isinstance(k, str) and isinstance(v, _PLAIN)}
        return found


@contextmanager
def open_tensors(file: Path) -> Iterator[TensorFile]:
    """Open a file of tensors; any error of the reader becomes one sentence."""
    if file.suffix in SAFE:
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
        return
    try:
        _require_bounded(file)
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a damaged pickle or archive can raise nearly anything
        reason, cure = _reason(file, error)
        raise InputError(
            f"{file} must be a complete file of tensors by torch.save; got one that cannot be read ({reason}), and "
            f"nothing in it was executed. {cure}"
        ) from error
    yield _TorchFile(file, content)


def _reason(file: Path, error: Exception) -> tuple[str, str]:
    """Return why `torch.load` refused a file, and the cure; its own message begins with advice to run the file."""
    text = str(error)
    if "_use_new_zipfile_serialization" in text:
        with file.open("rb") as stored:
            start = stored.read(len(_BEFORE_1_6))
        if start == _BEFORE_1_6:
            return "the format of PyTorch before 1.6", "Convert it to safetensors."
        return ("another format" if start else "an empty file"), "Fetch it again."
    if found := re.search(r"GLOBAL ([\w.]+)", text):
        return f"it has an object of {found[1]}", "Save model.state_dict() alone."
    return first_line(error), "Fetch it again, or save model.state_dict() alone."


def _require_bounded(file: Path) -> None:
    """Raise unless a file of `torch.save` can be read in time and memory proportional to its size.

    Raises:
        ValueError: parts of it are compressed, or larger than it.
        pickle.UnpicklingError: its pickle expands.
    """
    with file.open("rb") as stored:
        if stored.read(2) != b"PK":  # of another format, which `torch.load` then refuses
            return
        with zipfile.ZipFile(stored) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ValueError("parts of it are compressed")
            if sum(member.file_size for member in members) > file.stat().st_size:
                raise ValueError("its parts are larger than the file")
            for member in members:
                if member.filename.endswith("data.pkl"):
                    require_plain(archive.read(member))


def _clear_names(file: Path, names: list[str]) -> list[str]:
    """Return the names of tensors.

    Raises:
        InputError: one has control characters, which no file or page can hold.
    """
    if odd := [name for name in names if visible(name) != name or "\n" in name]:
        raise InputError(f"{file} must have names of tensors without control characters; got {odd[0]!r:.80}.")
    return names


def _state_dict(file: Path, content: Any) -> dict[str, Tensor]:
    """Return the tensors by name in the result of `torch.load`: the one state dict in it.

    That is the one under a usual key; else the top, if it holds a matrix; else the one value that is a state dict. A
    stray tensor at the top, such as the best loss, does not matter.
    """
    nested = {key: tensors for key, value in _items(content) if (tensors := _tensors_of(value))}
    top = _tensors_of(content)
    matrices = {key: one for key, one in nested.items() if any(tensor.ndim > 1 for tensor in one.values())}
    usual = next((nested[key] for key in _STATES if key in nested), None)
    if usual is not None:
        found = usual
    elif top and (not matrices or any(tensor.ndim > 1 for tensor in top.values())):
        found = top
    elif len(matrices or nested) == 1:
        (found,) = (matrices or nested).values()
    elif matrices or nested:
        raise InputError(
            f"{file} must hold one state dict; got {first_few(sorted(matrices or nested))}. Save model.state_dict() "
            "alone, or under the key model."
        )
    else:
        raise InputError(
            f"{file} must hold tensors by name, at the top or under {', '.join(_STATES)}; got "
            f"{type(content).__name__}. Save model.state_dict()."
        )
    for name, tensor in found.items():
        _require_dense(file, name, tensor)
    return found


def _items(content: Any) -> list[tuple[str, Any]]:
    return [(k, v) for k, v in content.items() if isinstance(k, str)] if isinstance(content, dict) else []


def _tensors_of(place: Any) -> dict[str, Tensor]:
    """Return the tensors by name directly in a dictionary."""
    return {key: value for key, value in _items(place) if isinstance(value, Tensor)}


def _require_dense(file: Path, name: str, tensor: Tensor) -> None:
    """Raise InputError unless a tensor is dense: a few stored bytes can be declared a matrix of terabytes."""
    dense = tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"
    if not dense or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        kind = f"shape {tuple(tensor.shape)}, {tensor.layout}, on {tensor.device}"
        raise InputError(
            f"{file} must hold dense tensors with their own storage; got {name} ({kind}). Save a copy of it."
        )
