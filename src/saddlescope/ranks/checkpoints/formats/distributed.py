"""Folders of `torch.distributed.checkpoint`: FSDP in Accelerate and the Trainer, torchtitan.

    .metadata       a pickle: shapes of all tensors, and the file, offset and length of each of their chunks
    *.distcp        chunks, each by `torch.save`

PyTorch reads .metadata by running what it says. Here no class is loaded: its objects become placeholders.
"""

import io
import math
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.formats.tensor_file import Placeholder, TensorFile, reported, require_dense
from saddlescope.ranks.checkpoints.formats.torch_file import require_bounded
from saddlescope.ranks.pickle_scan import require_plain

_INDEX = ".metadata"
_OF_TRAINING = re.compile(
    r"((optim(izer)?|chained|(lr_)?scheduler|scaler|dataloader)s?|train_state|rng)(_\w*|\d*)|opt(_state)?s?"
)  # whole first parts of names: a model may have an opt_proj


class _Reader(pickle.Unpickler):
    """Unpickler without classes."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) == ("torch", "Size"):
            return tuple
        if (module_name, global_name) == ("collections", "OrderedDict"):
            return dict
        return type("Placeholder", (Placeholder,), {"of": f"{module_name}.{global_name}"})


class _Tensor(NamedTuple):
    """Name in the folder, shape and type."""

    stored: str
    shape: tuple[int, ...]
    dtype: str


def _lengths(value: object) -> tuple[int, ...]:
    """Return a size or an offset; raise ValueError for anything else."""
    if not isinstance(value, tuple) or not all(type(one) is int and one >= 0 for one in value):
        raise ValueError(f"{value!r:.80} is no size")
    return value


def _dtype(tensor: Placeholder) -> str:
    """Return the name of a tensor's type, from its properties; of floating-point numbers where they have none."""
    state = getattr(tensor.attributes.get("properties"), "state", None)
    kind = getattr(state[0], "of", "") if isinstance(state, tuple) and state else ""
    name = kind.removeprefix("torch.")
    return name if isinstance(getattr(torch, name, None), torch.dtype) else "float32"


class _Folder:
    """Folder whose .metadata has been read.

    Attributes:
        state: key of the state dict that is read; "" for none.
        others: keys of others.
        tensors: tensors by their names in it.
    """

    def __init__(self, folder: Path, metadata: Placeholder) -> None:
        self._folder = folder
        paths = metadata.attributes.get("planner_data")
        paths = paths if isinstance(paths, dict) else {}
        sizes: dict[str, dict[str, _Tensor]] = {}
        for stored, one in dict(metadata.attributes.get("state_dict_metadata") or {}).items():
            if isinstance(one, Placeholder) and one.of.endswith("TensorStorageMetadata"):
                path = paths.get(stored) or (stored,)
                path = path if isinstance(path, tuple) else (stored,)
                state = str(path[0]) if len(path) > 1 else ""
                own = ".".join(map(str, path[1:] if state else path))
                sizes.setdefault(state, {})[own] = _Tensor(
                    str(stored), _lengths(one.attributes.get("size")), _dtype(one)
                )
        kept = {state: one for state, one in sizes.items() if not _OF_TRAINING.fullmatch(state)}
        usual = next((state for state in ("model", "state_dict", "app", "module", "") if state in kept), None)
        if usual is None and len(kept) != 1:
            raise InputError(f"{folder} must hold one state dict, such as model; got {', '.join(sizes) or 'none'}.")
        self.state = usual if usual is not None else next(iter(kept))
        self.others = tuple(state for state in kept if state != self.state)
        self.tensors = {
            name: one
            for name, one in kept[self.state].items()
            if self.state or not _OF_TRAINING.fullmatch(name.partition(".")[0])
        }
        self._chunks: dict[str, list[tuple[tuple[int, ...], Placeholder]]] = {}
        for index, info in dict(metadata.attributes.get("storage_data") or {}).items():
            if isinstance(index, Placeholder) and isinstance(info, Placeholder):
                place = _lengths(index.attributes.get("offset") or ()), info
                self._chunks.setdefault(str(index.attributes.get("fqn")), []).append(place)

    def read(self, name: str) -> Tensor:
        """Read a tensor, joined from its chunks."""
        kinds = RuntimeError, TypeError, ValueError, OverflowError  # of lengths that no tensor has
        with reported(f"{self._folder} must hold {name}; got chunks that cannot be joined", kinds=kinds):
            return self._joined(name)

    def _joined(self, name: str) -> Tensor:
        shape = self.tensors[name].shape
        stored = sum(file.stat().st_size for file in self._folder.iterdir() if file.is_file())
        if math.prod(shape) > stored:  # an entry has a byte or more
            raise InputError(f"{self._folder} must hold {name} of shape {shape}; got {stored} bytes. Fetch it again.")
        whole: Tensor | None = None
        filled = torch.zeros(0, dtype=torch.bool)
        for offset, info in self._chunks.get(self.tensors[name].stored, []):
            part = self._chunk(name, info)
            if part.shape == shape:
                return part
            if whole is None:
                whole, filled = part.new_empty(shape), torch.zeros(shape, dtype=torch.bool)
            place = tuple(slice(start, start + size) for start, size in zip(offset, part.shape, strict=False))
            inside = len(offset) == part.ndim == whole.ndim and whole[place].shape == part.shape
            if not inside or part.dtype != whole.dtype or filled[place].any():
                raise InputError(
                    f"{self._folder} must have chunks of {name}, {shape}, inside of it and beside each other; got one "
                    f"of shape {tuple(part.shape)} at {offset}."
                )
            whole[place] = part
            filled[place] = True
        if whole is None or not filled.all():
            raise InputError(
                f"{self._folder} must have all chunks of {name}; got {int(filled.sum())} entries. Fetch it again."
            )
        return whole

    def _chunk(self, name: str, info: Placeholder) -> Tensor:
        values: list[Any] = [info.attributes.get(key) for key in ("relative_path", "offset", "length")]
        file, offset, length = values
        if not isinstance(file, str) or Path(file).name != file or info.attributes.get("transform_descriptors"):
            raise InputError(
                f"{self._folder} must have plain chunks in its own folder; got {file!r:.80}. Convert it: python -m "
                f"torch.distributed.checkpoint.format_utils dcp_to_torch {self._folder} new.pt"
            )

        sentence = f"{self._folder} must have a chunk of {name} in {file}; got none"
        with reported(sentence, ". Fetch it again."):  # damaged in any way
            with (self._folder / file).open("rb") as held:
                size = held.seek(0, io.SEEK_END)
                held.seek(offset)
                content = io.BytesIO(held.read(min(length, size)))
            if content.getvalue()[:2] != b"PK":
                raise ValueError("it is not by torch.save")
            require_bounded(content)
            content.seek(0)
            found = torch.load(content, map_location="cpu", weights_only=True)
        if not isinstance(found, Tensor):
            raise InputError(f"{self._folder} must have tensors as chunks; got {type(found).__name__} for {name}.")
        require_dense(self._folder, name, found)
        return found.detach()


def is_distributed(folder: Path) -> bool:
    """Return True for a folder of `torch.distributed.checkpoint`."""
    return (folder / _INDEX).is_file()


@contextmanager
def open_distributed(folder: Path) -> Iterator[TensorFile]:
    """Open a folder: its .metadata is read, and no chunk."""
    sentence = f"{folder / _INDEX} must be that of torch.distributed.checkpoint; got one that cannot be read"
    with reported(sentence, ", and nothing in it was executed. Fetch it again."):  # it can raise nearly anything
        content = (folder / _INDEX).read_bytes()
        require_plain(content)
        metadata = _Reader(io.BytesIO(content)).load()
        opened = _Folder(folder, metadata if isinstance(metadata, Placeholder) else Placeholder())
    states = (opened.state, *opened.others) if opened.state else ()
    yield TensorFile(list(opened.tensors), lambda name: opened.tensors[name][1:], opened.read, states=states)
