"""Checkpoint files: the tensors of a model by name, read a few at a time, and compared.

Formats: those of `formats`, in one file, or a folder in the layout of Hugging Face: shards with an index, and
config.json beside them; or a pipeline of Diffusers, with a folder per part. Files are mapped into memory, and a mapping
ends with the tensors read from it: only those are ever resident, however large the file.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope._shared.json_text import parse_json
from saddlescope._shared.reprs import ReprMixin
from saddlescope._shared.visible_text import visible
from saddlescope.measure.arrays import UNIT_ROUNDOFF
from saddlescope.ranks.checkpoints.formats import SUFFIXES, is_distributed, open_tensors, require_known
from saddlescope.ranks.checkpoints.formats.parallel import is_parallel, is_parallel_shard
from saddlescope.ranks.checkpoints.formats.quantised import dequantised, quantised_name, scale_names
from saddlescope.ranks.checkpoints.formats.tensor_file import first_line
from saddlescope.ranks.finite_tensors import all_finite
from saddlescope.ranks.module_names import canonical_name, first_few

_SINGLE = (  # in the order of preference
    "model.safetensors",
    "pytorch_model.bin",
    "diffusion_pytorch_model.safetensors",
    "diffusion_pytorch_model.bin",
    "open_clip_model.safetensors",
)
_PIPELINE = "model_index.json"
_DENOISERS = ("transformer", "unet", "prior")  # the part of a pipeline that is read
SHARD = re.compile(r"(?P<name>.+)-(?P<number>\d+)-of-(?P<count>\d+)\.\w+")
_OTHER = re.compile(r"(pytorch_)?model(_fsdp)?_[1-9]\d*([.-].*)?")  # Accelerate's names of models after the first
_TRAINER = re.compile(r"(training_args|optimizer|scheduler|scaler|sampler|rng_state)(_\d+)?\.\w+")
_CHUNK = 2**26  # bytes hashed at once
_PIECES, _PIECE = 16, 2**12  # of a sample: their number, and bytes of each


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
        dtype: name of its type in PyTorch.
        scale: tensor that it is multiplied by, if it is quantised.
    """

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: "StoredTensor | None" = None

    @property
    def floating(self) -> bool:
        """True for floating-point numbers, such as weights; False for masks and counters."""
        return "float" in self.dtype


@dataclass(frozen=True, eq=False, repr=False)
class Checkpoint(ReprMixin):
    """Weights of a model on disk.

    Names are those of the model, without the prefixes of `torch.compile` and `DistributedDataParallel`.

    Attributes:
        path: the file or folder, as given.
        tensors: tensors by name, in the order of names, layer 2 before layer 10.
        lost: names of tensors that are, or whose scales are, in shards that are missing or damaged.
        frozen: names of tensors that are those of the base by construction, as below an adapter.
        weights: key of the state dict that was read from a file with several; None without a choice.
        states: keys of the state dicts in the file, that of the read one first; none if it is a state dict itself.
        remarks: sentences on what was read.
        origin: checkpoint that this one is made from, by other names or with an adapter; None for files.
    """

    path: Path
    tensors: Mapping[str, StoredTensor]
    lost: frozenset[str] = frozenset()
    frozen: frozenset[str] = frozenset()
    weights: str | None = None
    states: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    origin: "Checkpoint | None" = None
    _samples: dict[str, str] = field(default_factory=dict, repr=False)
    _digests: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def open(
        cls, path: str | Path, *, weights: str | None = None, on_error: Callable[[str], None] = raise_error
    ) -> "Checkpoint":
        """Read the names and shapes, but no tensor.

        Args:
            path: a file or a folder.
            weights: key of the state dict to read from files that hold several, such as "ema"; None reads the weights.
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
        states: tuple[str, ...] = ()
        remarks: list[str] = []
        for file in files:
            try:
                found, states = _described(file, weights, remarks)
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
        tensors = _with_scales(tensors)
        lost = frozenset(map(_model_name, absent))
        unscaled = {name for name, one in tensors.items() if _lost_scale(one, lost)}
        ordered = {name: tensors[name] for name in sorted(tensors.keys() - unscaled, key=natural_order)}
        remarks += _remarks(path, files, states)
        return cls(path, ordered, lost | unscaled, weights=weights, states=states, remarks=tuple(remarks))

    @cached_property
    def config(self) -> dict[str, Any]:
        """Content of config.json beside the weights, or of Meta's params.json, or the settings of a training script.

        Raises:
            InputError: the file is not a JSON object.
        """
        if self.origin is not None:
            return self.origin.config
        folder = self.path if self.path.is_dir() else self.path.parent
        inside = {file if file.is_dir() else file.parent for file in self._files}
        for place in (folder, *inside):
            for name in ("config.json", "params.json"):
                if (place / name).is_file():
                    return read_json(place / name)
        return self._of_only_file("settings")

    @cached_property
    def header(self) -> dict[str, str]:
        """Texts in the header of the only file, such as the settings of an adapter."""
        return self._of_only_file("header")

    @property
    def _files(self) -> set[Path]:
        return {stored.file for stored in self.tensors.values()}

    def _of_only_file(self, attribute: str) -> dict[str, Any]:
        """Return a mapping of the opened file; an empty one of several files."""
        if len(self._files) != 1:
            return {}
        with open_tensors(self._files.pop(), self.weights) as held:
            return dict(getattr(held, attribute))

    def read(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Read some of the tensors.

        Raises:
            InputError: a tensor is missing, or cannot be read.
        """
        names = list(names)
        for name in names:
            if name not in self.tensors:
                raise InputError(f"{self.path} must hold {name}; got a checkpoint without it.")
        found = self._tensors_of(names)
        for name, tensor in found.items():
            if name not in self._samples:
                self._samples[name] = _hash(tensor, _sampled(_bytes(tensor)))
        return found

    def _tensors_of(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Read tensors that exist."""
        found: dict[str, Tensor] = {}
        by_file: dict[Path, list[str]] = {}
        for name in names:
            by_file.setdefault(self.tensors[name].file, []).append(name)
        for file, requested in by_file.items():
            with open_tensors(file, self.weights) as held:
                found |= {name: held.read(self.tensors[name].name) for name in requested}
        for name, tensor in found.items():
            scale = self.tensors[name].scale
            if scale is not None:
                with open_tensors(scale.file, self.weights) as held:
                    found[name] = dequantised(str(self.path), name, tensor, held.read(scale.name), self._block)
        return found

    @property
    def _block(self) -> object:
        """Rows and columns that share a scale, as config.json states them."""
        stated = self.config.get("quantization_config")
        return stated.get("weight_block_size") if isinstance(stated, dict) else None

    def roundoff(self, name: str) -> float:
        """Return the unit roundoff of the quantised type in which a tensor is stored; 0 for others."""
        stored = self.tensors[name]
        return 0.0 if stored.scale is None else torch.finfo(getattr(torch, stored.dtype)).eps / 2

    def sample(self, name: str) -> str:
        """Return the SHA-256 of a tensor's type, shape and some of its bytes: if it differs, so do the tensors.

        A tensor that was read is not read again.
        """
        if name not in self._samples:
            self.read([name])
        return self._samples[name]

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a tensor's type, shape and bytes."""
        if name not in self._digests:
            tensor = self.read([name])[name]
            self._digests[name] = _hash(tensor, _bytes(tensor).split(_CHUNK))
        return self._digests[name]

    def holds_same(self, name: str, other: "Checkpoint", theirs: str) -> bool:
        """Return True if a tensor has the type, shape and bytes of another; most pairs differ in their samples."""
        return self.sample(name) == other.sample(theirs) and self.digest(name) == other.digest(theirs)


def _with_scales(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return the tensors with those of quantised weights joined to their scales, which are no tensors of the model."""
    named = {quantised_name(name) if one.dtype.startswith("float8") else name: (name, one)
             for name, one in tensors.items()}  # fmt: skip
    found, used = dict[str, StoredTensor](), set[str]()
    for name, (stored, one) in named.items():
        scale = None
        if one.dtype.startswith("float8"):
            scale = next((other for other in scale_names(stored) if other in tensors), None)
        found[name] = one if scale is None else replace(one, scale=tensors[scale])
        used |= {scale} if scale is not None else set()
    return {name: one for name, one in found.items() if name not in used}


def _lost_scale(one: StoredTensor, lost: frozenset[str]) -> bool:
    """Return True for a quantised weight whose scale is in a shard that is missing or damaged."""
    quantised = one.dtype.startswith("float8") and one.scale is None
    return quantised and not lost.isdisjoint(scale_names(_model_name(one.name)))


def _described(file: Path, weights: str | None, remarks: list[str]) -> tuple[dict[str, StoredTensor], tuple[str, ...]]:
    """Return the tensors of one file by their names in the model, and the keys of its state dicts; extend the remarks.

    Raises:
        InputError: the file cannot be read, or two of its names are one in the model, or one has control characters,
            which no file or page can hold.
    """
    with open_tensors(file, weights) as held:
        if odd := [name for name in held.names if visible(name) != name or "\n" in name]:
            raise InputError(f"{file} must have names of tensors without control characters; got {odd[0]!r:.80}.")
        names = unambiguous(file, ((_model_name(name), name) for name in held.names))
        remarks += held.remarks
        return {own: StoredTensor(file, name, *held.describe(name)) for own, name in names.items()}, held.states


def _remarks(path: Path, files: Sequence[Path], states: Sequence[str]) -> list[str]:
    """Return sentences on what was read of a file or folder with more than that."""
    found = []
    if len(states) > 1:
        found.append(
            f"{path} holds {', '.join(states)}: {states[0]} was read. Choose another by --weights, or weights=."
        )
    if path.is_dir() and (path / _PIPELINE).is_file() and files[0].parent.parent == path:
        found.append(
            f"{path} is a pipeline: its {files[0].parent.name} was read. For another part, pass the folder of that."
        )
    if others := sorted(one.name for one in path.iterdir() if _OTHER.fullmatch(one.name)) if path.is_dir() else ():
        found.append(
            f"{path} also holds {first_few(others)}, of other models: {files[0].name} was read. Pass each alone."
        )
    shard = SHARD.fullmatch(path.name) if path.is_file() else None
    if shard is not None and int(shard["count"]) > 1:
        found.append(
            f"{path} is shard {int(shard['number'])} of {int(shard['count'])}: the others were not read. "
            f"Pass the folder {path.parent} for all of them."
        )
    return found


def unambiguous(path: Path, names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return stored names by the names that they have in the model, from pairs of both.

    Raises:
        InputError: two stored names are one in the model: which of the tensors is meant is unknown.
    """
    found: dict[str, str] = {}
    for own, stored in names:
        if own in found:
            raise InputError(
                f"{path} must hold each tensor of the model once; got {found[own]} and {stored}, which are both {own} "
                "without the prefixes of wrappers. Remove one of them."
            )
        found[own] = stored
    return found


def _weight_files(path: Path) -> list[Path]:
    require_known(path)
    if not path.name.endswith(SUFFIXES):
        raise InputError(f"{path} must end in {', '.join(SUFFIXES)}; got {path.suffix or 'no suffix'!r}.")
    if is_parallel_shard(path):
        if sum(map(is_parallel_shard, path.parent.iterdir())) > 1:
            raise InputError(f"{path} has a part of every matrix. Pass the folder {path.parent}, to join all shards.")
        return [path.parent]
    return [path]


def _in_folder(folder: Path, on_error: Callable[[str], None]) -> tuple[list[Path], dict[str, str]]:
    """Return the files of weights in a folder, or a folder in it, and from its index the file of each tensor."""
    for index in (folder / f"{name}.index.json" for name in _SINGLE):
        if index.is_file():
            return _indexed(folder, index, on_error)
    if single := next((folder / name for name in _SINGLE if (folder / name).is_file()), None):
        return [single], {}
    if variants := sorted(folder.glob("*.index*.json")):  # such as those of half precision
        return _indexed(folder, variants[0], on_error)
    for place in (folder, folder / "pytorch_model_fsdp_0", folder / "model"):
        if place.is_dir() and (is_distributed(place) or is_parallel(place)):
            return [place], {}
    if (folder / _PIPELINE).is_file():
        part = next((folder / name for name in _DENOISERS if (folder / name).is_dir()), None)
        if part is None:
            raise InputError(f"{folder} is a pipeline without {', '.join(_DENOISERS)}. Pass the folder of one part.")
        return _in_folder(part, on_error)
    if (folder / "adapter_config.json").is_file():
        raise InputError(
            f"{folder} must hold full weights; got an adapter. Pass it after its base to `saddlescope spectra`, or "
            "merge it first: PeftModel.merge_and_unload(), then save_pretrained."
        )
    require_known(folder)
    found = weight_files(folder)
    if len(found) != 1:
        names = first_few([file.name for file in found]) if found else "none"
        deeper = sorted(f"{folder / one.name}" for one in folder.iterdir() if one.is_dir() and _holds_weights(one))
        cure = f"Pass one of its folders: {first_few(deeper)}." if deeper and not found else "Name the file."
        raise InputError(f"{folder} must hold {' or '.join(_SINGLE[:2])}, or one file of weights; got {names}. {cure}")
    return _weight_files(found[0]), {}


def weight_files(folder: Path) -> list[Path]:
    """Return the files in a folder that may hold weights, but for those of the state of training."""
    files = sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIXES))
    return [file for file in files if not _TRAINER.fullmatch(file.name)]


def _holds_weights(folder: Path) -> bool:
    return is_distributed(folder) or any(file.name.endswith(SUFFIXES) for file in folder.iterdir())


def _indexed(folder: Path, index: Path, on_error: Callable[[str], None]) -> tuple[list[Path], dict[str, str]]:
    indexed = read_json(index).get("weight_map")
    if not isinstance(indexed, dict) or not all(isinstance(file, str) for file in indexed.values()):
        raise InputError(f"{index} must have a weight_map from tensors to files; got none. Fetch it again.")
    shards = sorted(set(indexed.values()))
    if foreign := [shard for shard in shards if Path(shard).name != shard]:
        raise InputError(f"{index} must name files of its own folder; got {foreign[0]!r}.")
    if missing := [shard for shard in shards if not (folder / shard).is_file()]:
        on_error(f"{folder} must hold all {len(shards)} shards of its index; got none of {first_few(missing)}.")
    present = [shard for shard in shards if shard not in missing]
    return [file for shard in present for file in _weight_files(folder / shard)], indexed


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object; raise InputError for anything else."""
    try:
        value = parse_json(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file} must be JSON; got a file that cannot be read ({first_line(error)}).") from error
    if not isinstance(value, dict):
        raise InputError(f"{file} must hold a JSON object; got {type(value).__name__}.")
    return value


def _model_name(stored: str) -> str:
    return canonical_name(stored).removeprefix("module.")  # once: a model may have a submodule of that name


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names as numbers: tensors in files are in alphabetical order."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _hash(tensor: Tensor, parts: Iterable[Tensor]) -> str:
    """Hash the type and shape of a tensor, and parts of its bytes."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    for part in parts:
        digest.update(part.numpy().data)
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


def _sampled(content: Tensor) -> Iterator[Tensor]:
    """Yield pieces that are evenly spaced from the first bytes to the last ones."""
    last = max(0, len(content) - _PIECE)
    for start in sorted({last * number // (_PIECES - 1) for number in range(_PIECES)}):
        yield content[start : start + _PIECE]


def require_finite(path: Path, name: str, tensor: Tensor) -> None:
    """Raise InputError for a tensor without a spectrum.

    Raises:
        InputError: the tensor has NaN or infinite entries, or a type of quantized models.
    """
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind not in UNIT_ROUNDOFF:
        raise InputError(
            f"{path} must hold weights of type {', '.join(UNIT_ROUNDOFF)}; got {kind} in {name}. "
            f"{'Store real numbers' if tensor.is_complex() else 'Dequantize the model first'}."
        )
    if not all_finite(tensor):
        raise InputError(f"{path} must hold finite weights; got NaN or infinity in {name}. Use an earlier checkpoint.")
