"""Steps of single heads: the shares of the claims by hand, and the clocks and counts of the quick run."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.reproduction import find_entry

SCALES = np.array([1.0, 0.1, 0.01])


def made(*counts):
    """Two seeds, two layers of six heads: how many of the 24 updates have a step at each scale, in both clocks.

    The second seed has one less or one more, since seeds that agree to the last bit show no spread.
    """
    steps = np.stack([[np.arange(24) < most, np.arange(24) < abs(most - 1)] for most in counts]).astype(int)
    steps = np.stack([steps.reshape(3, 2, 2, 6, 2)] * 2)
    dims = ("clock", "scale", "seed", "layer", "head", "product")
    coords = {"clock": ["steps", "rates"], "scale": SCALES, "seed": [1, 2]}
    return xr.Dataset({"rank_steps": (dims, steps), "train_loss": ("epoch", [2.0, 0.5])}, coords)


def verdicts(run):
    return {verdict.claim: verdict for verdict in find_entry("gradual-rank/rank-steps").judge(run)}


def test_shares_and_slopes_are_those_of_the_clock_with_fewer_steps():
    found = verdicts(made(0, 12, 24))
    assert found["stairs"].value == pytest.approx((24 + 23) / 48)
    assert found["falls"].value == pytest.approx(-(24 + 22) / 24 / 4)  # two decades
    assert {str(one.outcome) for one in found.values()} == {"seen"}
    run = made(0, 12, 24)
    run.rank_steps.loc[{"clock": "rates"}] = made(24, 12, 4).rank_steps.sel(clock="rates")
    found = verdicts(run)
    assert {str(one.outcome) for one in found.values()} == {"not seen"}
    assert found["stairs"].remark.startswith("training steps: 1.0")


def test_the_quick_run_counts_what_it_finds(quick_run):
    run = quick_run("gradual-rank/rank-steps").run
    steps, rates = run.clocks.values
    np.testing.assert_array_equal(steps, run.step)
    assert np.all(np.diff(rates) > 0)
    warmup = steps <= run.attrs["steps_per_epoch"]  # in the first epoch the rate rises by as much each step
    np.testing.assert_allclose(rates[warmup], (steps * (steps + 1) / 2)[warmup])
    assert int(run.rank_steps.sum()) > 0
