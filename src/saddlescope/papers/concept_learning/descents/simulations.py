"""Samples of one law on one figure's data, tests of the conjecture on other data, and searches."""

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report, silent
from saddlescope.papers.concept_learning.shared.random_starts import (
    FIGURES,
    LAWS,
    Law,
    draw_starts,
    largest_rises,
    verified_descent_counts,
)
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point

if TYPE_CHECKING:
    from saddlescope.flow import SymmetricFlows

CONJECTURE = ("exceptions", "followed", "exception_rise")  # what every sample says of "at most s descents"

LARGE = "3 concepts, four, large"  # the kind of search with one descent more than concepts, from large weights

_MOST = 6  # largest count of descents; higher counts are added to it

_HYSTERESES = (0.0, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3)

_EDGES = (-6.0, 0.0, 49)  # of the bins of log10 of rises: the first, the last, how many

_UNTIL = 1e4  # by then all is learned; what has learned takes no more time

_TOLERANCE = 1e-7

_SEARCHES = {  # kind: the data, the number of descents, the largest entry of U
    "three": ("Figure 8", 3, 0.3),
    "four": ("Figure 9", 4, 0.3),
    "2 concepts, three": ("Figure 5", 3, 0.3),
    "3 concepts, four": ("Figure 8", 4, 0.3),
    LARGE: ("Figure 8", 4, 4.0),
}

_SHOWN = 400  # times of a curve


def sample_law(name: str, law: Law, params: Any, seed: tuple[int, ...], report: Report) -> xr.Dataset:
    """Follow starts of one law at one scale; count descents, against hysteresis, too, and test the conjecture."""
    from saddlescope.measure import find_descents

    a, x = strengths_and_test_point(*FIGURES[name])
    starts = draw_starts(np.random.default_rng(seed), law, params.scale, (params.starts, len(a), len(a)))
    flows, counts, seen = _follow_and_count(a, x, starts, report)
    shares = [
        np.bincount(np.minimum(find_descents(flows.turning_losses, hysteresis=h).counts, _MOST), minlength=_MOST + 1)
        for h in _HYSTERESES
    ]
    rises = largest_rises(flows)
    edges = np.linspace(*_EDGES)
    return seen.assign(
        counts=("descents", np.bincount(np.minimum(counts, _MOST), minlength=_MOST + 1)),
        counts_at=(("hysteresis", "descents"), np.array(shares)),
        rises=("log_rise", np.histogram(np.log10(rises[rises > 0]), edges)[0]),
        largest_rise=rises.max(),
    ).assign_coords(descents=np.arange(_MOST + 1), hysteresis=list(_HYSTERESES), log_rise=edges[:-1])


def test_conjecture(names: tuple[str, ...], params: Any, report: Report) -> xr.Dataset:
    """Test the conjecture at other scales, and on random data."""
    cells: list[tuple[str, Law, float]] = list(itertools.product(names, LAWS, params.scales))
    rng = np.random.default_rng((params.seed, 1000))
    found = []
    for k, (name, law, scale) in enumerate(cells):
        report(0.6 * k / len(cells), f"{name}, {law} starts of scale {scale:g}")
        a, x = strengths_and_test_point(*FIGURES[name])
        found.append(_follow_and_count(a, x, draw_starts(rng, law, scale, (params.more, len(a), len(a))))[2])
    for k in range(params.tasks):
        report(0.6 + 0.4 * k / params.tasks, f"random data {k + 1} of {params.tasks}")
        s = 2 + k % 2
        mu, sigma = np.exp(rng.uniform(np.log(0.3), np.log(4), s)), np.exp(rng.uniform(np.log(0.01), 0.0, s))
        a, x = strengths_and_test_point(tuple(mu.tolist()), tuple(sigma.tolist()))
        starts = draw_starts(rng, LAWS[k // 2 % 2], 10 ** rng.uniform(-3, 0.5), (params.of_task, s, s))
        found.append(_follow_and_count(a, x, starts)[2])
    both = xr.concat(found, "part")
    return xr.Dataset(
        {"exceptions": both.exceptions.sum("part"), "followed": both.followed.sum("part"),
         "exception_rise": both.exception_rise.max("part")}
    )  # fmt: skip


def _follow_and_count(
    a: np.ndarray, x: np.ndarray, starts: np.ndarray, report: Report = silent
) -> "tuple[SymmetricFlows, np.ndarray, xr.Dataset]":
    """Follow starts; return the flows, verified counts, and the outcome of the conjecture."""
    from saddlescope.flow import symmetric_flows

    flows = symmetric_flows(a, starts, test_point=x, until=_UNTIL, tolerance=_TOLERANCE, report=report)
    counts, clear = verified_descent_counts(flows, starts)
    small = np.linalg.norm(starts, 2, axis=(1, 2)) <= 1
    kinds = [small == kind for kind in (False, True)]
    values = (
        [np.sum(kind & (counts > len(a))) for kind in kinds],
        [np.sum(kind) for kind in kinds],
        [clear[kind].max(initial=0.0) for kind in kinds],
    )
    seen = xr.Dataset({name: ("small", np.array(value)) for name, value in zip(CONJECTURE, values, strict=True)})
    return flows, counts, seen


def search_starts(params: Any, report: Report) -> xr.Dataset:
    """Search the best start of every kind; return its loss against time and its rise, 0 where none is found."""
    from saddlescope.flow import find_start, symmetric_flows
    from saddlescope.flow.two_layer.start_search import SearchError

    followed = params.pool + 512 * params.generations
    rises, times, losses = np.zeros(len(_SEARCHES)), *np.full((2, len(_SEARCHES), _SHOWN), np.nan)
    for k, (kind, (name, wanted, bound)) in enumerate(_SEARCHES.items()):
        report(k / len(_SEARCHES), f"search: {kind} descents")
        a, x = strengths_and_test_point(*FIGURES[name])
        try:
            best = find_start(
                a, descents=wanted, test_point=x, until=_UNTIL, seed=params.seed, bound=bound, num_starts=params.pool,
                generations=params.generations,
            )  # fmt: skip
        except SearchError:
            continue
        rises[k], followed = best.rise, best.followed
        last = best.flow.turning_times[0, best.flow.turns[0]]
        marks = np.geomspace(last / 100, 3 * last, _SHOWN)
        times[k] = marks
        flow = symmetric_flows(a, best.start[None], test_point=x, until=6 * last, record=marks, tolerance=1e-11)
        losses[k] = flow.losses[0, 1:-1] / (x @ x / 2)
    return xr.Dataset(
        {
            "rise": ("kind", rises),
            "curve_time": (("kind", "point"), times, {"units": "t"}),
            "curve": (("kind", "point"), losses),
            "search_followed": followed,
        },
        coords={"kind": list(_SEARCHES)},
    )
