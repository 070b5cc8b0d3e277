"""Names, titles and sources of all entries, read from the files alone: no entry is imported to list them."""

import ast
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from saddlescope._shared.errors import InputError

if TYPE_CHECKING:
    from saddlescope.reproduction.entry import Entry

SIZES = ("quick", "default", "reduced", "paper")
"""Sizes of the parameters of an entry; `reduced`, the paper's experiment scaled down, is not one of every entry."""

OWN = "saddlescope_entries_"
"""Beginning of the module names of your own files."""

_PACKAGE = Path(__file__).parents[1]
_PAPERS = _PACKAGE / "papers"
_TOYS = tuple(_PACKAGE / f"explore/toys/{name}.py" for name in ("scale", "leaving", "concepts", "escape", "attention"))
TOYS = "Toys of the live page"
"""Heading of the entries made for `saddlescope explore`, in place of a citation."""


class Heading(NamedTuple):
    """Title of an entry, its place in the paper, and the citation of the paper."""

    title: str
    source: str
    citation: str


class _Declared(NamedTuple):
    """An entry declared in a file."""

    module: str
    heading: Heading


_loaded: dict[str, _Declared] = {}  # entries of other files, by `load_entries`


@cache
def _declared() -> dict[str, _Declared]:
    """Return the entries of the papers by name: from the calls `Entry("name", "title", source=...)`."""
    patterns = ("*/*.py", "*/*/__init__.py", "*/extensions/*.py", "*/extensions/*/__init__.py")
    found: dict[str, _Declared] = {}
    for file in sorted({file for pattern in patterns for file in _PAPERS.glob(pattern)}):
        found |= _declared_in(file, partial(_citation, file.relative_to(_PAPERS).parts[0]))
    return found


@cache
def _toys() -> dict[str, _Declared]:
    """Return the entries of the live page by name; they are in no list, tally or sweep of the papers."""
    return {name: toy for file in _TOYS for name, toy in _declared_in(file, lambda: TOYS).items()}


def _citation(paper: str) -> str:
    return import_module(f"saddlescope.papers.{paper}").CITATION


def _declared_in(file: Path, citation: Callable[[], str]) -> dict[str, _Declared]:
    text, found = file.read_text(encoding="utf-8"), {}
    if (start := text.find(" = Entry(")) < 0:
        return {}
    parts = file.relative_to(_PACKAGE).with_suffix("").parts
    module = ".".join(("saddlescope", *parts)).removesuffix(".__init__")
    for statement in ast.parse(text[text.rfind("\n", 0, start + 1) + 1 :]).body:
        call = statement.value if isinstance(statement, ast.Assign) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Entry":
            name, title = (ast.literal_eval(value) for value in call.args)
            source = next((ast.literal_eval(k.value) for k in call.keywords if k.arg == "source"), "")
            found[name] = _Declared(module, Heading(title, source, citation()))
    return found


def entry_names() -> tuple[str, ...]:
    """Return the names of all entries, `group/entry`, without the toys."""
    return tuple(sorted([*_declared(), *_loaded]))


def toy_names() -> tuple[str, ...]:
    """Return the names of the entries made for `saddlescope explore`."""
    return tuple(_toys())


def entry_heading(name: str) -> Heading:
    """Return the heading of an existing entry."""
    return _found(name).heading


def entry_costs(name: str) -> dict[str, int]:
    """Return the measured CPU seconds of an entry by size, on one machine; empty if it was never measured."""
    return _costs().get(name, {})


@cache
def _costs() -> dict[str, dict[str, int]]:
    return json.loads(Path(__file__).with_name("costs.json").read_text("ascii"))


def own_file(name: str) -> str | None:
    """Return the file of an entry that `load_entries` has added, or None for any other."""
    declared = _loaded.get(name)
    return None if declared is None else getattr(sys.modules.get(declared.module), "__file__", None)


def entry_module(name: str) -> str:
    """Return the name of the module that declares an existing entry."""
    return _found(name).module


def _found(name: str) -> _Declared:
    return _loaded.get(name) or _declared().get(name) or _toys()[name]


def load_entries(file: str | os.PathLike[str]) -> tuple[str, ...]:
    """Import your own Python file and add the entries that it declares to the catalogue of this process.

    Args:
        file: a Python file; it is executed.

    Returns:
        The names of its entries.

    Raises:
        InputError: the file does not exist, cannot be imported, or declares no entry or one of an existing name.
    """
    from saddlescope.reproduction.entry import entries_of

    path = Path(file).resolve()
    if not path.is_file() or path.suffix != ".py":
        raise InputError(f"--entry must be an existing Python file; got '{file}'.")
    name = f"{OWN}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if loaded := tuple(entry for entry, declared in _loaded.items() if declared.module == name):
        return loaded
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # so that its classes can be pickled for worker processes
    try:
        spec.loader.exec_module(module)
        found = _own_headings(file, entries_of(module).values())
        if getattr(module, "metrics", ()) and not any(one.metrics for one in entries_of(module).values()):
            raise InputError(f"{file} must define metrics above its Entry, which reads them.")
    except (Exception, SystemExit) as error:
        from saddlescope.reproduction.own_code import described

        sys.modules.pop(name, None)
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file} cannot be imported: {described(error)}") from error
    _loaded.update({entry: _Declared(name, heading) for entry, heading in found.items()})
    return tuple(found)


def _own_headings(file: str | os.PathLike[str], entries: "Iterable[Entry[Any]]") -> dict[str, Heading]:
    """Return the headings of the entries of your own file, by name, or raise InputError."""
    entries = list(entries)
    found = {one.name: Heading(one.title, one.source, one.citation or "") for one in entries}
    if not found:
        raise InputError(f"{file} must declare an entry, such as entry = Entry(...); got none.")
    from saddlescope.reproduction.parameters import EntryParams

    for one in entries:
        if not (isinstance(one.params, type) and issubclass(one.params, EntryParams)):
            raise InputError(
                f"{file} must give the entry {one.name} a subclass of EntryParams as params; got {one.params!r}."
            )
    for name in found:
        if name in (*entry_names(), *toy_names()):
            raise InputError(f"{file} must give its entries new names; got {name!r}, which exists.")
        if name.count("/") != 1 or not name.replace("/", "").replace("-", "").isalnum():
            raise InputError(f"The name of an entry must be GROUP/NAME of letters, digits and -; got {name!r}.")
    return found
