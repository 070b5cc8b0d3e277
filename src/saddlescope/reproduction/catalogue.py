"""Names, titles and sources of all entries, read from the files alone: nothing is imported to list them."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

SIZES = ("quick", "default", "paper")
"""Sizes of the parameters of an entry."""


class Heading(NamedTuple):
    """First line of an entry's docstring, `Title   (Place)`, and the citation of its paper."""

    title: str
    source: str
    paper: str


@cache
def _files() -> dict[str, Path]:
    """Return the file of every entry by its name, `paper/entry`: a module, or the `__init__` of a package."""
    folder = Path(__file__).parents[1] / "papers"
    modules = [file for file in folder.glob("*/*.py") if file.stem != "__init__"]
    packages = [file for file in folder.glob("*/*/__init__.py") if file.parent.name != "shared"]
    found = {f"{file.parent.name}/{file.stem}": file for file in modules}
    found |= {f"{file.parent.parent.name}/{file.parent.name}": file for file in packages}
    return {name.replace("_", "-"): found[name] for name in sorted(found)}


@cache
def entry_names() -> tuple[str, ...]:
    """Return the names of all entries, `paper/entry`."""
    return tuple(sorted(_files()))


@cache
def entry_heading(name: str) -> Heading:
    """Return the heading of an existing entry, read from its file."""
    with _files()[name].open(encoding="utf-8") as file:
        return parse_heading(name, file.readline().strip().strip('"'))


def parse_heading(name: str, line: str) -> Heading:
    """Return the heading that the first line of an entry's docstring gives."""
    title, _, source = line.removesuffix(")").rpartition("   (")
    paper = name.partition("/")[0].replace("-", "_")
    return Heading(title, source, import_module(f"saddlescope.papers.{paper}").CITATION)
