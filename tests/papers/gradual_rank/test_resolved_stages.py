"""Resolved stages: numbers agree, and the power of a law is measured."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.papers.gradual_rank.extensions.resolved_stages import found, predicted
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/resolved-stages"
ENTRY = find_entry(NAME)


def test_numbers_agree(run):
    assert (found(run) <= run.plateaus).all()
    assert (predicted(run, 0.0) <= run.plateaus).all()
    there = run.efolds.notnull()
    assert (there.sum("plateau") == run.plateaus).all()
    assert (there == run.found.notnull()).all()
    # A smaller scale separates all of them further.
    assert (run.efolds.diff("scale").where(there.isel(scale=0)) > 0).sum() == 2 * int(run.plateaus.sum())


@pytest.mark.parametrize(("power", "verdict"), [(-0.7, "not seen"), (-1.0, "seen")])
def test_the_power_of_a_made_up_law_and_a_ratio_are_measured(power, verdict):
    scales, total, seeds = np.array([-8.0, -16.0, -32.0, -64.0]), 1000, 3
    lost = np.round(400 * (scales / -8.0) ** power).astype(int)
    there = (np.arange(total) >= (lost + np.arange(seeds)[:, None])[..., None]).astype(float)
    made = xr.Dataset(
        {
            "found": (("dim", "seed", "scale", "plateau"), there[None]),
            "efolds": (("dim", "seed", "scale", "plateau"), 10 * there[None]),
            "plateaus": (("dim", "seed"), np.full((1, seeds), total)),
        },
        coords={"scale": scales, "dim": [4], "seed": range(seeds)},
        attrs={"level": 0.01},
    )
    measured = {verdict.claim: verdict for verdict in ENTRY.judge(made)}
    assert measured["one-over-log"].value == pytest.approx(power, abs=0.01)
    assert str(measured["one-over-log"].outcome) == verdict
    assert measured["number-two"].value == 1.0
