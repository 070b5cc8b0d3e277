"""Initial weights in files: a saved checkpoint, for a model whose training has begun, or the tracker's own file."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saddlescope._shared.atomic_files import atomic_writer
from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.files import Checkpoint
from saddlescope.ranks.checkpoints.tensor_matching import align_names
from saddlescope.ranks.checkpoints.transformers_model import as_loaded
from saddlescope.ranks.checkpoints.weights_in_memory import Source, open_weights
from saddlescope.ranks.module_names import canonical_name, first_few, unwrap_model
from saddlescope.ranks.tracker.initial_weights import InitialWeights, add_to_digest, chunks

_SAFETENSORS_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class StoredWeights(InitialWeights):
    """Parameters in a checkpoint; read on request, a few at a time.

    Args:
        checkpoint: the file or folder.
        stored: where each parameter is, by names in the model: the checkpoint, perhaps under the names that
            Transformers gives its tensors, and the name in it.
        rounded: as the attribute of `InitialWeights`.

    Attributes:
        created: True if `write` has written the file, False if it existed.
    """

    created = False

    def __init__(
        self, checkpoint: Checkpoint, stored: Mapping[str, tuple[Checkpoint, str]], *, rounded: bool = True
    ) -> None:
        self._checkpoint, self._stored, self.rounded = checkpoint, dict(stored), rounded
        self._found = self._identity()

    @property
    def path(self) -> Path:
        """The file or folder."""
        return self._checkpoint.path

    @property
    def names(self) -> Sequence[str]:
        """See `InitialWeights`."""
        return tuple(self._stored)

    def of(self, names: Iterable[str]) -> dict[str, Tensor]:
        """See `InitialWeights`.

        Raises:
            InputError: the files were removed or changed since they were opened.
        """
        wanted = {name: self._stored[name] for name in names}
        if self._identity() != self._found:
            raise InputError(
                f"{self.path} must stay as it was when the tracker was built, since updates are counted from it; got "
                "one that was removed or written again. Copy it elsewhere, or pass reference=InMemory()."
            )
        tensors: dict[tuple[Checkpoint, str], Tensor] = {}
        for source in {checkpoint for checkpoint, _ in wanted.values()}:
            read = source.read([name for checkpoint, name in wanted.values() if checkpoint is source])
            tensors |= {(source, name): tensor for name, tensor in read.items()}
        return {name: tensors[stored] for name, stored in wanted.items()}

    def _identity(self) -> tuple[object, ...]:
        """Return size and time of change of all files that hold the weights; None for those that do not exist."""
        files = {source.tensors[name].file for source, name in self._stored.values()}
        states = (file.stat() if file.exists() else None for file in sorted(files))
        return tuple(None if state is None else (state.st_size, state.st_mtime_ns) for state in states)

    @classmethod
    def write(
        cls, names: Sequence[str], read: Callable[[str], Tensor], folder: str | Path, *, rounded: bool
    ) -> "StoredWeights":
        """Write parameters to a file that is named by their digest, one at a time, and return those in the file.

        Args:
            names: names of the parameters.
            read: function from a name to the parameter, on any device.
            folder: folder of the file; created if absent.
            rounded: as the attribute of `InitialWeights`.

        Raises:
            InputError: the folder cannot be written to, or the disk is full.
        """
        try:
            path, created = _write_safetensors(Path(folder), sorted(names), read)
        except OSError as error:
            raise InputError(
                f"reference must have a folder that can be written to; got {str(folder)!r} "
                f"({error.strerror or error}). Free disk space or choose another folder."
            ) from error
        stored = cls.read(path, names, rounded=rounded)
        stored.created = created
        return stored

    @classmethod
    def read(cls, path: Path, names: Iterable[str], *, rounded: bool) -> "StoredWeights":
        """Return the weights in a file of `write`.

        Raises:
            InputError: the file cannot be read.
        """
        checkpoint = Checkpoint.open(path)
        return cls(checkpoint, {name: (checkpoint, name) for name in names}, rounded=rounded)


def read_from_folder(folder: str | Path, digest: str, names: Iterable[str], *, rounded: bool) -> StoredWeights | None:
    """Return the initial weights with a digest from their file in a folder, or None if there is no such file.

    Raises:
        InputError: the file is damaged.
    """
    path = file_of(folder, digest)
    if not path.is_file():
        return None
    stored = StoredWeights.read(path, names, rounded=rounded)
    if stored.digest() != digest:
        raise InputError(f"{path} must hold the initial weights that its name promises; got others. Restore the file.")
    return stored


def file_of(folder: str | Path, digest: str) -> Path:
    """Return the file of the initial weights with a digest."""
    return Path(folder) / f"saddlescope-initial-{digest[:16]}.safetensors"


def _write_safetensors(folder: Path, names: Sequence[str], read: Callable[[str], Tensor]) -> tuple[Path, bool]:
    """Write tensors one at a time in the format of safetensors, and return the file, and False if it existed."""
    header, end, digest = dict[str, Any](), 0, hashlib.sha256()
    for name in names:
        tensor = read(name).detach().cpu()
        size = tensor.numel() * tensor.element_size()
        kind, shape = _SAFETENSORS_TYPES[tensor.dtype], list(tensor.shape)
        header[name], end = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}, end + size
        add_to_digest(digest, name, tensor)
    path = file_of(folder, digest.hexdigest())
    if path.is_file():
        return path, False
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data are aligned
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_writer(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            for chunk in chunks(read(name).detach().cpu()):
                file.write(chunk)
    return path, True


def weights_in_checkpoint(source: Source, model: nn.Module, names: Collection[str]) -> StoredWeights:
    """Return parameters and buffers of a model in a saved checkpoint, in the types in which they are stored.

    A prefix of the names, such as "transformer.", may exist in only one of the two. Models of Transformers, also inside
    of other modules, read their files by the rules of Transformers, which renames and merges tensors.

    Args:
        source: a file or folder, see `saddlescope.ranks.checkpoints.Checkpoint`, or a tree of arrays.
        model: the model of the checkpoint.
        names: names of the parameters and buffers.

    Raises:
        InputError: the checkpoint cannot be read, lacks a parameter, or has it in another shape.
    """
    checkpoint, model, wanted = open_weights(source, "initial"), unwrap_model(model), set(names)
    aliases: dict[int, list[str]] = {}  # of a parameter: several if it is shared; files hold one of them
    parameters: dict[str, Tensor] = {}
    for own, parameter in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(parameter), []).append(canonical_name(own))
        parameters[canonical_name(own)] = parameter
    for own, buffer in model.named_buffers():
        if (name := canonical_name(own)) in wanted:
            aliases[id(buffer)], parameters[name] = [name], buffer
    aligned = {own: (checkpoint, name) for own, name in align_names(list(parameters), checkpoint.tensors).items()}
    for prefix, inner in _of_transformers(model):
        aligned = _read_as_loaded(checkpoint, prefix, inner, aliases.values(), aligned)
    stored: dict[str, tuple[Checkpoint, str]] = {}
    for name in names:
        parameter = parameters[name]
        found = next((aligned[alias] for alias in aliases[id(parameter)] if alias in aligned), None)
        if found is None:
            raise InputError(
                f"initial must hold the weights of the model; got no {name} in {checkpoint.path}, which holds "
                f"{first_few(checkpoint.tensors)}."
            )
        source, own = found
        shape = source.tensors[own].shape
        if shape != tuple(parameter.shape):
            raise InputError(
                f"initial must have the shapes of the model; got {own} of shape {shape} in {checkpoint.path} for "
                f"{name} of shape {tuple(parameter.shape)}."
            )
        stored[name] = found
    return StoredWeights(checkpoint, stored)


def _read_as_loaded(
    checkpoint: Checkpoint,
    prefix: str,
    inner: nn.Module,
    groups: Iterable[Sequence[str]],
    aligned: dict[str, tuple[Checkpoint, str]],
) -> dict[str, tuple[Checkpoint, str]]:
    """Use the names of a model of Transformers inside the model if it then finds more of its parameters."""
    loaded = as_loaded(checkpoint, inner)
    names = {f"{prefix}{name}": name for name in loaded.tensors if name not in loaded.unknown}
    own = [group for group in groups if any(name.startswith(prefix) for name in group)]

    def found(stored: Collection[str]) -> int:
        return sum(any(name in stored for name in group) for group in own)

    if found(names) <= found(aligned):
        return aligned
    rest = {name: one for name, one in aligned.items() if not name.startswith(prefix)}
    return rest | {name: (loaded, inside) for name, inside in names.items()}


def _of_transformers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the outermost models of Transformers in a model, with the prefixes of their names."""
    found: list[tuple[str, nn.Module]] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(prefix) for prefix, _ in found)
        if not inside and hasattr(module, "base_model_prefix") and hasattr(type(module), "from_pretrained"):
            found.append((f"{canonical_name(name)}." if name else "", module))
    return found
