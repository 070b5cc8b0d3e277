"""Statistics of softmax-attention that detect an effect: not found in runs without it, found in runs with it."""

from functools import partial

import numpy as np
import pytest
import xarray as xr

from null_runs import assert_detects
from saddlescope.papers.softmax_attention.section_4_2 import FACTORS, WEIGHTS

LATE = np.array([690.7755, 1e3, 1e4, 1e5, 1e6, 1e7])  # ln t
LOG10_TIMES = np.array([100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5])


def powers(rng, shape, times, exponent, spread, noise):
    """Curves c t^a with a of this spread between curves, and a relative noise at each time."""
    a = exponent + spread * rng.standard_normal((*shape, 1))
    size = 0.2 * np.exp(0.5 * rng.standard_normal((*shape, 1)))
    return size * (times / times[0]) ** a * np.exp(noise * rng.standard_normal((*shape, len(times))))


def gaussian_flows(rng, exponent, spread, noise):
    values = powers(rng, (40,), LATE, exponent, spread, noise)
    flows = dict.fromkeys(("error", "excess"), (("case", "time"), values))
    marks = {"group": ("case", ["raw"] * 40), "rival": ("case", np.ones(40)), "assumptions_hold": True}
    return xr.Dataset(flows | marks, {"log_time": ("time", LATE)})


def excesses(rng, exponent, spread, noise, ahead):
    """Excesses of 24 draws, each flow's in its own norm ahead of the other's by a factor."""
    own = powers(rng, (2, 24), LOG10_TIMES, exponent, spread, noise)
    other = ahead * own * np.exp(noise * rng.standard_normal(own.shape))
    axes, coords = ("flow", "draw", "time"), {"flow": [WEIGHTS, FACTORS], "log10_time": ("time", LOG10_TIMES)}
    values = {"nuclear": np.stack([other[0], own[0]]), "frobenius": np.stack([own[1], other[1]])}
    return xr.Dataset({name: (axes, of) for name, of in values.items()}, coords | {"draw": range(24)})


def ranks_and_regressions(rng, ratio, fall):
    frobenius = np.full(20, 180.0)
    nuclear = np.rint(frobenius * (ratio + 0.05 * rng.standard_normal(20)))
    squares = np.exp(0.1 * rng.standard_normal((20, 5))) * fall ** np.arange(5)
    return xr.Dataset(
        {
            "ranks": (("draw", "flow"), np.stack([frobenius, nuclear], axis=1)),
            "squares_excess": (("draw", "scale"), squares),
            "beta_excess": ("draw", np.ones(20)),
            "residual": ("draw", np.zeros(20)),
        },
        {"flow": [WEIGHTS, FACTORS]},
    )


def scale_errors(rng, loss):
    logs = rng.standard_normal((12, 2)) * 0.7 + [0.0, loss]
    return xr.Dataset(
        {"raw_error": (("raw_seed", "scale", "time"), 10.0 ** logs[..., None])},
        {"scale": [0.3, 1e-8], "log_time": ("time", LATE[:1])},
    )


def lost_samples(rng, share):
    ends = np.where(rng.random((1, 1, 128, 1)) < share, 1.0, 1e-12)
    return xr.Dataset(
        {
            "log_lost": (("gap", "flow", "instance", "time"), np.log(ends)),
            "log_start": (("gap", "instance"), np.ones((1, 128))),
        },
        {"gap": [0.25], "flow": ["diagonal weights"]},
    )


def perturbed_scores(rng, exponent):
    values = powers(rng, (2, 6), np.array([1e3, 3e3, 1e4]), exponent, 0.02, 0.01)
    coords = {"spread": [0.1, 0.9], "log_time": [1e3, 3e3, 1e4]}
    return xr.Dataset({"error": (("spread", "instance", "log_time"), values)}, coords)


def counts(rng, share):
    return xr.Dataset(
        {"separable": (("d", "kind"), rng.binomial(200, [[share] * 2])), "worst_proof": 0.0},
        {"kind": ["any W", "diagonal W"], "d": [9]},
        {"trials": 200, "n": 8, "L": 5},
    )


def residuals(rng, exponent, noise):
    """Residuals that are powers of ln μ, or of μ with the incremental multiplier, with μ = ln t."""
    times = np.array([1e3, 1e4, 1e5, 1e6])
    proofs = powers(rng, (3, 20, 2), np.log(times), exponent, 0.05, noise)
    incremental = powers(rng, (3, 20, 2), times, exponent, 0.02, noise)
    axes = ("multiplier", "residual_of", "instance", "scale", "log_time")
    margin = (("instance", "scale", "log_time"), np.broadcast_to(times, (20, 2, 4)))
    return xr.Dataset(
        {"residual": (axes, np.stack([proofs, incremental])), "margin": margin},
        {"multiplier": ["proof's", "incremental"], "residual_of": ["ε", "ε'", "δ"], "log_time": times},
        {"tolerance": 1e-10},
    ).expand_dims(kind=["conditioned"])


def aligned_excesses(rng, exponent):
    times = [1e3, 1e4, 1e5, 1e6]
    values = powers(rng, (10,), np.array(times), exponent, 0.02, 0.01)
    return xr.Dataset({"excess": (("instance", "log_time"), values), "assumptions": True}, {"log_time": times})


def heads(rng, right):
    """Values of heads of 48 draws, each within all bounds with this probability."""
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


CASES = [
    ("theorem-4-1", "raw-rate", gaussian_flows, (-0.1, 0.1, 0.02), (-1.0, 0.3, 0.02)),
    ("theorem-4-1", "raw-rate", gaussian_flows, (-0.1, 0.1, 0.02), (0.0, 0.0, 0.2)),
    ("theorem-4-1", "theorem-4-1", gaussian_flows, (-0.5, 0.05, 0.02), (0.0, 0.0, 0.2)),
    ("section-4-2", "nuclear-rate", excesses, (-0.22, 0.03, 0.02, 1.0), (-1.0, 0.1, 0.1, 1.0)),
    ("section-4-2", "nuclear-rate", excesses, (-0.22, 0.03, 0.02, 1.0), (0.0, 0.0, 0.2, 1.0)),
    ("section-4-2", "contrast", excesses, (-0.5, 0.02, 0.02, 1.5), (-0.5, 0.02, 0.02, 1.0)),
    ("section-4-2", "contrast", excesses, (-0.5, 0.02, 0.02, 1.5), (0.0, 0.0, 0.1, 1.5)),
    ("section-4-2", "low-rank", ranks_and_regressions, (0.3, 0.3), (0.75, 1.0)),
    ("section-4-2", "linear-regression", ranks_and_regressions, (0.3, 0.3), (0.75, 1.0)),
    ("initial-scale", "smaller-is-not-better", scale_errors, (1.2,), (0.0,)),
    ("assumption-3", "not-necessary", lost_samples, (0.3,), (0.5,)),
    ("unequal-scores", "perturbations", perturbed_scores, (-1.0,), (0.0,)),
    ("separability", "diagonal-w-above-n-and-l", counts, (0.3,), (0.5,)),
    ("kkt-residuals", "conditions", residuals, (-1.0, 0.01), (0.0, 0.1)),
    ("kkt-residuals", "incremental-rate", residuals, (-1.0, 0.01), (0.0, 0.1)),
    ("theorem-5-1", "theorem-5-1", aligned_excesses, (-1.0,), (0.0,)),
    ("narrow-heads", "rank-is-enough", heads, (1.0,), (0.8,)),
    ("narrow-heads", "one-column", heads, (1.0,), (0.9,)),
    ("lemma-4-2", "with-diagonal-separability", sizes, (10.0,), (1.0,)),
    ("lemma-4-2", "gradient-vanishes", sizes, (10.0,), (1.0,)),
    ("digits", "own-norm", pairs, (1.0,), (0.5,)),
    ("digits", "ranks", pairs, (1.0,), (0.5,)),
]
SLOW = [pytest.param(*case, marks=[pytest.mark.slow] if case[0] == "theorem-4-1" else []) for case in CASES]


@pytest.mark.parametrize(("entry", "claim", "draw", "effect", "null"), SLOW)  # 200 draws of a long run
def test_effects_are_found_where_they_are_alone(entry, claim, draw, effect, null):
    made = {name: partial(lambda law, rng: draw(rng, *law), law) for name, law in (("effect", effect), ("null", null))}
    assert_detects(f"softmax-attention/{entry}", claim, **made)
