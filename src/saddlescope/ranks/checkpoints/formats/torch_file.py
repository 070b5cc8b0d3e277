"""Files of `torch.save`, read with `weights_only=True`: nothing in a file is ever executed.

A file of a training script holds more than weights: the optimiser's state, settings, the best loss (which may be a
tensor itself), objects of its own classes. Objects become placeholders with their attributes; those of subclasses of
list and dict become lists and dicts, and modules the state dicts of their parameters and buffers. One state dict is
read, or the one that the user chooses of several, such as weights and their moving average.
"""

import io
import re
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.formats.tensor_file import Placeholder, TensorFile, first_line, require_dense
from saddlescope.ranks.module_names import first_few
from saddlescope.ranks.pickle_scan import require_plain

# Keys of the weights in files of training scripts; beside the first, Lightning's state_dict is their average.
_STATES = ("current_model_state", "state_dict", "model_state_dict", "model", "module")
_SETTINGS = ("args", "config", "hyper_parameters", "model_args")  # keys of settings; later ones take precedence
_PLAIN = (int, float, str, list, tuple, dict)
_BEFORE_1_6 = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # with which PyTorch began its files
_SWAPPED = {"state_dict": "ema_state_dict", "ema_state_dict": "state_dict"}  # by the EMAHook of mmengine, on saving
_HARMLESS = ("list", "dict", "tuple", "int", "float", "str", "bool", "frozenset")  # classes that may stand in data
_COMPRESSED = "parts of it are compressed"
_DEEPEST = 8  # dictionaries in each other
_MOST = 5 * 10**7  # bytes of names of tensors, each as often as it occurs
_OF_TRAINING = ("optim", "opt", "scheduler", "scaler", "loss", "rng", "grad", "config", "hyper", "args")


@contextmanager
def open_torch(file: Path, weights: str | None) -> Iterator[TensorFile]:
    """Open a file, mapped into memory; any error of the reader becomes one sentence.

    Args:
        file: a file of `torch.save`.
        weights: key of the state dict to read, of several.
    """
    try:
        with file.open("rb") as stored:
            filled = require_bounded(stored)
        with safe_globals([(_placeholder(name, filled.get(name)), name) for name in _foreign_classes(file)]):
            content = _with_modules(torch.load(file, map_location="cpu", weights_only=True, mmap=True))
        if isinstance(content, Placeholder):
            raise ValueError(f"GLOBAL {content.of}")
        swapped = isinstance(content, dict) and content.keys() >= {*_SWAPPED, "meta", "message_hub"}
        if swapped:
            content = {_SWAPPED.get(key, key): value for key, value in content.items()}
        tensors, states = _chosen_state(file, content, weights)
    except InputError:
        raise
    except Exception as error:  # a damaged pickle or archive can raise nearly anything
        reason, cure = _reason(file, error)
        raise InputError(
            f"{file} must be a complete file of tensors by torch.save; got one that cannot be read ({reason}), and "
            f"nothing in it was executed. {cure}"
        ) from error

    def describe(name: str) -> tuple[tuple[int, ...], str]:
        return tuple(tensors[name].shape), str(tensors[name].dtype).removeprefix("torch.")

    remarks = (f"{file} is by mmengine, which swaps state_dict and ema_state_dict: they were swapped back.",)
    yield TensorFile(
        list(tensors), describe, lambda name: tensors[name].detach(), settings=_settings(content), states=states,
        remarks=remarks if swapped else (),
    )  # fmt: skip


def _settings(content: Any) -> dict[str, Any]:
    """Return the plain values of the configuration that a training script stored beside the weights."""
    found: dict[str, Any] = {}
    for key in _SETTINGS if isinstance(content, dict) else ():
        values = content.get(key)
        values = values.attributes if isinstance(values, Placeholder) else values
        if isinstance(values, dict):
            found |= {k: v for k, v in values.items() if isinstance(k, str) and isinstance(v, _PLAIN)}
    return found


def _placeholder(name: str, filled: type | None) -> type:
    """Return a class for objects of a class that is not loaded; those of a subclass of list or dict are one."""
    if filled is None and name != "collections.defaultdict":
        return type("Placeholder", (Placeholder,), {"of": name})
    plain = list if filled is list else OrderedDict  # which may have attributes, too
    return type("Plain", (), {"__new__": lambda *_, **__: plain()})


class _Names:
    """Bytes of the names that a file asks for: those of parts that are shared add up to any multiple of its size."""

    def __init__(self, kind: str) -> None:
        self._kind, self._made = kind, 0

    def count(self, *parts: str) -> None:
        """Count a name before it is made of its parts; raise ValueError if there are more than in any file."""
        self._made += sys.getsizeof("") + sum(map(len, parts))
        if self._made > _MOST:
            raise ValueError(f"it nests {self._kind}")


def _with_modules(content: Any) -> Any:
    """Return the content of a file with modules as state dicts."""
    names = _Names("modules")
    if isinstance(content, dict):
        different = {id(value): value for value in content.values()}
        states = {key: _state_of(value, names) for key, value in different.items()}
        return {key: states[id(value)] or value for key, value in content.items()}
    return _state_of(content, names) or content


def _state_of(module: Any, names: _Names) -> dict[str, Tensor]:
    """Return the parameters and buffers of a pickled module, by the names of its state dict; none of other objects.

    Raises:
        ValueError: modules that occur many times in each other, or in themselves.
    """
    found: dict[str, Tensor] = {}
    places = [("", module)]
    while places:
        prefix, place = places.pop()
        if not isinstance(place, Placeholder):
            continue
        parameters, buffers, inner = (
            one if isinstance(one := place.attributes.get(kind), dict) else {}
            for kind in ("_parameters", "_buffers", "_modules")
        )
        dropped = place.attributes.get("_non_persistent_buffers_set") or ()
        own = {**parameters, **{name: one for name, one in buffers.items() if name not in dropped}}
        for name in (*own, *inner):
            names.count(prefix, name)
        found |= {f"{prefix}{name}": one for name, one in own.items() if isinstance(one, Tensor)}
        places += [(f"{prefix}{name}.", one) for name, one in reversed(inner.items())]
    return found


def _foreign_classes(file: Path) -> list[str]:
    """Return the names of classes in a file that PyTorch does not load; of builtins, only those of plain values."""
    with file.open("rb") as stored:
        if stored.read(2) != b"PK":
            return []
    found = (name.rpartition(".") for name in get_unsafe_globals_in_checkpoint(file))
    builtins = ("builtins", "__builtin__")
    return [f"{module}.{own}" for module, _, own in found if module not in builtins or own in _HARMLESS]


def _reason(file: Path, error: Exception) -> tuple[str, str]:
    """Return why `torch.load` refused a file, and the cure; its own message begins with advice to run the file."""
    text = str(error)
    if text == _COMPRESSED and any("/code/" in name for name in zipfile.ZipFile(file).namelist()):
        line = f"torch.save(torch.jit.load({str(file)!r}).state_dict(), 'new.pt')"
        return "a program of TorchScript", f"Convert it, if you trust it: {line}."
    if "_use_new_zipfile_serialization" in text:
        with file.open("rb") as stored:
            start = stored.read(len(_BEFORE_1_6))
        if start == _BEFORE_1_6:
            line = f"torch.save(torch.load({str(file)!r}, weights_only=True), 'new.pt')"
            return "the format of PyTorch before 1.6", f"Convert it: {line}."
        return ("another format" if start else "an empty file"), "Fetch it again."
    if found := re.search(r"GLOBAL ([\w.]+)", text):
        return f"it has an object of {found[1]}", "Save model.state_dict() alone."
    if "weights_only" in text:  # such as a list with attributes; the message advises to read the file without it
        return "it has objects that are no plain data", "Save model.state_dict() alone."
    return first_line(error), "Fetch it again, or save model.state_dict() alone."


def require_bounded(stored: io.BufferedIOBase) -> dict[str, type]:
    """Raise unless a file of `torch.save` can be read in time and memory proportional to its size.

    Returns:
        As `require_plain`.

    Raises:
        ValueError: parts of it are compressed, or larger than it.
        pickle.UnpicklingError: its pickle expands.
    """
    filled: dict[str, type] = {}
    if stored.read(2) != b"PK":  # of another format, which `torch.load` then refuses
        return filled
    size = stored.seek(0, io.SEEK_END)
    with zipfile.ZipFile(stored) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError(_COMPRESSED)
        if sum(member.file_size for member in members) > size:
            raise ValueError("its parts are larger than the file")
        for member in members:
            if member.filename.lower().endswith("data.pkl"):  # PyTorch does not distinguish cases
                filled |= require_plain(archive.read(member))
    return filled


def _chosen_state(file: Path, content: Any, weights: str | None) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return the tensors by name in the result of `torch.load`, and the keys of all state dicts, the read one first.

    Read is the one that the user has chosen; else the one under a usual key; else the top, if it holds a matrix; else
    the one value that is a state dict. A stray tensor at the top, such as the best loss, does not matter.
    """
    inner = [value for _, value in _items(content) if _is_checkpoint(value)]
    if len(inner) == 1 and not any(key in _STATES for key, _ in _items(content)):  # as of Composer
        content = inner[0]
    top = {key: value for key, value in _items(content) if isinstance(value, Tensor)}
    nested = {
        key: tensors for key, tensors in _inside(content, _DEEPEST, {}, _Names("dictionaries")).items() if tensors
    }
    matrices = {key: one for key, one in nested.items() if any(tensor.ndim > 1 for tensor in one.values())}
    states = {key: one for key, one in matrices.items() if not key.lower().startswith(_OF_TRAINING)}
    usual = next((key for key in _STATES if key in nested), None)
    if weights is not None and weights in states:
        usual = weights
    elif weights is not None and weights in dict(_items(content)):
        raise InputError(
            f"{file} must hold matrices by name under {weights}; got none, as in a list without names. Store them by "
            "the names of the model first."
        )
    elif weights is not None and len(states) > 1:
        raise InputError(f"{file} must hold {weights}; got {first_few(states)}. Pass one of them as --weights.")
    key = ""
    if usual is not None:
        found, key = nested[usual], usual
    elif top and (not matrices or any(tensor.ndim > 1 for tensor in top.values())):
        found = top
    elif len(states or matrices or nested) == 1:
        ((key, found),) = (states or matrices or nested).items()
    elif matrices or nested:
        raise InputError(
            f"{file} must hold one state dict; got {first_few(sorted(states or matrices or nested))}. Choose one by "
            "--weights, or weights=."
        )
    else:
        raise InputError(
            f"{file} must hold tensors by name, at the top or under {', '.join(_STATES)}; got "
            f"{type(content).__name__}. Save model.state_dict()."
        )
    for name, tensor in found.items():
        require_dense(file, name, tensor)
    return found, (key, *(one for one in states if one != key)) if key else ()


def _is_checkpoint(value: Any) -> bool:
    """Return True for a dictionary of a model beside a state of training."""
    keys = [key for key, one in _items(value) if isinstance(one, Mapping)]
    return any(key in _STATES for key in keys) and any(key.startswith(_OF_TRAINING) for key in keys)


def _items(content: Any) -> list[tuple[str, Any]]:
    return [(k, v) for k, v in content.items() if isinstance(k, str)] if isinstance(content, Mapping) else []


def _inside(
    place: Any, depth: int, seen: dict[tuple[int, int], dict[str, Tensor]], names: _Names
) -> dict[str, dict[str, Tensor]]:
    """Return the tensors in each value of a dictionary.

    Raises:
        ValueError: dictionaries that occur many times in each other hold more tensors than any file.
    """
    found: dict[str, dict[str, Tensor]] = {}
    for key, value in _items(place):
        found[key] = _tensors_of(value, depth, seen, names)
        for name in found[key]:
            names.count(key, name)
    return found


def _tensors_of(
    place: Any, depth: int, seen: dict[tuple[int, int], dict[str, Tensor]], names: _Names
) -> dict[str, Tensor]:
    """Return the tensors by name directly in a dictionary; or if there are none, those in its dictionaries.

    Args:
        place: the dictionary; anything else has none.
        depth: number of dictionaries in each other that are searched.
        seen: earlier results by object and depth: a dictionary may occur in another many times, or in itself.
        names: the count of names.
    """
    if (found := seen.get((id(place), depth))) is None:
        found = {key: value for key, value in _items(place) if isinstance(value, Tensor)}
        if not found and depth:
            inner = _inside(place, depth - 1, seen, names)
            found = {f"{key}.{name}": one for key, tensors in inner.items() for name, one in tensors.items()}
        seen[id(place), depth] = found
    return found
