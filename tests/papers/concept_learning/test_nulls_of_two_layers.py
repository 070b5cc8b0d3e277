"""Runs without an effect: the statistics of the two-layer entries find none in them, and find it where it is."""

from functools import partial

import numpy as np
import pytest
import xarray as xr
from tests.null_runs import assert_detects

STARTS = 200


def weakest(rng, unlearned):
    """w_11 of 1024 starts by D.2 and by steps in U, with A and A², negative or unlearned in a share of them."""
    ends = np.ones((2, 2, 1024))
    ends[0, 1, rng.random(1024) < unlearned] = -0.02
    ends[1, 1, rng.random(1024) < unlearned] = 0.1
    coords = {"map": ["D.2", "U"], "moment": ["A", "A^2"]}
    run = xr.Dataset({"uniform_weakest": (("map", "moment", "uniform_start"), ends)}, coords)
    return run.assign(uniform_loss=run.uniform_weakest, lost_loss=0.245)


def rises(rng, returns, positive, visible, often=0.5):
    """Rises of random starts, of which some turn back, have w_12 > 0, and rise visibly at the smallest scale."""
    share = np.array([often, visible])[:, None]
    rise = np.where(rng.random((2, 2, 4096)) < share, 0.02, 0.0)
    dims = ("law", "scale", "sample")
    return xr.Dataset(
        {
            "rise": (dims, rise),
            "positive": (dims, rng.random(rise.shape) < positive),
            "output_rise": ("recorded", np.where(rng.random(1024) < 0.5, 0.02, 0.0)),
            "output_fall": ("recorded", np.where(rng.random(1024) < returns, 0.05, 0.0)),
        },
        {"law": ["normal", "positive"], "scale": [0.1, 1e-5]},
    )


def late(rng, power, spread):
    """Stage times log(1/scale) / (2 a), and errors of the prediction without noise that go as scale^power."""
    scales, a = np.array([1e-1, 1e-3, 1e-5]), np.array([0.34, 0.75, 1.6])
    found = np.log(1 / scales)[:, None, None] / (2 * a) * np.ones((3, STARTS, 1))
    errors = rng.lognormal(0, 1, (STARTS, 1)) / a
    errors = errors * (scales**power)[:, None, None] * rng.lognormal(0, spread, (3, STARTS, 1))
    dims = ("scale", "start", "concept")
    run = xr.Dataset({"found_time": (dims, found), "bare_time": (dims, found - errors)}, {"scale": scales})
    return run.assign(strength=("concept", a), noise_share=(dims, 0 * found))


def in_proportion(rng):
    """Errors in proportion to the times fall in no relation to them."""
    run = late(rng, 0.0, 0.1)
    return run.assign(bare_time=run.found_time * rng.normal(1, 0.05, run.found_time.shape))


def moments(rng, powers):
    samples = np.array([100, 1000, 10_000, 100_000])
    errors = samples[:, None] ** -rng.choice(powers) * rng.lognormal(0, 0.3, (4, 16))
    return xr.Dataset({"moment_error": (("samples", "draw"), errors)}, {"samples": samples})


def ordered(rng, share):
    counts, cells = rng.binomial(1024, share, (2, 4, 2)), ("data", "scale")
    variables = {"ordered": (cells, counts[0]), "small": (cells, counts[1]), "starts": (cells, np.full((4, 2), 1024))}
    return xr.Dataset(variables, {"data": list("abcd"), "scale": [0.1, 1e-3]})


FALSE_RISES, TRUE_RISES = partial(rises, returns=0.5, positive=0.5, visible=0.01), partial(rises, visible=0, often=0.9)


@pytest.mark.parametrize(
    ("entry", "claim", "null", "effect"),
    [
        ("figure-10", "authors-law-squared", partial(weakest, unlearned=0.49), partial(weakest, unlearned=0.6)),
        ("figure-10", "with-A-squared", partial(weakest, unlearned=0.49), partial(weakest, unlearned=0.6)),
        *(("figure-5", claim, FALSE_RISES, partial(TRUE_RISES, returns=0.999, positive=0.99))
          for claim in ("reversal-often", "by-sign")),
        ("equation-4-3", "noise-omitted", in_proportion, partial(late, power=0.0, spread=0.005)),
        ("theorem-4-1", "moments", partial(moments, powers=[0.0, 0.25, 1.0]), partial(moments, powers=[0.5])),
        ("assumptions", "order", partial(ordered, share=0.98), partial(ordered, share=0.999)),
        ("assumptions", "minor-small", partial(ordered, share=0.97), partial(ordered, share=0.994)),
    ],
)  # fmt: skip
def test_effects_of_two_layers(entry, claim, null, effect):
    assert_detects(f"concept-learning/{entry}", claim, null=null, effect=effect)
