"""Tables of spectra and the picture of single matrices: exact numbers, and words where there is none."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.plot import draw_matplotlib
from saddlescope.plot.matrix_rank_figure import matrix_rank_figure
from saddlescope.plot.rank_tables import ABSENT, UNMEASURABLE, layer_table, matrix_table, step_table

LAYERS, HEADS, MATRICES = ("a", "b", "c"), 2, ("layers.0.up", "layers.1.up", "head")


@pytest.fixture
def ds():
    """Head h of layer a has stable rank h + 1; layer b is below the noise floor, c was not measured."""
    labels = ("step", "layer", "head", "product")
    shape = (2, 3, HEADS, 2)
    rank = np.broadcast_to(np.arange(1.0, HEADS + 1)[:, None], shape).copy()
    rank[:, 1:] = np.nan
    floor = np.full(shape, 1e-6)
    floor[:, 2] = np.nan
    single = np.array([[1.0, 2.0, 4.0], [2.0, np.nan, np.nan]])
    return xr.Dataset(
        {
            "stable_rank": (labels, rank),
            "effective_rank": (labels, 2 * rank),
            "noise_floor": (labels, floor),
            "measurable": (labels, ~np.isnan(rank)),
            "update_norm": (labels, np.where(np.isnan(floor), np.nan, 3.0) * np.array([1, 2])[:, None, None, None]),
            "initial_spectrum": ((*labels[1:], "index"), np.full((*shape[1:], 4), 5.0)),
            "initial_norm": (labels[1:], np.full(shape[1:], 10.0)),
            "matrix_stable_rank": (("step", "matrix"), single),
            "matrix_effective_rank": (("step", "matrix"), 3 * single),
            "matrix_noise_floor": (("step", "matrix"), np.array([[1e-6] * 3, [1e-6, 1e-6, np.nan]])),
            "matrix_measurable": (("step", "matrix"), ~np.isnan(single)),
            "matrix_update_norm": (("step", "matrix"), np.full((2, 3), 4.0)),
            "matrix_initial_spectrum": (("matrix", "index"), np.full((3, 4), 2.0)),
            "matrix_initial_norm": (("matrix",), np.full(3, 8.0)),
        },
        coords={"step": [10, 20], "layer": list(LAYERS), "product": ["KQ", "VO"], "matrix": list(MATRICES)},
    )


def test_a_row_a_layer_and_product(ds):
    table = layer_table(ds)
    assert len(table.rows) == 6
    assert table.rows[0] == ("a", "W_K W_Qᵀ", "2 of 2", 1.5, 1.0, 2.0, 3.0, 4.0, pytest.approx(0.6))
    assert table.rows[3] == ("b", "W_V W_Oᵀ", "0 of 2", UNMEASURABLE, "", "", "", 4.0, "")
    assert table.rows[4] == ("c", "W_K W_Qᵀ", "0 of 0", ABSENT, "", "", "", "", "")
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_a_row_a_step(ds):
    table = step_table(ds)
    assert table.rows[1] == (20, 1.5, 1.5, pytest.approx(0.6), pytest.approx(0.6))
    nothing = step_table(ds.assign(stable_rank=ds.stable_rank * np.nan))
    assert nothing.rows[0][1:3] == (UNMEASURABLE, UNMEASURABLE)


def test_checkpoints_whose_steps_are_not_known_are_reported_by_name(ds):
    assert step_table(ds).columns[0] == "step"
    named = ds.assign_coords(step=ds.step.assign_attrs(long_name="checkpoint"), checkpoint=("step", ["x/one", "two"]))
    table = step_table(named)
    assert table.columns[0] == "checkpoint"
    assert [row[0] for row in table.rows] == ["one", "two"]


def test_a_row_a_matrix(ds):
    table = matrix_table(ds)
    assert table.rows[0] == ("layers.0.up", 2.0, 6.0, 16.0, 0.5)
    assert table.rows[1] == ("layers.1.up", UNMEASURABLE, "", 16.0, "")
    assert table.rows[2] == ("head", ABSENT, "", "", "")


def test_matrices_of_one_kind_are_one_curve_over_depth(ds):
    figure = matrix_rank_figure(ds.isel(step=[0]))
    update, initial = figure.panels
    assert [line.label for line in update.marks] == ["layers.*.up", "head"]
    assert update.marks[0].x.tolist() == [1, 2]
    assert update.marks[0].y.tolist() == [1, 2]
    assert update.marks[1].style == "points"
    assert initial.marks[0].y.tolist() == [16, 16]
    assert draw_matplotlib(figure).axes
