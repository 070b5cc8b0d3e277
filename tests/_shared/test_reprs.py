"""Reprs of results: a short line and a small table, whatever their fields, and never a printed array."""

import dataclasses
import importlib
import inspect
import math
import pkgutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, get_type_hints

import equinox as eqx
import numpy as np
import pytest
import torch
import xarray as xr

import saddlescope as ss
from saddlescope._shared.reprs import ReprMixin, brief, html_table, in_line
from saddlescope.reproduction import find_entry
from saddlescope.reproduction.claim import Claims, Kind, Outcome, Verdict
from saddlescope.reproduction.runner import Reproduction

PACKAGES = ["saddlescope", *(m.name for m in pkgutil.walk_packages(ss.__path__, "saddlescope.") if m.ispkg)]
MARKUP = "<script>alert(1)</script>"
ROOM = 400  # characters of a line


def _public_classes():
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if inspect.isclass(value) and value.__module__.startswith("saddlescope"):
                found[value.__qualname__, value.__module__] = value
    return list(found.values())


CLASSES = _public_classes()
HELD = [c for c in CLASSES if dataclasses.is_dataclass(c) and not issubclass(c, eqx.Module)]
TUPLES = [
    c
    for c in CLASSES
    if issubclass(c, tuple) and not {*get_type_hints(c).values()} <= {int, float, str, Literal["KQ", "VO"]}
]
LONG = ("array", "Float", "Int[", "Int64", "Bool", "UInt", "Tensor", "Dataset", "Mapping", "dict", "Callable", "Any")


def _filled(cls):
    """Return an object of the class with large values in every field; their meaning does not matter here."""
    much = np.linspace(0.0, 1.0, 6000).reshape(20, 300)
    full = object.__new__(cls)
    for k, field in enumerate(dataclasses.fields(cls)):
        value = (much, (much,) * 50, {f"key {n}": much for n in range(50)}, MARKUP * 90, much.tolist())[k % 5]
        object.__setattr__(full, field.name, value)
    return full


@pytest.mark.parametrize("cls", HELD, ids=lambda cls: cls.__qualname__)
def test_no_class_that_holds_arrays_dumps_them(cls):
    """Find no dataclass with its own repr that holds more than a few numbers and names."""
    if not cls.__dataclass_params__.repr:
        assert issubclass(cls, ReprMixin) or "__repr__" in cls.__dict__
        return
    reported = [str(field.type) for field in dataclasses.fields(cls)]
    assert not [text for text in reported if any(word in text for word in LONG)]


@pytest.mark.parametrize("cls", [c for c in HELD if c.__repr__ is ReprMixin.__repr__], ids=lambda cls: cls.__qualname__)
def test_a_class_that_is_full_of_arrays_is_short(cls):
    full = _filled(cls)
    assert len(repr(full)) <= ROOM
    assert "\n" not in repr(full)
    if cls._table is ReprMixin._table:
        page = full._repr_html_()
        assert MARKUP not in page
        assert "0.0001" not in page  # an element


@pytest.mark.parametrize("cls", TUPLES, ids=lambda cls: cls.__qualname__)
def test_a_named_tuple_of_arrays_is_short(cls):
    assert len(repr(cls(*[(torch.zeros(40, 50),) * 30] * len(cls._fields)))) <= ROOM


T = np.linspace(0.0, 10.0, 101)
STAIRCASE = ss.find_stages(
    T, np.exp(-T), np.minimum(1e-8 * np.exp(np.stack([4 * T, 2 * T], axis=1)), 1.0), level=1e-4, time_unit="t"
)


@cache
def _escape():
    X = np.random.default_rng(0).normal(size=(3, 20)).T
    return ss.escape_directions(X, np.ones((20, 2)) / 20, depth=2, widths=4, num_starts=30, steps=80, refine=False)


def _tracked():
    model = torch.nn.TransformerEncoderLayer(16, 4, 32)
    tracker = ss.RankTracker(model, matrices=["linear1.weight"])
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.ones_like(weight)
    tracker.step()
    tracker.measure()
    return tracker


def _verdict():
    words = {"claim": f"c{MARKUP}", "statement": "s" * 999, "quantity": "q", "source": "p", "unit": ""}
    numbers = {"low": -math.inf, "high": 1.0, "value": 0.123456789, "uncertainty": 0.1}
    return Verdict(**words, **numbers, kind=Kind.EXTENSION, outcome=Outcome.HOLDS)


RESULTS = {
    "Staircase": lambda: STAIRCASE,
    "Stage": lambda: STAIRCASE.stages[1],
    "Comparison": lambda: ss.compare(STAIRCASE, STAIRCASE),
    "Spectrum": lambda: ss.spectrum(np.ones((30, 20))),
    "EscapeDirections": _escape,
    "RankTracker": _tracked,
    "RankRecords": lambda: _tracked().records,
    "Verdict": _verdict,
    "Entry": lambda: find_entry("gradual-rank/figure-2"),
    "Claim": lambda: find_entry("gradual-rank/figure-2").claims[0],
    "TokenData": lambda: ss.TokenData(np.arange(24.0).reshape(4, 3, 2), np.ones((4, 2)), np.ones(4), np.ones(2)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_short(name):
    shown = RESULTS[name]()
    line = repr(shown)
    assert line.startswith(f"{name}(")
    assert len(line) <= ROOM
    assert "array(" not in line
    if hasattr(shown, "_repr_html_"):
        page = shown._repr_html_()
        assert len(page) < 20_000
        assert MARKUP not in page
        assert "<table" in page


def test_a_staircase_shows_a_row_a_stage():
    page = STAIRCASE._repr_html_()
    assert page.count("<tr>") == len(STAIRCASE)
    assert ">2.30259<" in page
    assert "(0, 1)" in page


def test_a_comparison_names_what_was_missed_and_what_came_unpredicted():
    short = ss.Staircase(STAIRCASE.stages[:2], "t")
    assert ">missed<" not in ss.compare(STAIRCASE, STAIRCASE)._repr_html_()
    assert ">not predicted<" in ss.compare(short, STAIRCASE, until=9.0)._repr_html_()
    late = ss.Staircase((ss.Stage(0.0, 9.0, 1.0, 0, ()),), "t")
    assert ss.compare(STAIRCASE, late)._repr_html_().count(">missed<") == 2


def test_the_fastest_directions_come_first():
    found = _escape()
    page = found._repr_html_()
    assert f"{len(found.speeds)} rows in all" in page
    assert page.index(brief(np.sort(found.speeds)[-1])) < page.index(brief(np.sort(found.speeds)[-20]))


def _reproduction(measure):
    entry = find_entry("gradual-rank/figure-2")
    measure.__doc__ = "What is measured."
    claim = dataclasses.replace(entry.claims[0], name=MARKUP, statistic=measure)
    run = xr.Dataset({"x": ("t", np.zeros(9))})
    provenance = SimpleNamespace(label="quick", size="quick", settings={}, versions={})
    return Reproduction(Path("r.nc"), dataclasses.replace(entry, claims=Claims([claim])), provenance, run)


def test_a_reproduction_is_shown_with_its_verdicts(types_unchecked):
    from saddlescope.reproduction.claim import Estimate

    with types_unchecked():
        shown = _reproduction(lambda run: Estimate(math.nan, math.inf, "why"))
        assert repr(shown) == "Reproduction('gradual-rank/figure-2', quick: not judged; r.nc)"
        assert "? undecided" in shown._repr_html_()
        assert MARKUP not in shown._repr_html_()


def test_a_reproduction_of_another_version_is_shown_all_the_same(types_unchecked):
    with types_unchecked():
        shown = _reproduction(lambda run: run["loss"])
        assert "cannot be judged" in repr(shown)
        assert "lacks" in shown._repr_html_()


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        (1 / 3, "0.333333"),
        (np.float32(2), "2"),
        (10**9, "1000000000"),
        (True, "True"),
        (None, "None"),
        (np.zeros(3), "[0, 0, 0]"),
        (np.zeros(5), "float64[5]"),
        (torch.zeros(5, 2), "float32[5, 2]"),
        (np.array(["a", "b"]), "['a', 'b']"),
        ((4,), "(4,)"),
        ([], "[]"),
        (range(900), "range(0, 900)"),
        ({"a": np.zeros(9)}, "{a: float64[9]}"),
        (Outcome.FAILS, "fails"),
        (math.sqrt, "sqrt"),
        (xr.Dataset({"x": ("t", np.zeros(9))}), "Dataset(t: 9)"),
        (Path("a/b"), "a/b"),
        (b"x" * 400, "bytes(…)"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_brief(value, reported):
    assert brief(value) == reported


def test_a_table_says_where_arrays_lie_and_what_is_missing():
    @dataclasses.dataclass(frozen=True, repr=False)
    class Held(ReprMixin):
        values: np.ndarray
        broken: np.ndarray

    page = Held(np.arange(6.0), np.array([1.0, 2.0, 3.0, 4.0, math.nan, math.nan]))._repr_html_()
    assert "float64[6], 0 to 5<" in page
    assert "float64[6], 1 to 4, 2 NaN<" in page


def test_a_long_table_reports_its_length():
    page = html_table("t", ("n",), [(n,) for n in range(1000)])
    assert page.count("<tr>") == 25
    assert "… 1000 rows in all" in page


def test_everything_in_a_table_is_escaped():
    assert MARKUP not in html_table(MARKUP, (MARKUP,), [(MARKUP,), ({MARKUP: MARKUP},)])


def test_fields_beyond_the_room_are_counted():
    line = in_line("Name", [(f"field{n}", "x" * 60) for n in range(20)])
    assert len(line) <= ROOM
    assert line.endswith("more)")
