"""Entries: one module or package per figure or theorem, their parameters in three sizes, and their contract.

An entry is a module or package in a folder of `saddlescope.papers` with

- a docstring whose first line is its title, ending in the place in the paper in brackets,
- `Params`: a frozen dataclass with a default for every field, validated in `__post_init__` by `InputError`, one comment
  per field, and class methods `quick()` (seconds) and `paper()` (the paper's own size),
- `run(params, context) -> xr.Dataset`: the only function that simulates; imports JAX and PyTorch inside,
- `claims`: a tuple of `Claim`,
- `figures(run) -> list[Figure]`: the pictures, from the stored run alone,

and, optionally, for sweeps,

- `metrics`: a tuple of `Metric`, numbers of a run worth a map over its parameters,
- `run_many(points, context) -> list[xr.Dataset]`: the runs of many Params at once, such as one batch of flows; each
  equals the `run` of its point to the entry's tolerance.

Importing an entry loads NumPy and xarray, but no JAX and no PyTorch.
"""

import ast
import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import xarray as xr

from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.reprs import ReprMixin, Table, brief
from saddlescope.plot.figure import Figure
from saddlescope.reproduction import catalogue
from saddlescope.reproduction.catalogue import SIZES
from saddlescope.reproduction.claim import Claim, Verdict
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.metric import Metric


@dataclasses.dataclass(frozen=True, repr=False)
class Entry(ReprMixin):
    """One reproduction: its name, its place in the paper, and the contents of its module."""

    name: str
    title: str
    source: str
    paper: str
    params_type: type
    run: Callable[[Any, RunContext], xr.Dataset]
    claims: tuple[Claim, ...]
    figures: Callable[[xr.Dataset], list[Figure]]
    metrics: tuple[Metric, ...] = ()
    run_many: Callable[[Sequence[Any], RunContext], list[xr.Dataset]] | None = None

    def __repr__(self) -> str:
        return f"Entry({self.name!r}: {brief(self.title)}; {self.source}; {len(self.claims)} claims)"

    def _table(self) -> Table:
        from saddlescope.reproduction.formatting import bounds

        rows = ((one.name, one.says, bounds(one.low, one.high, one.unit), one.source) for one in self.claims)
        return ("claim", "says", "holds when", "source"), rows

    def params(self, size: str = "default", settings: Mapping[str, str] | None = None) -> Any:
        """Return the parameters of one size, changed by `settings` (field name to text, as typed).

        Raises:
            InputError: unknown size or field (with the nearest names), or a value that does not fit the field.
        """
        if size not in SIZES:
            raise unknown("size", size, SIZES)
        base = self.params_type() if size == "default" else getattr(self.params_type, size)()
        return dataclasses.replace(base, **{field: self.value(field, text) for field, text in (settings or {}).items()})

    def value(self, field: str, text: str) -> Any:
        """Return a parameter's value from its text, as typed after `--set`.

        Raises:
            InputError: unknown field (with the nearest names), or a value that does not fit it.
        """
        hints = _hints(self.params_type)
        if field not in hints:
            raise unknown(f"parameter of {self.name}", field, hints)
        return _parse(field, text, hints[field])

    def judge(self, run: xr.Dataset) -> tuple[Verdict, ...]:
        """Return the verdicts of all claims on a stored run."""
        return tuple(claim.judge(run) for claim in self.claims)


@cache
def _hints(params_type: type) -> dict[str, Any]:
    """Return the annotated types of the fields of a Params class."""
    return typing.get_type_hints(params_type)


def _parse(field: str, text: str, hint: Any) -> object:
    """Return a field's value from the text typed on the command line, by the field's annotated type."""
    try:
        if hint is str or typing.get_origin(hint) is typing.Literal:
            value: object = text
        elif hint is bool:
            value = {"true": True, "false": False}[text.lower()]
        elif hint in (int, float):
            value = hint(text)
        elif typing.get_origin(hint) is tuple:
            element = typing.get_args(hint)[0]
            value = tuple(_parse(field, part.strip(), element) for part in text.strip("()[] ,").split(","))
        else:
            raise TypeError(f"Params field {field!r} has type {hint!r}, which the command line cannot set.")
    except (ValueError, KeyError) as error:
        wanted = getattr(hint, "__name__", str(hint))
        example = {"int": "3", "float": "1e-8", "bool": "true", "tuple": "1e-2,1e-8"}.get(wanted, "a value")
        raise InputError(f"{field} must be of type {wanted}, such as {field}={example}; got {text!r}.") from error
    if typing.get_origin(hint) is typing.Literal and value not in typing.get_args(hint):
        raise unknown(f"choice for {field}", text, typing.get_args(hint))
    return value


@cache
def find_entry(name: str) -> Entry:
    """Return the entry of that name.

    Raises:
        InputError: it does not exist; the message has the nearest names.
    """
    if name not in catalogue.entry_names():
        raise unknown("entry", name, catalogue.entry_names())
    module = import_module(f"saddlescope.papers.{name.replace('-', '_').replace('/', '.')}")
    return Entry(
        name=name,
        **catalogue.parse_heading(name, (module.__doc__ or "").partition("\n")[0])._asdict(),
        params_type=module.Params,
        run=module.run,
        claims=module.claims,
        figures=module.figures,
        metrics=getattr(module, "metrics", ()),
        run_many=getattr(module, "run_many", None),
    )


def field_comments(params_type: type) -> dict[str, str]:
    """Return the comment beside each field of a Params class, inherited or not."""
    import inspect

    comments: dict[str, str] = {}
    for owner in reversed(params_type.__mro__):
        if not dataclasses.is_dataclass(owner):
            continue
        source = inspect.getsource(owner)
        lines = source.splitlines()
        for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign):
                _, _, comment = lines[node.end_lineno - 1][node.end_col_offset :].partition("#")  # type: ignore[operator]
                comments[ast.unparse(node.target)] = comment.strip()
    return comments
