"""Runs with the conventions of the authors' scripts: exact flows by matrix and law of the start, and discrete maps.

The conventions are those of `authors_scripts`. The parameters are that entry's: divisors of the laws, starts,
map_starts, step, steps and seed.
"""

from typing import Any

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.shared.discrete_maps import LOST, euler_runs, printed_runs
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point

DATA = {
    "Figure 8": ((1.0, 1.5, 2.2), (0.05, 0.05, 0.05)),
    "Figure 9": ((1.0, 1.5, 2.2, 2.7), (0.05, 0.05, 0.05, 0.5)),
}

CONVENTIONS = ("A", "A^2", "var")

HYSTERESES = (0.0, 0.003)  # in parts of the first loss

MOST = 6  # largest count of descents

_RECORDED = 500  # times at which Euler's steps are compared with the flow


def _strengths(name: str, convention: str) -> np.ndarray:
    mu, sigma = DATA[name]
    a, _ = strengths_and_test_point(mu, tuple(one**0.5 for one in sigma) if convention == "var" else sigma)
    return a if convention == "A" else a**2


def padded_strengths(name: str, convention: str) -> np.ndarray:
    """Return the strengths of a figure's data in a convention, padded with NaN."""
    a = _strengths(name, convention)
    return np.pad(a, (0, MOST - len(a)), constant_values=np.nan)


def _starts(params: Any, d: int, law: int) -> np.ndarray:
    rng = np.random.default_rng([params.seed, d, law])
    return rng.random((params.starts, d, d)) / params.divisors[law]


def flows_by_law(params: Any, name: str, convention: str) -> xr.Dataset:
    """Return shares of starts by their number of descents under exact flow, and shares that have learned all."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.measure import find_descents

    a = _strengths(name, convention)
    x = np.array(DATA[name][0])
    ends = [params.step * n for n in params.steps]
    counts, learned = [], []
    for law in range(len(params.divisors)):
        flows = symmetric_flows(
            a, _starts(params, len(a), law), test_point=x, until=ends[1], record=ends[:1], tolerance=1e-8
        )
        found = [find_descents(flows.turning_losses, hysteresis=h).counts for h in HYSTERESES]
        counts.append([np.bincount(one, minlength=MOST + 1)[: MOST + 1] / len(flows) for one in found])
        off = np.abs(flows.W[:, 1:] - np.eye(len(a))).max(axis=(2, 3))
        learned.append((off < 0.01).mean(axis=0))
    return xr.Dataset(
        {
            "share": (("divisor", "hysteresis", "descents"), np.array(counts)),
            "learned": (("divisor", "steps"), np.array(learned)),
        },
        coords={
            "divisor": list(params.divisors),
            "hysteresis": list(HYSTERESES),
            "descents": np.arange(MOST + 1),
            "steps": list(params.steps),
        },
    )


def compare_maps(params: Any, convention: str) -> xr.Dataset:
    """Compare Euler's steps in U and D.2 in W with exact flow on the data of Figure 8."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.measure import find_descents

    name = "Figure 8"
    a, x = _strengths(name, convention), np.array(DATA[name][0])
    uniform = _starts(params, len(a), 0)[: params.map_starts]
    normal = 0.1 * np.random.default_rng([params.seed, 99]).standard_normal(uniform.shape)
    steps = params.steps[0]
    euler = euler_runs(a, uniform, step=params.step, steps=steps, keep=_RECORDED)
    flows = symmetric_flows(a, uniform, test_point=x, until=steps * params.step, record=euler.times, tolerance=1e-9)
    losses = euler.losses(x)
    descents = [find_descents(one).counts for one in (losses, flows.turning_losses)]
    printed = [printed_runs(a, starts, step=params.step, steps=steps, keep=100) for starts in (uniform, normal)]
    return xr.Dataset(
        {
            "euler_same": float((descents[0] == descents[1]).mean()),
            "euler_error": float(np.abs(losses - flows.losses).max() / (x @ x / 2)),
            "euler_lost": int(np.sum(euler.lowest.min(axis=1) < LOST)),
            "printed_lost": ("law", [float(runs.indefinite.mean()) for runs in printed]),
            "printed_blown": ("law", [float(runs.blown_up.mean()) for runs in printed]),
        },
        coords={"law": ["uniform", "normal"]},
    )


def example_losses(params: Any) -> xr.Dataset:
    """Return losses with A and A^2 from the first start with one descent more with A^2, Figure 8's data."""
    from saddlescope.flow import symmetric_flows

    until = params.step * params.steps[1]
    times = np.geomspace(1e-3 * until, until, 500)
    x = np.array(DATA["Figure 8"][0])
    starts = _starts(params, len(x), 0)[:64]
    flows = [
        symmetric_flows(
            _strengths("Figure 8", convention), starts, test_point=x, until=until, record=times, tolerance=1e-11
        )
        for convention in CONVENTIONS[:2]
    ]
    shown = int(np.argmax(flows[1].turns - flows[0].turns == 2))
    losses = [one.losses[shown, np.searchsorted(one.times, times)] for one in flows]
    return xr.Dataset(
        {"example_loss": (("map_convention", "time"), np.array(losses))},
        coords={"time": times, "map_convention": list(CONVENTIONS[:2])},
    )
