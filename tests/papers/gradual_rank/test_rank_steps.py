"""Steps of single heads: the statistics of the claims by hand, and what refutes them."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.papers.gradual_rank import rank_steps
from saddlescope.reproduction import find_entry

SCALES = np.array([1.0, 0.1, 0.01])


def made(*, large=0, small=24, within=0.1, between=1.0, tilt=1):
    """Two seeds, two layers of six heads: how many of the 24 updates have a step, and when heads take theirs.

    The second seed has one more or one less, since seeds that agree to the last bit show no spread.
    """
    counts = np.zeros((3, 2, 24), int)
    for k, most in enumerate((large, (large + small) // 2, small)):
        counts[k, 0, :most] = 1
        counts[k, 1, : most - tilt if most else tilt] = 1
    counts = counts.reshape(3, 2, 2, 6, 2)
    shift = within * np.arange(6)[:, None] + between * np.arange(2)[:, None, None] + np.zeros(2)
    times = np.where(counts > 0, 100 * np.exp(shift), np.nan)
    dims = ("scale", "seed", "layer", "head", "product")
    both = xr.DataArray(np.stack([counts, counts]), dims=("clock", *dims))
    run = xr.Dataset({"rank_steps": both, "first_step": (dims, times)}, coords={"scale": SCALES})
    run = run.assign_coords(clock=["steps", "rates"], layer=[1, 2], seed=[1, 2], product=["KQ", "VO"])
    return run.assign(train_loss=(("scale", "seed", "epoch"), np.tile([[2.0, 0.5], [2.0, 0.51]], (3, 1, 1))))


def both(*names):
    """The claims of these names in both clocks."""
    return {f"{name}-{clock}" for name in names for clock in ("steps", "rates")}


def outcomes(run):
    return {verdict.claim: str(verdict.outcome) for verdict in find_entry("gradual-rank/rank-steps").judge(run)}


def test_what_theory_expects_is_reproduced():
    assert set(outcomes(made(between=10.0)).values()) == {"reproduced"}


@pytest.mark.parametrize(
    ("change", "refuted"),
    [
        ({"large": 20}, both("ramps")),
        ({"small": 4}, both("stairs")),
        ({"large": 24, "small": 0}, both("ramps", "stairs", "falls")),
        ({"within": 1.0, "between": 0.0}, {"together"}),
    ],
)
def test_each_claim_can_be_refuted(change, refuted):
    found = outcomes(made(**{"between": 10.0} | change))
    assert {name for name, outcome in found.items() if outcome == "refuted"} == refuted


def test_the_share_falls_over_decades():
    for falls in (claim for claim in rank_steps.claims if claim.name in both("falls")):
        assert falls.judge(made(large=0, small=24)).value == pytest.approx(-(24 + 22) / 24 / 4)  # two decades


def test_distances_are_ratios_of_times():
    """Six heads at 0, d, ..., 5 d in log time: two of them are 7 d / 3 apart on average; the other layer is D away."""
    (together,) = (claim for claim in rank_steps.claims if claim.name == "together")
    D, d = 10.0, 0.2
    assert together.judge(made(within=d, between=D, tilt=0)).value == pytest.approx(7 * d / 3 / D)


def test_without_steps_nothing_is_said_of_their_times():
    (together,) = (claim for claim in rank_steps.claims if claim.name == "together")
    assert together.judge(made(small=1)).outcome == "undecided"
    assert outcomes(made(small=1))["together"] == "not tested"  # its prerequisite fails


def test_the_quick_run_counts_what_it_finds(quick_run):
    run = quick_run("gradual-rank/rank-steps").run
    steps, rates = run.clocks.values
    np.testing.assert_array_equal(steps, run.step)
    assert np.all(np.diff(rates) > 0)
    warmup = steps <= run.attrs["steps_per_epoch"]  # in the first epoch the rate rises by as much each step
    np.testing.assert_allclose(rates[warmup], (steps * (steps + 1) / 2)[warmup])
    np.testing.assert_array_equal(run.rank_steps.sel(clock="steps") > 0, np.isfinite(run.first_step))
    assert float(run.first_step.max()) <= float(run.step[-1])
    assert int(run.rank_steps.sum()) > 0
