"""Faults in entries of your own files: one sentence that names the line, and nothing stored outside its folder."""

from pathlib import Path

import pytest

from saddlescope import cli
from saddlescope.reproduction import catalogue
from saddlescope.reproduction.entry import find_entry

GOOD = 'return xr.Dataset({"a": ("n", [1.0])})'
TEXT = """
import sys
import numpy as np, xarray as xr
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, param
class Params(EntryParams):
    seed: int = param(0, "seed")
claims = Claims()
FIRST
def run(params, context):
    RUN
@claims.extension("c", "A claim", "s", low=0.5)
def c(run):
    "q"
    CLAIM
def figures(run):
    FIGURES
entry = Entry("own/entry", "An entry", params=PARAMS, run=run, claims=claims, figures=figures)
"""


@pytest.fixture
def call(tmp_path, monkeypatch, capsys, types_unchecked):
    """Return a function that runs a command line on an entry with some of its code replaced."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "_loaded", {})

    def run(line, **code):
        text = TEXT
        whole = {"FIRST": "", "RUN": GOOD, "CLAIM": "return Estimate(1.0)", "FIGURES": "return []", "PARAMS": "Params"}
        for name, part in (whole | code).items():
            text = text.replace(name, part)
        Path("own.py").write_text(text)
        with types_unchecked():
            status = cli.main([*line.split(), "--entry", "own.py"])
        return status, capsys.readouterr().err.strip()

    yield run
    find_entry.cache_clear()


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ({"FIRST": "sys.exit(0)"}, "own.py cannot be imported: it ends the process"),
        ({"FIRST": "1 / 0"}, "own.py cannot be imported: ZeroDivisionError: division by zero"),
        ({"PARAMS": "3"}, "own.py must give the entry own/entry a subclass of EntryParams as params; got 3."),
        ({"PARAMS": "dict"}, "subclass of EntryParams as params; got <class 'dict'>."),
        ({"RUN": "sys.exit(0)"}, "own.py, line 10: it ends the process"),
        ({"RUN": "raise ValueError('two\\nlines')"}, "own.py, line 10: ValueError: two. Mend the entry own/entry."),
        ({"RUN": "return run(params, context)"}, "own.py, line 10: RecursionError: maximum recursion depth exceeded"),
        ({"RUN": "raise MemoryError"}, "The memory does not suffice"),
        ({"RUN": "pass"}, "The run of own/entry must return an xarray.Dataset; got None."),
        ({"RUN": "return xr.DataArray([1.0])"}, "must return an xarray.Dataset; got <xarray.DataArray"),
        ({"RUN": "return xr.Dataset({'a': ('n', [1j])})"}, "a must be real to be stored; got complex numbers."),
        ({"RUN": "return xr.Dataset({'a/b': ('n', [1.0])})"}, "cannot be stored as netCDF: Forward slashes"),
        ({"RUN": "return xr.Dataset({'a': ('n', [{}])})"}, "cannot be stored as netCDF: "),
        ({"RUN": "return xr.Dataset({'a': ('n', ['\\ud800'])})"}, "cannot be stored as netCDF: 'utf-8' codec"),
        ({"RUN": "return xr.Dataset(attrs={'x': None})"}, "cannot be stored as netCDF: Invalid value for attr 'x'"),
        ({"RUN": "return xr.Dataset(attrs={'entry': 1})"}, "The attributes entry are reserved for provenance"),
        ({"RUN": "context.cached('../../x', xr.Dataset)"}, "The name of a part must be a file name; got '../../x'."),
        ({"CLAIM": "return run.absent"}, "own.py, line 14: AttributeError: 'Dataset' object has no attribute 'absent'"),
        ({"CLAIM": "return Estimate(np.ones(3))"}, "own.py, line 14: TypeError"),
        ({"CLAIM": "return 1.0"}, "the claim c must return an Estimate; got 1.0"),
        ({"CLAIM": "sys.exit(0)"}, "own.py, line 14: it ends the process"),
    ],
)
def test_a_fault_is_one_sentence_and_stores_nothing(code, sentence, call):
    status, err = call("run own/entry", **code)
    assert (status, err.count("\n")) == (2, 0), err
    assert sentence in err
    assert not list(Path().rglob("*.nc"))


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ("return []", "own/entry draws no picture. Let its `figures` return one."),
        ("return [1]", "own/entry must draw a list of Figure; got 1."),
        ("return None", "'NoneType' object is not iterable"),
        ("sys.exit(3)", "own.py, line 16: it ends the process"),
        ("return [1 / 0]", "own.py, line 16: ZeroDivisionError: division by zero. Mend the entry own/entry."),
    ],
)
def test_pictures_that_cannot_be_drawn_are_skipped_in_a_sentence(figures, sentence, call):
    assert call("run own/entry", FIGURES=figures)[0] == 0
    status, err = call("gallery results", FIGURES=figures)
    assert status == 2
    assert sentence in err
    assert "Traceback" not in err
    assert not Path("site").exists()


def test_metrics_below_the_entry_are_refused(call, monkeypatch):
    monkeypatch.setitem(globals(), "TEXT", f"{TEXT}metrics = (1,)\n")
    assert call("run own/entry") == (2, "own.py must define metrics above its Entry, which reads them.")


def test_an_uncertainty_of_nan_leaves_a_claim_undecided(call):
    assert call("run own/entry", CLAIM="return Estimate(1.0, float('nan'))")[0] == 0
    assert call("check results", CLAIM="return Estimate(1.0, float('nan'))")[0] == 3
