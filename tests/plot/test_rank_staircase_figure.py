"""The picture of steps: a point for each that was planted, in the row of its head, and a table that counts them."""

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.plot import Line, Mark
from saddlescope.plot.rank_staircase_figure import staircase_figure

STEPS = np.unique(np.floor(1.3 ** np.arange(36))).astype(int)
PLANTED = {  # (layer, head, product): records at which a singular value makes its step
    (0, 0, "KQ"): (9,),
    (0, 2, "VO"): (6, 12, 18, 24),
    (1, 1, "KQ"): (8, 20),
}


def spectra(steps=STEPS):
    """Two layers of three and two heads."""
    values = np.zeros((len(steps), 2, 3, 2, 5))
    for (layer, head, product), records in PLANTED.items():
        for k, record in enumerate(records):
            rise = 1 / (1 + np.exp(-8 * (np.arange(len(steps)) - record - 0.5)))
            values[:, layer, head, ("KQ", "VO").index(product), k] = rise / (k + 1)
    values[:, 0, 1, 0, 0] = steps  # a ramp
    values[:, 1, 2] = np.nan
    dims = ("step", "layer", "head", "product")
    floors = np.where(np.isnan(values[..., 0]), np.nan, 1e-6)
    return xr.Dataset(
        {"update_spectrum": ((*dims, "index"), values), "noise_floor": (dims, floors)},
        coords={"step": steps, "layer": ["first", "second"], "product": ["KQ", "VO"]},
    )


def rasters(figure):
    return [panel for panel in figure.panels if panel.title.startswith("update of")]


def points(figure):
    """By panel, name and row of the head: the times."""
    return {
        (panel.title, line.group, round(float(y), 6)): float(x)
        for panel in rasters(figure)
        for line in panel.marks
        for x, y in zip(line.x, line.y, strict=True)
    }


def test_every_step_is_a_point_in_the_row_of_its_head():
    figure = staircase_figure(spectra())
    KQ, VO = "update of W_K W_Qᵀ", "update of W_V W_Oᵀ"
    expected = {
        (KQ, "first step", -1 / 3): 9,
        (VO, "first step", 1 / 3): 6,
        (VO, "second step", 1 / 3): 12,
        (KQ, "first step", 1.0): 8,
        (KQ, "second step", 1.0): 20,
    }
    assert rasters(figure)[0].y.names == ("first", "second")
    found = points(figure)
    for (title, kind, height), record in expected.items():
        time = found.pop((title, kind, round(height, 6)))
        assert STEPS[record] < time < STEPS[record + 1]
    assert {key[1] for key in found} == {"later steps"}
    _, raster = rasters(figure)
    later = raster.marks[2]
    assert isinstance(later, Line)
    assert (np.searchsorted(STEPS, later.x) - 1).tolist() == [18, 24]


def test_the_head_with_most_steps_is_shown_with_them():
    *_, KQ, VO = staircase_figure(spectra()).panels
    assert (KQ.title, VO.title) == ("W_K W_Qᵀ, second, head 1", "W_V W_Oᵀ, first, head 2")
    lines = [mark for mark in VO.marks if isinstance(mark, Line)]
    marks = [mark.at for mark in VO.marks if isinstance(mark, Mark)]
    assert (np.searchsorted(STEPS, marks) - 1).tolist() == [6, 12, 18, 24]
    np.testing.assert_allclose([line.y[-1] for line in lines[:4]], [1, 1 / 2, 1 / 3, 1 / 4], rtol=1e-6)
    assert np.isnan(lines[4].y).all()  # below the noise floor


def test_without_any_steps_the_largest_update_is_shown():
    ramps = spectra()
    ramps["update_spectrum"] = ramps.update_spectrum.where(False, 0.0) + xr.DataArray(STEPS, dims="step")
    ramps["update_spectrum"] = ramps.update_spectrum * xr.DataArray([[1.0, 2.0], [3.0, 1.0]], dims=("layer", "product"))
    figure = staircase_figure(ramps)
    assert figure.caption.startswith("0 of 10 ")
    assert [panel.title for panel in figure.panels] == ["W_K W_Qᵀ, second, head 0", "W_V W_Oᵀ, first, head 0"]


def test_the_table_counts():
    figure = staircase_figure(spectra())
    assert figure.caption.startswith("3 of 10 updates of a head's product have steps")
    assert figure.table is not None
    rows = {row[:2]: row[2:] for row in figure.table.rows}
    assert rows["first", "W_K W_Qᵀ"][:3] == (3, 1, 1)
    assert rows["first", "W_V W_Oᵀ"][:3] == (3, 1, 4)
    assert rows["second", "W_K W_Qᵀ"][:3] == (2, 1, 2)
    assert rows["second", "W_V W_Oᵀ"] == (2, 0, 0, "none")
    assert STEPS[9] < rows["first", "W_K W_Qᵀ"][3] < STEPS[10]


def test_with_seeds_the_first_one_is_shown():
    one = spectra()
    seeds = xr.concat([one, xr.zeros_like(one)], dim="seed").assign_coords(seed=[5, 6])
    assert points(staircase_figure(seeds)) == points(staircase_figure(one))


def test_in_another_clock_a_decaying_rate_makes_no_plateaus():
    """Let one head's update grow with the sum of a learning rate that rises and falls; points are still steps."""
    steps = np.arange(1, 101)
    clock = 50 * (1 - np.cos(np.pi * steps / 100))
    one = spectra(steps)
    one["update_spectrum"] = one.update_spectrum.fillna(0.0) * 0
    one["noise_floor"] = one.noise_floor.fillna(1e-6)
    one.update_spectrum[{"layer": 0, "head": 0, "product": 0, "index": 0}] = clock
    late = 1 / (1 + np.exp(-3 * (steps - 70.0)))
    one.update_spectrum[{"layer": 1, "head": 0, "product": 0, "index": 0}] = late
    assert staircase_figure(one).caption.startswith("2 of 12 ")
    in_rates = staircase_figure(one, clock=clock)
    assert in_rates.caption.startswith("1 of 12 ")
    (time,) = points(in_rates).values()
    assert time == pytest.approx(70, abs=0.5)


def test_too_few_records():
    with pytest.raises(InputError, match="times must be at least 5"):
        staircase_figure(spectra(STEPS[:4]))
