"""Resolved stages: numbers agree, rests are counted, and the power of a law is measured."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.papers.gradual_rank.extensions.resolved_stages import _held, found, predicted
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


def test_rests_of_a_made_up_path_are_counted():
    times = np.linspace(0.0, 10.0, 2001)

    def rises(at, rate):
        return 1 / (1 + np.exp(-rate * (times - at)))

    quick = np.stack([rises(2, 20.0), rises(5, 20.0), rises(8, 20.0)], axis=1)
    assert _held(times, quick, 0.01) == 2  # the last span has no end
    slow = np.stack([rises(2, 20.0), rises(5, 1.0), rises(8, 1.0)], axis=1)
    assert _held(times, slow, 0.01) == 0  # each continues to rise until the next enters
    leaves = np.stack([rises(2, 20.0) - rises(8, 20.0), rises(5, 20.0)], axis=1)
    assert _held(times, leaves, 0.01) == 1  # the span that ends as a coordinate leaves does not rest
    assert _held(times, 0 * quick, 0.01) == 0


def test_plateaus_that_are_not_found_are_seen(run, outcomes):
    several = xr.concat([run, run.assign(found=0 * run.found), *(4 * [run.assign(found=run.found / 4)])], "seed")
    assert outcomes(ENTRY, several)["number-two"] == "not seen"


@pytest.mark.parametrize(("power", "verdict"), [(-0.7, "not seen"), (-1.0, "seen")])
def test_the_power_of_a_made_up_law_is_measured(run, outcomes, power, verdict):
    scales = np.array([-8.0, -16.0, -32.0, -64.0])
    total, seeds = 1000, 3
    lost = np.round(400 * (scales / -8.0) ** power).astype(int)
    there = (np.arange(total) >= (lost + np.arange(seeds)[:, None])[..., None]).astype(float)
    made = xr.Dataset(
        {
            "found": (("dim", "seed", "scale", "plateau"), there[None]),
            "efolds": (("dim", "seed", "scale", "plateau"), np.full((1, seeds, 4, total), 10.0)),
            "held": (("dim", "seed", "scale"), np.zeros((1, seeds, 4))),
            "plateaus": (("dim", "seed"), np.full((1, seeds), total)),
        },
        coords={"scale": scales, "dim": [4], "seed": range(seeds)},
        attrs=run.attrs,
    )
    measured = {verdict.claim: verdict.value for verdict in ENTRY.judge(made)}
    assert measured["one-over-log"] == pytest.approx(power, abs=0.01)
    assert outcomes(ENTRY, made)["one-over-log"] == verdict
