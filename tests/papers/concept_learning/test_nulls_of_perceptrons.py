"""Statistics of the entries on perceptrons find no effect in random runs without one, and find it in runs with one."""

from functools import partial

import numpy as np
import pytest
import xarray as xr
from tests.null_runs import assert_detects

from saddlescope.papers.concept_learning import figure_3, printed_conventions
from saddlescope.papers.concept_learning.figures_2_11_12 import DIVERSITY, SIGNAL
from saddlescope.papers.concept_learning.shared.transient_memorization import difference_of_shares, least
from saddlescope.reproduction import Estimate

SEEDS, STEPS = 64, 60


def trajectories(rng, rates, seeds):
    """Return outputs that approach the test point at rates (task, seed, concept), with the noise of minibatches."""
    time, mu = np.linspace(0, 12, STEPS), np.array([1.0, 2.0])
    made = 1 - np.exp(-rates[:, :, None] * time[:, None])
    made += 0.01 * rng.standard_normal(made.shape) * (time > 0)[:, None]
    tasks = len(rates)
    panels = [SIGNAL] * (tasks // 2) + [DIVERSITY] * (tasks // 2)
    output = (("task", "seed", "step", "concept"), made * mu)
    strength = np.array([[0.4, 1.4], [0.8, 1.4], [2.1, 1.4], [3.0, 1.4]] * 2)
    return xr.Dataset(
        {
            "output": output,
            "prediction": output,
            "mu": (("task", "concept"), np.array([mu] * tasks)),
            "strength": (("task", "concept"), strength),
        },
        coords={"time": ("step", time), "concept": [1, 2], "panel": ("task", panels), "seed": np.arange(seeds)},
    )


def any_rates(rng, seeds=SEEDS):
    """Rates that do not depend on the task, with the spread that random starts give."""
    return trajectories(rng, np.exp(0.5 * rng.standard_normal((8, seeds, 2))), seeds)


def rates_of_strengths(rng, seeds=SEEDS, spread=0.02):
    strength = np.array([[0.4, 1.4], [0.8, 1.4], [2.1, 1.4], [3.0, 1.4]] * 2)[:, None]
    return trajectories(rng, strength * np.exp(spread * rng.standard_normal((8, seeds, 2))), seeds)


def transients(rng, share):
    """Networks of every kind, of which shares are transient; ripples of minibatches make none at the visible level."""
    kinds = [(figure_3.LOW, depth) for depth in (1, 2, 5)] + [(figure_3.LOW, 4)]
    kinds += [(kind, depth) for kind in (figure_3.WHOLE, figure_3.HIGH) for depth in (2, 4, 5)]
    kinds.append((figure_3.WIDE_SGD, 4))
    ripple = np.exp(rng.normal(np.log(0.015), 0.5, (len(kinds), 128)))  # a fiftieth of them above 5 %
    turns = rng.random(ripple.shape) < np.array([share(*kind) for kind in kinds])[:, None]
    rise = np.where(turns, 0.2, ripple)
    return xr.Dataset(
        {"descents": (("network", "seed"), 1 + (rise > 0.05)), "rise": (("network", "seed"), rise)},
        coords={"kind": ("network", [kind for kind, _ in kinds]), "depth": ("network", [depth for _, depth in kinds])},
        attrs={"paper_depth": 4},
    )


def more(kind, depth):
    """Shares larger at d = 2, in narrow layers, and in more layers."""
    shares = {figure_3.LOW: 0.4, figure_3.WHOLE: 0.4, figure_3.WIDE_SGD: 0.15}
    return shares.get(kind, 0.0) * depth / 4


def flat_networks(rng, shares, sooner=1.0, seeds=256):
    """Runs of figure-13 whose kinds are transient with these shares, on either task alike."""
    turns = rng.random((3, 2, seeds)) < np.array(shares)[:, None, None]
    steps = np.exp(5 + 0.3 * rng.standard_normal((3, 2, seeds))) * np.array([sooner, 1.0])[:, None]
    kinds = ["three layers, d = 3", "one layer, d = 3", "two layers, d = 64"]
    dims = ("kind", "task", "seed")
    return xr.Dataset(
        {"descents": (dims, 1.0 + turns), "rise": (dims, 0.2 * turns), "learned": (dims, steps)},
        coords={"kind": kinds, "task": ["small", "large"]},
    )


def flips(rng, near, starts=60):
    """Half-times of random starts whose order flips near the predicted ratio, or elsewhere, at each scale."""
    scales, ratio = np.array([0.01, 1e-4]), np.linspace(0.35, 2.2, 13)
    unit = rng.standard_normal(starts) + 0.05 * rng.standard_normal((2, starts))  # the same starts, rescaled
    spread, centre = (0.5 / np.log(1 / scales), 1.0) if near else (np.full(2, 0.2), np.exp(rng.choice([-1, 1]) * 0.25))
    late = (centre * np.exp(spread[:, None] * unit))[..., None] / ratio
    half = np.stack([late, np.ones_like(late)], axis=-1)
    return xr.Dataset(
        {"half": (("scale", "start", "ratio", "concept"), half)},
        coords={"scale": scales, "ratio": ratio, "concept": [1, 2]},
        attrs={"mu": [1.0, 2.0], "sigma": 0.05},
    )


def points_of_the_cube(rng, ordered):
    """Losses of forty networks at all points, learned in an order of their numbers of concepts or in any order."""
    index, epochs = np.arange(16)[:, None] >> np.arange(4) & 1, np.linspace(0, 40, 61)
    size = np.sum(index * np.array([1.0, 2.0, 3.0, 4.0]) ** 2, axis=1)
    order = index.sum(axis=1) + 0.0
    when = np.array([[order if ordered else rng.permutation(order) for _ in range(20)] for _ in range(2)])
    loss = size * np.exp(-2 * epochs[:, None] / (0.5 + when[:, :, None]))
    return xr.Dataset(
        {"loss": (("convention", "seed", "step", "point"), loss), "index": (("point", "concept"), index)},
        coords={"epoch": ("step", epochs), "convention": ["program", "text"]},
    )


def conventions(rng, share):
    """Runs of `printed-conventions` with a share of networks in order, and of transient ones."""
    run = {}
    for figure in printed_conventions.ORDERED:
        dims = ("convention", f"{figure}-task", f"{figure}-seed")
        run[figure] = (dims, rng.random((3, 3, 64)) < share)
    for figure in printed_conventions.TRANSIENT:
        run[figure] = (("convention", f"{figure}-seed"), rng.random((3, 64)) < share)
    return xr.Dataset(run, coords={"convention": list(printed_conventions.CONVENTIONS)})


SAME = partial(transients, share=lambda *_: 0.1)


@pytest.mark.parametrize(
    ("entry", "claim", "null", "effect"),
    [
        ("figure-2", "shift", any_rates, rates_of_strengths),
        # times of equal networks would all be the same record
        ("figure-2", "late", any_rates, partial(rates_of_strengths, spread=0.06)),
        *(("figure-3", claim, SAME, partial(transients, share=more)) for claim in ("dimension", "deeper")),
        ("figure-13", "easier", partial(flat_networks, shares=(0.1,) * 3), partial(flat_networks, shares=(0.2, 0, 0))),
        (
            "figure-13",
            "sooner",
            partial(flat_networks, shares=(0.1, 0, 0)),
            partial(flat_networks, shares=(0.1, 0, 0), sooner=3.0),
        ),
        ("order-flip", "two-layers", partial(flips, near=False), partial(flips, near=True)),
        *(
            ("figure-7", claim, partial(points_of_the_cube, ordered=False), partial(points_of_the_cube, ordered=True))
            for claim in ("strictly", "order")
        ),
        *(
            ("printed-conventions", claim, partial(conventions, share=null), partial(conventions, share=effect))
            for claim, null, effect in (("order", 0.5, 0.97), ("high", 0.05, 0.0), ("low", 0.02, 0.4))
        ),
    ],
)
def test_effects_in_perceptrons(entry, claim, null, effect):
    assert_detects(f"concept-learning/{entry}", claim, null=null, effect=effect)


def test_the_difference_of_shares_has_an_interval_at_none_and_all():
    """Newcombe's method 10, example (a) of Newcombe (1998), table II: 56/70 - 48/80 has the limits .0524 and .3339."""
    found = difference_of_shares((56, 70), (48, 80), "")
    assert found.value == pytest.approx(0.2)
    assert found.uncertainty == pytest.approx(0.2 - 0.0524, abs=2e-4)
    assert difference_of_shares((10, 10), (0, 10), "").uncertainty > 0.3


def test_the_least_estimate_has_the_smallest_lower_end_and_an_unresolved_one_comes_first():
    wide, narrow, unresolved = Estimate(0.5, 0.4), Estimate(0.3, 0.1), Estimate.unresolved("no network")
    assert least([narrow, wide]) == wide
    assert least([wide, unresolved]) is unresolved
