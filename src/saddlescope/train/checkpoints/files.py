"""Checkpoint files: the tensors of a model by name, read a few at a time, with a digest of each.

Formats: safetensors and `torch.save` (`weights_only=True`: nothing in a file is ever executed); one file, or a folder
in the layout of Hugging Face: shards with an index, and config.json beside them. Files are mapped into memory, and a
mapping ends with the tensors read from it: only those are ever resident, however large the file.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure.arrays import UNIT_ROUNDOFF

_SAFE = (".safetensors",)
_TORCH = (".bin", ".pt", ".pth", ".ckpt")
_SINGLE = ("model.safetensors", "pytorch_model.bin")  # in the order of preference
_STATES = ("state_dict", "model_state_dict", "model", "module")  # keys of the weights in files of training scripts
_CHUNK = 2**26  # bytes hashed at once


def raise_error(sentence: str) -> None:
    """Raise an `InputError`: the default of `on_error`."""
    raise InputError(sentence)


@dataclass(frozen=True)
class StoredTensor:
    """Tensor of a checkpoint that has not been read.

    Attributes:
        file: file that holds it.
        name: its name in the file.
        shape: its shape.
        floating: True for floating-point numbers, such as weights; False for masks and counters.
    """

    file: Path
    name: str
    shape: tuple[int, ...]
    floating: bool


@dataclass(frozen=True, eq=False, repr=False)
class Checkpoint(ReprMixin):
    """Weights of a model on disk.

    Names are those of the model, without the prefixes of `torch.compile` and `DistributedDataParallel`.

    Attributes:
        path: the file or folder, as given.
        tensors: tensors by name, in the order of names, layer 2 before layer 10.
        lost: names of tensors in shards that are missing or damaged.
    """

    path: Path
    tensors: Mapping[str, StoredTensor]
    lost: frozenset[str] = frozenset()
    _digests: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: str | Path, *, on_error: Callable[[str], None] = raise_error) -> "Checkpoint":
        """Read the names and shapes, but no tensor.

        Args:
            path: a file or a folder.
            on_error: called with a sentence on shards that are missing or cannot be read, whose tensors are `lost`. The
                default raises at the first.

        Raises:
            InputError: the file or folder does not exist, or no file in it can be read: each is missing, damaged, of an
                old format, or contains code.
        """
        path = Path(path)
        if not path.exists():
            raise InputError(
                f"There is no checkpoint {path}; pass a file or a folder, such as one that "
                f"`hf download NAME --local-dir {path.name}` creates."
            )
        files, indexed = (_weight_files(path), {}) if path.is_file() else _in_folder(path, on_error)
        tensors: dict[str, StoredTensor] = {}
        readable: set[str] = set()
        for file in files:
            try:
                found = _described(file)
            except InputError as error:
                if len(files) == 1:
                    raise
                on_error(str(error))
                continue
            readable.add(file.name)
            if twice := sorted(tensors.keys() & found.keys()):
                raise InputError(
                    f"{path} must hold each tensor once; got {twice[0]} in {tensors[twice[0]].file.name} and in "
                    f"{file.name}. Name one file."
                )
            tensors |= found
        absent = [name for name in indexed if _model_name(name) not in tensors]
        if forgotten := [name for name in absent if indexed[name] in readable]:
            on_error(
                f"{path} must hold every tensor of its index; got none of {first_few(forgotten)}. Fetch "
                f"{indexed[forgotten[0]]} again."
            )
        if not tensors:
            raise InputError(f"{path} must hold tensors by name; got none. Save model.state_dict().")
        ordered = {name: tensors[name] for name in sorted(tensors, key=_natural)}
        return cls(path, ordered, frozenset(map(_model_name, absent)))

    @cached_property
    def config(self) -> dict[str, Any]:
        """Content of config.json beside the weights; empty without such a file.

        Raises:
            InputError: the file is not a JSON object.
        """
        file = (self.path if self.path.is_dir() else self.path.parent) / "config.json"
        return _json(file) if file.is_file() else {}

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Read and hash some of the tensors.

        Raises:
            InputError: a tensor is missing, or cannot be read.
        """
        found: dict[str, Tensor] = {}
        by_file: dict[Path, list[str]] = {}
        for name in names:
            if name not in self.tensors:
                raise InputError(f"{self.path} must hold {name}; got a checkpoint without it.")
            by_file.setdefault(self.tensors[name].file, []).append(name)
        for file, requested in by_file.items():
            with _open(file) as held:
                for name in requested:
                    found[name] = held.read(self.tensors[name].name)
                    if name not in self._digests:
                        self._digests[name] = _digest(found[name])
        return found

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a tensor's type, shape and bytes."""
        if name not in self._digests:
            self.read([name])
        return self._digests[name]


def _described(file: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file by their names in the model."""
    with _open(file) as held:
        return {_model_name(name): StoredTensor(file, name, *held.describe(name)) for name in held.names()}


class _TensorFile(Protocol):
    """Opened file of tensors."""

    def names(self) -> list[str]: ...

    def describe(self, name: str) -> tuple[tuple[int, ...], bool]: ...

    def read(self, name: str) -> Tensor: ...


class _SafeFile:
    """Opened safetensors file; the library has checked its header against its size."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def names(self) -> list[str]:
        return list(self._handle.keys())

    def describe(self, name: str) -> tuple[tuple[int, ...], bool]:
        part = self._handle.get_slice(name)
        return tuple(part.get_shape()), part.get_dtype().startswith(("F", "BF"))

    def read(self, name: str) -> Tensor:
        return self._handle.get_tensor(name)


class _TorchFile:
    """Memory-mapped file of `torch.save`."""

    def __init__(self, file: Path, content: Any) -> None:
        self._tensors = _state_dict(file, content)

    def names(self) -> list[str]:
        return list(self._tensors)

    def describe(self, name: str) -> tuple[tuple[int, ...], bool]:
        tensor = self._tensors[name]
        return tuple(tensor.shape), tensor.is_floating_point()

    def read(self, name: str) -> Tensor:
        return self._tensors[name].detach()


@contextmanager
def _open(file: Path) -> Iterator[_TensorFile]:
    """Open a file of tensors; any error of the reader becomes one sentence."""
    if file.suffix in _SAFE:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(file, framework="pt", device="cpu") as handle:
                yield _SafeFile(handle)
        except (SafetensorError, OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{file} must be a complete safetensors file; got one that cannot be read ({_first_line(error)}). "
                "Fetch it again."
            ) from error
        return
    try:
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a damaged pickle or archive can raise nearly anything
        if "_use_new_zipfile_serialization" in str(error):
            reason, cure = "the format of PyTorch before 1.6", "Convert it to safetensors."
        else:
            reason = _first_line(error)
            cure = "Fetch it again, or save model.state_dict() alone."
        raise InputError(
            f"{file} must be a complete file of tensors by torch.save; got one that cannot be read ({reason}), and "
            f"nothing in it was executed. {cure}"
        ) from error
    yield _TorchFile(file, content)


def _state_dict(file: Path, content: Any) -> dict[str, Tensor]:
    """Return the tensors by name in the result of `torch.load`, at the top or one level below."""
    for place in (content, *(content.get(key) for key in _STATES if isinstance(content, dict))):
        if isinstance(place, dict):
            tensors = {k: v for k, v in place.items() if isinstance(k, str) and isinstance(v, Tensor)}
            for name, tensor in tensors.items():
                _require_dense(file, name, tensor)
            if tensors:
                return tensors
    raise InputError(
        f"{file} must hold tensors by name, at the top or under {', '.join(_STATES)}; got {type(content).__name__}. "
        "Save model.state_dict()."
    )


def _require_dense(file: Path, name: str, tensor: Tensor) -> None:
    """Raise InputError unless a tensor is dense: a few stored bytes can be declared a matrix of terabytes."""
    dense = tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"
    if not dense or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        kind = f"shape {tuple(tensor.shape)}, {tensor.layout}, on {tensor.device}"
        raise InputError(
            f"{file} must hold dense tensors with their own storage; got {name} ({kind}). Save a copy of it."
        )


def _weight_files(path: Path) -> list[Path]:
    if path.suffix not in _SAFE + _TORCH:
        raise InputError(f"{path} must end in {', '.join(_SAFE + _TORCH)}; got {path.suffix or 'no suffix'!r}.")
    return [path]


def _in_folder(folder: Path, on_error: Callable[[str], None]) -> tuple[list[Path], dict[str, str]]:
    """Return the files of weights in a folder, and from its index the file of each tensor."""
    for name in _SINGLE:
        index = folder / f"{name}.index.json"
        if index.is_file():
            indexed = _json(index).get("weight_map")
            if not isinstance(indexed, dict) or not all(isinstance(file, str) for file in indexed.values()):
                raise InputError(f"{index} must have a weight_map from tensors to files; got none. Fetch it again.")
            shards = sorted(set(indexed.values()))
            if foreign := [shard for shard in shards if Path(shard).name != shard]:
                raise InputError(f"{index} must name files of its own folder; got {foreign[0]!r}.")
            if missing := [shard for shard in shards if not (folder / shard).is_file()]:
                on_error(f"{folder} must hold all {len(shards)} shards of its index; got none of {first_few(missing)}.")
            present = [shard for shard in shards if shard not in missing]
            return [file for shard in present for file in _weight_files(folder / shard)], indexed
    for name in _SINGLE:
        if (folder / name).is_file():
            return [folder / name], {}
    if (folder / "adapter_config.json").is_file():
        raise InputError(
            f"{folder} must hold full weights; got an adapter. Merge it first: PeftModel.merge_and_unload(), then "
            "save_pretrained."
        )
    found = sorted(file for file in folder.iterdir() if file.suffix in _SAFE + _TORCH)
    if len(found) != 1:
        names = first_few([file.name for file in found]) if found else "none"
        raise InputError(
            f"{folder} must hold {' or '.join(_SINGLE)}, or one file of weights; got {names}. Name the file."
        )
    return found, {}


def _json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} must be JSON; got a file that cannot be read ({_first_line(error)}).") from error
    if not isinstance(value, dict):
        raise InputError(f"{file} must hold a JSON object; got {type(value).__name__}.")
    return value


def _model_name(stored: str) -> str:
    return stored.replace("_orig_mod.", "").removeprefix("module.")


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names as numbers: tensors in files are in alphabetical order."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _digest(tensor: Tensor) -> str:
    """Hash type, shape and bytes, chunk by chunk."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    content = tensor.contiguous().flatten().view(torch.uint8)
    for chunk in content.split(_CHUNK):
        digest.update(chunk.numpy().data)
    return digest.hexdigest()


def require_finite(path: Path, name: str, tensor: Tensor) -> None:
    """Raise InputError for a tensor without a spectrum.

    Raises:
        InputError: the tensor has NaN or infinite entries, or a type of quantized models.
    """
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in UNIT_ROUNDOFF:
        raise InputError(
            f"{path} must hold weights of type {', '.join(UNIT_ROUNDOFF)}; got {kind} in {name}. Dequantize the model "
            "first."
        )
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{path} must hold finite weights; got NaN or infinity in {name}. Use an earlier checkpoint.")


def first_few(names: Iterable[str], most: int = 3) -> str:
    """Return the first few of many names, for a message."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__
