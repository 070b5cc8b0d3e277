import itertools

import numpy as np
import pytest
import xarray as xr

from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.grid import cached_rows, grid_dataset, join_cells

AXES = {"law": ("normal", "uniform"), "scale": (0.1, 0.2, 0.4), "width": (2, 8)}


def a_cell(law: str, scale: float, width: int) -> xr.Dataset:
    return xr.Dataset({"size": scale * width, "path": ("time", scale * np.arange(4.0)), "law_name": law})


def in_each_cell() -> list[xr.Dataset]:
    return [a_cell(*values) for values in itertools.product(*AXES.values())]


def test_every_cell_is_found_under_its_values():
    grid = join_cells(in_each_cell(), AXES)
    assert grid["path"].dims == ("law", "scale", "width", "time")
    for law, scale, width in itertools.product(*AXES.values()):
        one = grid.sel(law=law, scale=scale, width=width)
        assert one["size"] == scale * width
        assert one["law_name"] == law
        np.testing.assert_array_equal(one["path"], scale * np.arange(4.0))


def test_a_cell_too_few_is_refused():
    with pytest.raises(ValueError, match="got 11 for"):
        join_cells(in_each_cell()[:-1], AXES)
    with pytest.raises(ValueError, match="at least one; got 0"):
        join_cells([], {"scale": ()})


def test_numbers_of_cells_and_data_sets_of_cells_make_the_same_grid():
    found = [{str(name): one[name].values for name in one} for one in in_each_cell()]
    assert grid_dataset(found, AXES, {"path": ("time",)}).equals(join_cells(in_each_cell(), AXES))


def test_a_killed_grid_goes_on_after_its_last_whole_row(tmp_path):
    made: list[int] = []

    def row(k, values, report):
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(k)
        report(1.0, "row done")
        return a_cell(*values)

    heard: list[float] = []
    context = RunContext(scratch=tmp_path, report=lambda fraction, _: heard.append(fraction))
    with pytest.raises(KeyboardInterrupt):
        cached_rows(AXES, row, context)
    made[:] = []
    with pytest.raises(KeyboardInterrupt):
        cached_rows(AXES, row, context)
    assert made == [4, 5, 6, 7]
    made[:] = []
    whole = cached_rows(AXES, lambda k, values, report: row(k - 8, values, report), context)
    assert made == [0, 1, 2, 3]
    xr.testing.assert_identical(whole, join_cells(in_each_cell(), AXES))
    assert heard == sorted(heard) == [(k + 1) / 12 for k in range(12)]
