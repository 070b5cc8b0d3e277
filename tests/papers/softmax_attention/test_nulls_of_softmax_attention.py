"""Statistics of softmax-attention that detect an effect: not found in runs without it, found in runs with it."""

from functools import partial

import numpy as np
import pytest
import xarray as xr

from null_runs import assert_detects
from saddlescope.papers.softmax_attention.section_4_2 import FACTORS, WEIGHTS
from saddlescope.papers.softmax_attention.separability import _cover_share

LATE = np.array([690.7755, 1e3, 1e4, 1e5, 1e6, 1e7])  # ln t
LOG10_TIMES = np.array([10.0, 20.0, 50.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5])


def powers(rng, count, times, exponent, spread, noise):
    """Curves c t^a with a of this spread between curves, and a relative noise at each time."""
    a = exponent + spread * rng.standard_normal((count, 1))
    size = 0.2 * np.exp(0.5 * rng.standard_normal((count, 1)))
    return size * (times / times[0]) ** a * np.exp(noise * rng.standard_normal((count, len(times))))


def gaussian_flows(rng, variable, exponent, spread, noise):
    values = powers(rng, 40, LATE, exponent, spread, noise)
    data = {variable: (("case", "time"), values), "group": ("case", ["raw"] * 40)}
    return xr.Dataset(data, {"log_time": ("time", LATE)})


@pytest.mark.slow  # 200 draws of a long run
@pytest.mark.parametrize(
    ("claim", "variable", "effect", "null"),
    [
        ("raw-rate", "error", (-0.1, 0.1, 0.02), (-1.0, 0.3, 0.02)),
        ("raw-rate", "error", (-0.1, 0.1, 0.02), (0.0, 0.0, 0.2)),
        ("raw-comes-nearer", "objective", (-0.3, 0.05, 0.02), (0.0, 0.0, 0.2)),
        ("raw-distance-falls", "error", (-0.3, 0.05, 0.02), (0.0, 0.0, 0.2)),
    ],
)
def test_theorem_4_1(claim, variable, effect, null):
    null, effect = (partial(_of, gaussian_flows, variable, *law) for law in (null, effect))
    assert_detects("softmax-attention/theorem-4-1", claim, null=null, effect=effect)


def _of(draw, *law):
    """Put the generator, the last argument, first."""
    *law, rng = law
    return draw(rng, *law)


def excesses(rng, exponent, spread, noise, ahead):
    """Nuclear excesses of 24 draws, of keys and queries ahead of W alone by a factor."""
    pairs = powers(rng, 24, LOG10_TIMES, exponent, spread, noise)
    alone = ahead * pairs * np.exp(noise * rng.standard_normal(pairs.shape))
    axes = ("flow", "draw", "time")
    return xr.Dataset(
        {"nuclear": (axes, np.array([alone, pairs]))}, {"flow": [WEIGHTS, FACTORS], "log10_time": ("time", LOG10_TIMES)}
    )


@pytest.mark.parametrize(
    ("claim", "effect", "null"),
    [
        ("nuclear-rate", (-0.22, 0.03, 0.02, 1.0), (-1.0, 0.1, 0.1, 1.0)),
        ("nuclear-rate", (-0.22, 0.03, 0.02, 1.0), (0.0, 0.0, 0.2, 1.0)),
        ("falls", (-0.3, 0.02, 0.02, 1.0), (0.0, 0.0, 0.2, 1.0)),
        ("below", (-0.2, 0.02, 0.02, 1.5), (-0.2, 0.02, 0.02, 1.0)),
        ("below-from-the-first", (-0.2, 0.02, 0.02, 1.5), (-0.2, 0.02, 0.02, 1.0)),
    ],
)
def test_section_4_2(claim, effect, null):
    null, effect = (partial(_of, excesses, *law) for law in (null, effect))
    assert_detects("softmax-attention/section-4-2", claim, null=null, effect=effect)


def scale_errors(rng, loss):
    logs = rng.standard_normal((12, 2)) * 0.7 + [0.0, loss]
    return xr.Dataset(
        {"raw_error": (("raw_seed", "scale", "time"), 10.0 ** logs[..., None])},
        {"scale": [0.3, 1e-8], "log_time": ("time", LATE[:1])},
    )


def test_no_gain_from_a_small_scale():
    null, effect = (partial(_of, scale_errors, loss) for loss in (0.0, 1.2))
    assert_detects("softmax-attention/initial-scale", "smaller-is-not-better", null=null, effect=effect)


def lost_samples(rng, share):
    ends = np.where(rng.random((1, 1, 128, 1)) < share, 1.0, 1e-12)
    return xr.Dataset(
        {
            "log_lost": (("gap", "flow", "instance", "time"), np.log(ends)),
            "log_start": (("gap", "instance"), np.ones((1, 128))),
        },
        {"gap": [0.25], "flow": ["diagonal weights"]},
    )


@pytest.mark.parametrize(
    ("claim", "effect", "null"),
    [
        ("not-necessary", 0.3, 0.5),
        ("a-small-gap-loses-samples", 0.25, 0.05),
        ("a-small-gap-loses-samples", 0.25, 0.45),
    ],
)
def test_assumption_3(claim, effect, null):
    null, effect = (partial(_of, lost_samples, share) for share in (null, effect))
    assert_detects("softmax-attention/assumption-3", claim, null=null, effect=effect)


def ranks(rng, ratio, right):
    frobenius = np.full(20, 180.0)
    nuclear = np.rint(frobenius * (ratio + 0.05 * rng.standard_normal(20)))
    true = rng.integers(2, 5, 100)
    read = np.where(rng.random(100) < right, true, true + 1)
    return xr.Dataset(
        {
            "rank": (("draw", "norm"), np.stack([frobenius, nuclear], axis=1)),
            "true_rank": ("small_draw", true),
            "true_rank_certified": ("small_draw", np.ones(100, bool)),
            "read_rank": (("small_draw", "accuracy"), read[:, None]),
        },
        {"norm": ["frobenius", "nuclear"], "accuracy": ["1e-8"]},
    )


@pytest.mark.parametrize("claim", ["low-rank", "rank-as-read"])
def test_certificates(claim):
    null, effect = partial(_of, ranks, 0.75, 0.9), partial(_of, ranks, 0.3, 0.99)
    assert_detects("softmax-attention/certificates", claim, null=null, effect=effect)


def counts(rng, numbers, share):
    """Separable draws of 200: with two tokens by Cover's theorem with `numbers(p)` weights, with five by a share."""
    kinds, dims = ["any W", "diagonal W"], [2, 3, 4, 5, 6, 7, 8, 10]
    cover = np.array([[_cover_share(12, d * d), _cover_share(12, d)] for d in dims])
    true = [[_cover_share(12, numbers(d * d)), _cover_share(12, numbers(d))] for d in dims]
    separable = np.concatenate([rng.binomial(200, true), rng.binomial(200, [[share] * 2])])
    return xr.Dataset(
        {
            "separable": (("size", "kind"), separable),
            "cover": (("size", "kind"), np.concatenate([cover, [[np.nan] * 2]])),
        },
        {
            "kind": kinds,
            "n": ("size", [12] * 8 + [8]),
            "L": ("size", [2] * 8 + [5]),
            "d": ("size", [*dims, 9]),
        },
        {"trials": 200},
    )


@pytest.mark.parametrize("claim", ["two-tokens-any-w", "two-tokens-diagonal-w", "diagonal-w-above-n-and-l"])
@pytest.mark.parametrize("extra", [-1, 1])
def test_separability(claim, extra):
    null, effect = partial(_of, counts, lambda p: p + extra, 0.5), partial(_of, counts, lambda p: p, 0.3)
    assert_detects("softmax-attention/separability", claim, null=null, effect=effect)


def residuals(rng, fall, certified):
    """Residuals at t = 1e10, 1e100 and ln t = 1e6, of 20 data sets from two scales."""
    values = np.exp(rng.standard_normal((1, 20, 2, 1, 3)))
    values[..., 2] *= fall
    values[..., 1] = np.where(rng.random((1, 20, 2, 1)) < certified, 1e-3, 0.1)
    times = [10 * np.log(10), 100 * np.log(10), 1e6]
    axes = ("kind", "instance", "scale", "multiplier", "log_time")
    return xr.Dataset(
        {"stationarity": (axes, values)},
        {"kind": ["Gaussian"], "multiplier": ["incremental"], "log_time": times, "scale": [0.3, 0.03]},
    )


@pytest.mark.parametrize("claim", ["raw-falls", "raw-certified"])
def test_kkt_residuals(claim):
    null, effect = partial(_of, residuals, 1.0, 0.5), partial(_of, residuals, 1e-5, 0.1)
    assert_detects("softmax-attention/kkt-residuals", claim, null=null, effect=effect)


def heads(rng, right):
    """Values of heads of 48 draws, each within all bars with this probability."""
    good = rng.random((4, 1, 48)) < right
    return xr.Dataset(
        {
            "value": (("columns", "start", "draw", "time"), np.where(good, 1.001, 1.5)[..., None]),
            "bounded": (("columns", "draw"), np.ones((4, 48))),
            "least": ("draw", np.ones(48)),
            "rank": ("draw", np.full(48, 3)),
        },
        {"columns": [1, 2, 3, 8]},
    )


@pytest.mark.parametrize(("claim", "null"), [("wide", 0.8), ("rank-is-enough", 0.8), ("one-column", 0.9)])
def test_narrow_heads(claim, null):
    null, effect = partial(_of, heads, null), partial(_of, heads, 1.0)
    assert_detects("softmax-attention/narrow-heads", claim, null=null, effect=effect)


def sizes(rng, growth):
    late = np.exp(0.3 * rng.standard_normal((48, 2))) * [1.0, growth]
    return xr.Dataset(
        {
            "size": (("instance", "time"), late),
            "slowness": (("instance", "time"), np.exp(0.3 * rng.standard_normal((48, 2))) * [1.0, 10.0 / growth]),
            "log_excess": ("instance", np.full(48, -600.0)),
            "kind": ("instance", ["diagonal weights separate"] * 48),
        },
        {"log10_time": ("time", [30.0, 300.0])},
    )


@pytest.mark.parametrize("claim", ["with-diagonal-separability", "gradient-vanishes"])
def test_lemma_4_2(claim):
    null, effect = partial(_of, sizes, 1.0), partial(_of, sizes, 10.0)
    assert_detects("softmax-attention/lemma-4-2", claim, null=null, effect=effect)


def pairs(rng, right):
    own = rng.random((25, 2)) < right
    outcome = np.where(own, ["nuclear", "Frobenius"], ["Frobenius", "nuclear"])
    rank = np.where(own[:, :1], [2, 13], [13, 2])
    return xr.Dataset(
        {
            "outcome": (("pair", "flow"), outcome),
            "rank": (("pair", "norm"), rank),
            "separable": ("pair", np.ones(25, bool)),
        },
        {"flow": ["keys and queries", "W alone"], "norm": ["nuclear", "Frobenius"]},
    )


@pytest.mark.parametrize("claim", ["key-query", "alone", "key-query-never", "alone-never", "ranks"])
def test_digits(claim):
    null, effect = partial(_of, pairs, 0.5), partial(_of, pairs, 1.0)
    assert_detects("softmax-attention/digits", claim, null=null, effect=effect)
