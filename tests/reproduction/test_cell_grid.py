"""Grids of cells: computed in order or in processes, cached, joined under their values, resumed after a kill."""

import itertools

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.grid import join_cells

AXES = {"law": ("normal", "uniform"), "scale": (0.1, 0.2, 0.4), "width": (2, 8)}


def a_cell(law: str, scale: float, width: int, step: RunContext | None = None) -> xr.Dataset:
    return xr.Dataset({"size": scale * width, "path": ("time", scale * np.arange(4.0)), "law_name": law})


def test_every_cell_is_found_under_its_values(tmp_path):
    grid = RunContext(tmp_path).over(AXES, a_cell)
    assert grid["path"].dims == ("law", "scale", "width", "time")
    for law, scale, width in itertools.product(*AXES.values()):
        one = grid.sel(law=law, scale=scale, width=width)
        assert one["size"] == scale * width
        assert one["law_name"] == law
        np.testing.assert_array_equal(one["path"], scale * np.arange(4.0))


def test_a_cell_too_few_is_refused():
    parts = [a_cell(*values) for values in itertools.product(*AXES.values())]
    with pytest.raises(ValueError, match="got 11 for"):
        join_cells(parts[:-1], AXES)
    with pytest.raises(ValueError, match="at least one; got 0"):
        join_cells([], {"scale": ()})


def test_cells_of_other_lengths_are_refused_or_filled(tmp_path):
    def longer(n: int, step: RunContext) -> xr.Dataset:
        return xr.Dataset({"x": ("t", np.arange(float(n)))}, {"t": range(n)})

    with pytest.raises(ValueError, match=r"cannot align|not equal"):
        RunContext(tmp_path).over({"n": (2, 3)}, longer)
    filled = RunContext(tmp_path).over({"n": (2, 3)}, longer, join="outer")
    np.testing.assert_array_equal(filled.x, [[0, 1, np.nan], [0, 1, 2]])


def test_grids_of_one_run_are_kept_apart_by_their_names(tmp_path):
    context = RunContext(tmp_path)
    for name in ("one", "two"):
        context.over({"seed": (3,)}, lambda seed, step, name=name: xr.Dataset({"name": name}), name=name)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one,seed=3.nc", "two,seed=3.nc"]
    with pytest.raises(InputError, match="must be a file name; got 'kind=a/b'"):
        context.over({"kind": ("a/b",)}, a_cell)


def test_grids_inside_of_cells_are_kept_apart(tmp_path):
    def outer(scale: float, step: RunContext) -> xr.Dataset:
        return step.over({"seed": (3, 4)}, lambda seed, step: xr.Dataset({"product": scale * seed}))

    found = RunContext(tmp_path).over({"scale": (1.0, 10.0)}, outer)
    np.testing.assert_array_equal(found["product"], [[3, 4], [30, 40]])


def test_a_killed_grid_resumes_after_its_last_whole_cell(tmp_path):
    made: list[int] = []

    def cell(law: str, scale: float, width: int, step: RunContext) -> xr.Dataset:
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(step.cell)
        step.report(0.5, "half")
        return a_cell(law, scale, width)

    heard: list[tuple[float, str]] = []
    context = RunContext(scratch=tmp_path, report=lambda *news: heard.append(news))
    for first in (0, 4):
        made[:] = []
        with pytest.raises(KeyboardInterrupt):
            context.over(AXES, cell)
        assert made == [first + k for k in range(4)]
    made[:] = []
    whole = context.over(AXES, cell)
    assert made == [8, 9, 10, 11]
    xr.testing.assert_identical(whole, RunContext(tmp_path / "other").over(AXES, a_cell))
    fractions = [fraction for fraction, _ in heard]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert (4.5 / 12, "normal, scale 0.4, width 2, half") in [(pytest.approx(at), note) for at, note in heard]


def test_heavy_cells_take_more_of_the_progress(tmp_path):
    heard: list[float] = []
    context = RunContext(scratch=tmp_path, report=lambda fraction, note: heard.append(fraction))
    context.over({"width": (2, 8)}, lambda width, step: xr.Dataset({"width_": width}), weights=(1, 3))
    assert heard == [0, 0.25, 0.25, 1]
