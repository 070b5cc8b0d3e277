"""Runs without an effect: the statistics of the two-layer entries find none in them, and find it where it is."""

import numpy as np
import pytest
import xarray as xr
from tests.null_runs import assert_detects

from saddlescope.reproduction import find_entry

STARTS = 200


def _shares(rng, three, four):
    """Counts of descents of multinomial starts: Figure 8 with these shares of three, Figure 9 of four, for A and A²."""
    share, starts = np.zeros((2, 2, 1, 2, 7)), 4096
    for k in range(2):
        share[0, k, 0, :, 1:4] = rng.multinomial(starts, [0.1, 0.9 - three[k], three[k]]) / starts
        share[1, k, 0, :, 2:5] = rng.multinomial(starts, [0.4, 0.6 - four[k], four[k]]) / starts
    coords = {
        "data": ["Figure 8", "Figure 9"], "convention": ["A", "A^2"], "divisor": [10.0], "hysteresis": [0.0, 0.003],
        "descents": np.arange(7),
    }  # fmt: skip
    run = xr.Dataset({"share": (tuple(coords), share)}, coords, {"starts": starts})
    return run.assign(concepts=("data", [3, 4]))


@pytest.mark.slow  # 200 draws of a long run
def test_frequencies_of_descents():
    same = lambda rng: _shares(rng, (0.3, 0.3), (0.03, 0.03))  # noqa: E731
    more = lambda rng: _shares(rng, (0.24, 0.65), (0.025, 0.34))  # noqa: E731
    for claim in ("triple", "quadruple"):
        assert_detects("concept-learning/authors-scripts", claim, null=same, effect=more)
    equal = lambda rng: _shares(rng, (0.45, 0.45), (0.03, 0.03))  # noqa: E731
    for claim in ("commonest-A", "commonest-A-squared"):
        assert_detects("concept-learning/authors-scripts", claim, null=equal, effect=more)


def _weakest(rng, negative, unlearned):
    """w_11 of 1024 starts by D.2 and by steps in U, with A and A²."""
    weakest = np.ones((2, 2, 1024))
    weakest[0, 1, rng.random(1024) < negative] = -0.02
    weakest[1, 1, rng.random(1024) < unlearned] = 0.1
    coords = {"map": ["D.2", "U"], "moment": ["A", "A^2"]}
    run = xr.Dataset({"uniform_weakest": (("map", "moment", "uniform_start"), weakest)}, coords)
    return run.assign(uniform_loss=run.uniform_weakest, lost_loss=0.245)


@pytest.mark.parametrize("claim", ["authors-law-squared", "with-A-squared"])
def test_most_starts(claim):
    assert_detects(
        "concept-learning/figure-10", claim, null=lambda rng: _weakest(rng, 0.49, 0.49),
        effect=lambda rng: _weakest(rng, 0.6, 0.6),
    )  # fmt: skip


def _rises(rng, returns, positive, visible):
    """Rises of random starts, of which some turn back, have w_12 > 0, and rise visibly at the smallest scale."""
    rise = np.where(rng.random((2, 2, 4096)) < 0.5, 0.02, 0.0)
    rise[:, 1] = np.where(rng.random((2, 4096)) < visible, 0.02, 0.0)
    output_rise = np.where(rng.random(1024) < 0.5, 0.02, 0.0)
    dims = ("law", "scale", "sample")
    return xr.Dataset(
        {
            "rise": (dims, rise),
            "positive": (dims, rng.random(rise.shape) < positive),
            "output_rise": ("recorded", output_rise),
            "output_fall": ("recorded", np.where(rng.random(1024) < returns, 0.05, 0.0)),
        },
        {"law": ["normal", "positive"], "scale": [0.1, 1e-5]},
    )


@pytest.mark.parametrize("claim", ["often", "reversal-often", "by-sign", "vanishes"])
def test_rises_that_have_nothing_to_do_with_the_output_or_the_sign(claim):
    assert_detects(
        "concept-learning/figure-5", claim, null=lambda rng: _rises(rng, 0.5, 0.5, 0.01),
        effect=lambda rng: _rises(rng, 0.999, 0.99, 0.0).assign(rise=lambda run: run.rise.where(run.scale < 0.1, 0.02)),
    )  # fmt: skip


def _late(rng, power, spread):
    """Stage times log(1/scale) / (2 a), and errors of the prediction without noise that go as scale^power."""
    scales, a = np.array([1e-1, 1e-3, 1e-5]), np.array([0.34, 0.75, 1.6])
    found = np.log(1 / scales)[:, None, None] / (2 * a) * np.ones((3, STARTS, 1))
    late = rng.lognormal(0, 1, (STARTS, 1)) / a
    late = late * (scales**power)[:, None, None] * rng.lognormal(0, spread, (3, STARTS, 1))
    dims = ("scale", "start", "concept")
    run = xr.Dataset({"found_time": (dims, found), "bare_time": (dims, found - late)}, {"scale": scales})
    return run.assign(strength=("concept", a), noise_share=(dims, 0 * found))


def test_errors_of_the_times_without_noise():
    entry = "concept-learning/equation-4-3"
    lasting = lambda rng: _late(rng, 0.0, 0.005)  # noqa: E731
    assert_detects(entry, "noise-lasting", null=lambda rng: _late(rng, 0.1, 0.005), effect=lasting)
    # errors in proportion to the times fall in no relation to them
    assert_detects(
        entry, "noise-omitted", effect=lasting,
        null=lambda rng: (one := _late(rng, 0.0, 0.1)).assign(
            bare_time=one.found_time * rng.normal(1, 0.05, one.found_time.shape)
        ),
    )  # fmt: skip


def _moments(rng, power):
    samples, draws = np.array([100, 1000, 10_000, 100_000]), 16
    errors = samples[:, None] ** -power * rng.lognormal(0, 0.3, (4, draws))
    return xr.Dataset({"moment_error": (("samples", "draw"), errors)}, {"samples": samples})


def test_moments_that_converge_at_another_rate():
    assert_detects(
        "concept-learning/theorem-4-1", "moments", null=lambda rng: _moments(rng, rng.choice([0.0, 0.25, 1.0])),
        effect=lambda rng: _moments(rng, 0.5),
    )  # fmt: skip


@pytest.mark.parametrize(("claim", "share"), [("order", 0.98), ("minor-small", 0.97)])
def test_shares_of_ordered_starts_at_the_bar(claim, share):
    def draw(rng, one):
        counts = rng.binomial(1024, one, (2, 4, 2))
        run = xr.Dataset({"starts": 1024}, {"data": list("abcd"), "scale": [0.1, 1e-3]})
        return run.assign({name: (("data", "scale"), counts[k]) for k, name in enumerate(("ordered", "small"))}).assign(
            starts=(("data", "scale"), np.full((4, 2), 1024))
        )

    entry = "concept-learning/assumptions"
    assert claim in {one.name for one in find_entry(entry).claims}
    assert_detects(
        entry, claim, null=lambda rng: draw(rng, share), effect=lambda rng: draw(rng, (1 + share) / 2 + 0.009)
    )
