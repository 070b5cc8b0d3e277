"""Checkpoints on disk: the tensors of a model by name, read a few at a time, with a digest of each.

What is read: safetensors, and what `torch.save` writes (`weights_only=True`: nothing in a file is ever executed); one
file, or a folder as Hugging Face lays it out: shards with an index, and config.json beside them. Files are mapped into
memory, and a mapping ends with the tensors that were taken from it: only those are ever resident, however large the
file.
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
_WHOLE = ("model.safetensors", "pytorch_model.bin")  # in the order of preference
_STATES = ("state_dict", "model_state_dict", "model", "module")  # where training scripts keep the weights in a file
_PIECE = 2**26  # bytes hashed at once


def refuse(sentence: str) -> None:
    """What to do with a fault unless somebody else listens: raise it as an `InputError`."""
    raise InputError(sentence)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a checkpoint that has not been read.

    Attributes:
        file: which holds it.
        name: under which it is held there.
        shape: its shape.
        floating: whether it holds floating-point numbers, as weights do and masks and counters do not.
    """

    file: Path
    name: str
    shape: tuple[int, ...]
    floating: bool


@dataclass(frozen=True, eq=False, repr=False)
class Checkpoint(ReprMixin):
    """The weights of a model on disk.

    Names are those of the model: what `torch.compile` and `DistributedDataParallel` put before them is left away.

    Attributes:
        path: the file or folder, as given.
        tensors: by name, in the order of names, layer 2 before layer 10.
        lost: names of tensors in shards that are missing or damaged.
    """

    path: Path
    tensors: Mapping[str, StoredTensor]
    lost: frozenset[str] = frozenset()
    _digests: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, path: str | Path, *, fault: Callable[[str], None] = refuse) -> "Checkpoint":
        """Looks at the names and shapes; no tensor is read.

        Args:
            path: a file or a folder.
            fault: called with a sentence on shards that are missing or cannot be read, whose tensors are `lost`. The
                default raises at the first.

        Raises:
            InputError: there is no such file or folder, or no file in it can be read: each is missing, damaged, of an
                old format, or asks for something to be executed.
        """
        path = Path(path)
        if not path.exists():
            raise InputError(
                f"There is no checkpoint {path}; give a file or a folder, such as one that "
                f"`hf download NAME --local-dir {path.name}` makes."
            )
        files, promised = (_weight_files(path), {}) if path.is_file() else _in_folder(path, fault)
        tensors: dict[str, StoredTensor] = {}
        readable: set[str] = set()
        for file in files:
            try:
                found = _described(file)
            except InputError as error:
                if len(files) == 1:
                    raise
                fault(str(error))
                continue
            readable.add(file.name)
            if twice := sorted(tensors.keys() & found.keys()):
                raise InputError(
                    f"{path} must hold each tensor once; got {twice[0]} in {tensors[twice[0]].file.name} and in "
                    f"{file.name}. Name one file."
                )
            tensors |= found
        absent = [name for name in promised if _model_name(name) not in tensors]
        if forgotten := [name for name in absent if promised[name] in readable]:
            fault(
                f"{path} must hold every tensor of its index; got none of {some(forgotten)}. Fetch "
                f"{promised[forgotten[0]]} again."
            )
        if not tensors:
            raise InputError(f"{path} must hold tensors by name; got none. Save model.state_dict().")
        ordered = {name: tensors[name] for name in sorted(tensors, key=_natural)}
        return cls(path, ordered, frozenset(map(_model_name, absent)))

    @cached_property
    def config(self) -> dict[str, Any]:
        """What config.json beside the weights says of the model; empty where there is none.

        Raises:
            InputError: it is no JSON object.
        """
        file = (self.path if self.path.is_dir() else self.path.parent) / "config.json"
        return _json(file) if file.is_file() else {}

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Some of the tensors; each is hashed as it passes.

        Raises:
            InputError: a tensor is not there, or cannot be read.
        """
        found: dict[str, Tensor] = {}
        by_file: dict[Path, list[str]] = {}
        for name in names:
            if name not in self.tensors:
                raise InputError(f"{self.path} must hold {name}; got a checkpoint without it.")
            by_file.setdefault(self.tensors[name].file, []).append(name)
        for file, wanted in by_file.items():
            with _opened(file) as held:
                for name in wanted:
                    found[name] = held.take(self.tensors[name].name)
                    if name not in self._digests:
                        self._digests[name] = _digest(found[name])
        return found

    def digest(self, name: str) -> str:
        """The SHA-256 of a tensor's type, shape and bytes."""
        if name not in self._digests:
            self.read([name])
        return self._digests[name]


def _described(file: Path) -> dict[str, StoredTensor]:
    """The tensors of one file, by the names they have in the model."""
    with _opened(file) as held:
        return {_model_name(name): StoredTensor(file, name, *held.describe(name)) for name in held.names()}


class _Held(Protocol):
    """An opened file of tensors."""

    def names(self) -> list[str]: ...

    def describe(self, name: str) -> tuple[tuple[int, ...], bool]: ...

    def take(self, name: str) -> Tensor: ...


class _SafeFile:
    """A safetensors file; the library has checked its header against its size."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def names(self) -> list[str]:
        return list(self._handle.keys())

    def describe(self, name: str) -> tuple[tuple[int, ...], bool]:
        part = self._handle.get_slice(name)
        return tuple(part.get_shape()), part.get_dtype().startswith(("F", "BF"))

    def take(self, name: str) -> Tensor:
        return self._handle.get_tensor(name)


class _TorchFile:
    """A file of `torch.save`, mapped."""

    def __init__(self, file: Path, content: Any) -> None:
        self._tensors = _state_dict(file, content)

    def names(self) -> list[str]:
        return list(self._tensors)

    def describe(self, name: str) -> tuple[tuple[int, ...], bool]:
        tensor = self._tensors[name]
        return tuple(tensor.shape), tensor.is_floating_point()

    def take(self, name: str) -> Tensor:
        return self._tensors[name].detach()


@contextmanager
def _opened(file: Path) -> Iterator[_Held]:
    """The tensors of one file; whatever its bytes make a reader say becomes one sentence."""
    if file.suffix in _SAFE:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(file, framework="pt", device="cpu") as handle:
                yield _SafeFile(handle)
        except (SafetensorError, OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{file} must be a whole safetensors file; got one that cannot be read ({_first_line(error)}). Fetch "
                "it again."
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
            f"{file} must be a whole file of tensors by torch.save; got one that cannot be read ({reason}), and "
            f"nothing in it was executed. {cure}"
        ) from error
    yield _TorchFile(file, content)


def _state_dict(file: Path, content: Any) -> dict[str, Tensor]:
    """The tensors by name in what `torch.load` gave, there or one level below."""
    for place in (content, *(content.get(key) for key in _STATES if isinstance(content, dict))):
        if isinstance(place, dict):
            tensors = {k: v for k, v in place.items() if isinstance(k, str) and isinstance(v, Tensor)}
            for name, tensor in tensors.items():
                _refuse_odd(file, name, tensor)
            if tensors:
                return tensors
    raise InputError(
        f"{file} must hold tensors by name, at the top or under {', '.join(_STATES)}; got {type(content).__name__}. "
        "Save model.state_dict()."
    )


def _refuse_odd(file: Path, name: str, tensor: Tensor) -> None:
    """Refuses tensors that are not what they seem: a few stored bytes can be told to be a matrix of terabytes."""
    dense = tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"
    if not dense or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        kind = f"shape {tuple(tensor.shape)}, {tensor.layout}, on {tensor.device}"
        raise InputError(f"{file} must hold dense tensors of their own; got {name} ({kind}). Save a plain copy of it.")


def _weight_files(path: Path) -> list[Path]:
    if path.suffix not in _SAFE + _TORCH:
        raise InputError(f"{path} must end in {', '.join(_SAFE + _TORCH)}; got {path.suffix or 'no suffix'!r}.")
    return [path]


def _in_folder(folder: Path, fault: Callable[[str], None]) -> tuple[list[Path], dict[str, str]]:
    """The files of weights in a folder, and what its index promises: the file of each tensor."""
    for name in _WHOLE:
        index = folder / f"{name}.index.json"
        if index.is_file():
            promised = _json(index).get("weight_map")
            if not isinstance(promised, dict) or not all(isinstance(file, str) for file in promised.values()):
                raise InputError(f"{index} must have a weight_map from tensors to files; got none. Fetch it again.")
            shards = sorted(set(promised.values()))
            if strangers := [shard for shard in shards if Path(shard).name != shard]:
                raise InputError(f"{index} must name files of its own folder; got {strangers[0]!r}.")
            if missing := [shard for shard in shards if not (folder / shard).is_file()]:
                fault(f"{folder} must hold all {len(shards)} shards of its index; got none of {some(missing)}.")
            there = [shard for shard in shards if shard not in missing]
            return [file for shard in there for file in _weight_files(folder / shard)], promised
    for name in _WHOLE:
        if (folder / name).is_file():
            return [folder / name], {}
    if (folder / "adapter_config.json").is_file():
        raise InputError(
            f"{folder} must hold whole weights; got an adapter. Merge it first: PeftModel.merge_and_unload(), then "
            "save_pretrained."
        )
    found = sorted(file for file in folder.iterdir() if file.suffix in _SAFE + _TORCH)
    if len(found) != 1:
        told = some([file.name for file in found]) if found else "none"
        raise InputError(
            f"{folder} must hold {' or '.join(_WHOLE)}, or one file of weights; got {told}. Name the file."
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
    """A key that sorts numbers in names as numbers: files keep tensors in alphabetical order."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _digest(tensor: Tensor) -> str:
    """Over type, shape and bytes, piece by piece."""
    told = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    content = tensor.contiguous().flatten().view(torch.uint8)
    for piece in content.split(_PIECE):
        told.update(piece.numpy().data)
    return told.hexdigest()


def refuse_broken(path: Path, name: str, tensor: Tensor) -> None:
    """Refuses a tensor that has no spectrum.

    Raises:
        InputError: it has NaN or infinite entries, or is of a type that only quantized models have.
    """
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in UNIT_ROUNDOFF:
        raise InputError(
            f"{path} must hold weights of type {', '.join(UNIT_ROUNDOFF)}; got {kind} in {name}. Dequantize the model "
            "first."
        )
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{path} must hold finite weights; got NaN or infinity in {name}. Take an earlier one.")


def some(names: Iterable[str], most: int = 3) -> str:
    """The first few of many names, for a message."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".")[:200] if lines else type(error).__name__
