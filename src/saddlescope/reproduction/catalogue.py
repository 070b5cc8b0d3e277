"""Names, titles and sources of all entries, read from the files alone: no entry is imported to list them."""

import ast
import os
import sys
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple

from saddlescope._shared.errors import InputError

SIZES = ("quick", "default", "paper")
"""Sizes of the parameters of an entry."""

OWN = "saddlescope_entries_"
"""Beginning of the module names of your own files."""

_FOLDER = Path(__file__).parents[1] / "papers"


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
    """Return the entries declared in this package by name: from the calls `Entry("name", "title", source=...)`."""
    found = {}
    for file in sorted(_FOLDER.glob("*/*.py")) + sorted(_FOLDER.glob("*/*/__init__.py")):
        text = file.read_text(encoding="utf-8")
        if (start := text.find(" = Entry(")) < 0:
            continue
        parts = file.relative_to(_FOLDER.parent).with_suffix("").parts
        module = ".".join(("saddlescope", *parts)).removesuffix(".__init__")
        citation = import_module(f"saddlescope.papers.{parts[1]}").CITATION
        for statement in ast.parse(text[text.rfind("\n", 0, start + 1) + 1 :]).body:
            call = statement.value if isinstance(statement, ast.Assign) else None
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Entry":
                name, title = (ast.literal_eval(value) for value in call.args)
                source = next((ast.literal_eval(k.value) for k in call.keywords if k.arg == "source"), "")
                found[name] = _Declared(module, Heading(title, source, citation))
    return found


def entry_names() -> tuple[str, ...]:
    """Return the names of all entries, `group/entry`."""
    return tuple(sorted([*_declared(), *_loaded]))


def entry_heading(name: str) -> Heading:
    """Return the heading of an existing entry."""
    return (_loaded.get(name) or _declared()[name]).heading


def entry_module(name: str) -> str:
    """Return the name of the module that declares an existing entry."""
    return (_loaded.get(name) or _declared()[name]).module


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
    name = f"{OWN}{path.stem}"
    if (known := sys.modules.get(name)) is not None and known.__file__ == str(path):
        return tuple(entries_of(known))
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # so that its classes can be pickled for worker processes
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    found = entries_of(module)
    if not found:
        raise InputError(f"{file} must declare an entry, such as entry = Entry(...); got none.")
    for taken in set(found) & set(entry_names()):
        raise InputError(f"{file} must give its entries new names; got {taken!r}, which exists.")
    for one in found.values():
        if one.name.count("/") != 1 or not one.name.replace("/", "").replace("-", "").isalnum():
            raise InputError(f"The name of an entry must be GROUP/NAME of letters, digits and -; got {one.name!r}.")
        _loaded[one.name] = _Declared(name, Heading(one.title, one.source, one.citation))
    return tuple(found)
