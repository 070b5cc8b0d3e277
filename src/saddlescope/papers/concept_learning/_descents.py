"""What the entry `descents` runs: samples of one law on one figure's data, the conjecture elsewhere, searches."""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from saddlescope.papers.concept_learning._samples import FIGURES, LAWS, Law, descents, drawn, largest_rises
from saddlescope.papers.concept_learning._symmetric_runs import data

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from saddlescope.flow import SymmetricFlows

CONJECTURE = ("exceptions", "followed", "exception_rise")  # what every sample says of "at most s descents"

LARGE = "3 concepts, four, large"  # the kind of search with one descent more than concepts, from large weights

_MOST = 6  # descents told apart; the last count has those above, too
_HYSTERESES = (0.0, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3)
_EDGES = (-6.0, 0.0, 49)  # of the bins of log10 of rises: the first, the last, how many
_UNTIL = 1e4  # by then all is learned; what has learned takes no more time
_QUICK, _EXACT = 1e-7, 1e-12  # tolerances: of the count, and of the second one where it is above s
_SEARCHES = {  # kind: the data, the number of descents, the largest entry of U
    "three": ("Figure 8", 3, 0.3),
    "four": ("Figure 9", 4, 0.3),
    "2 concepts, three": ("Figure 5", 3, 0.3),
    "3 concepts, four": ("Figure 8", 4, 0.3),
    LARGE: ("Figure 8", 4, 4.0),
}
_SHOWN = 400  # times of a curve


def sampled(
    name: str, law: Law, params: Any, seed: tuple[int, ...], report: Callable[[float, str], None]
) -> "xr.Dataset":
    """Starts of one law at one scale: counts, counts against hysteresis, rises, and what the conjecture says."""
    import numpy as np

    from saddlescope.measure import find_descents

    a, x = data(*FIGURES[name])
    starts = drawn(np.random.default_rng(seed), law, params.scale, (params.starts, len(a), len(a)))
    flows, counts, seen = _counted(a, x, starts, report)
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


def elsewhere(names: tuple[str, ...], params: Any, report: Callable[[float, str], None]) -> "xr.Dataset":
    """What the conjecture says at other scales, and on random data."""
    import numpy as np
    import xarray as xr

    cells: list[tuple[str, Law, float]] = list(itertools.product(names, LAWS, params.scales))
    rng = np.random.default_rng((params.seed, 1000))
    found = []
    for k, (name, law, scale) in enumerate(cells):
        report(0.6 * k / len(cells), f"{name}, {law} starts of scale {scale:g}")
        a, x = data(*FIGURES[name])
        found.append(_counted(a, x, drawn(rng, law, scale, (params.more, len(a), len(a))))[2])
    for k in range(params.tasks):
        report(0.6 + 0.4 * k / params.tasks, f"random data {k + 1} of {params.tasks}")
        s = 2 + k % 2
        mu, sigma = np.exp(rng.uniform(np.log(0.3), np.log(4), s)), np.exp(rng.uniform(np.log(0.01), 0.0, s))
        a, x = data(tuple(mu.tolist()), tuple(sigma.tolist()))
        starts = drawn(rng, LAWS[k // 2 % 2], 10 ** rng.uniform(-3, 0.5), (params.of_task, s, s))
        found.append(_counted(a, x, starts)[2])
    both = xr.concat(found, "part")
    return xr.Dataset(
        {"exceptions": both.exceptions.sum("part"), "followed": both.followed.sum("part"),
         "exception_rise": both.exception_rise.max("part")}
    )  # fmt: skip


def _counted(
    a: "np.ndarray", x: "np.ndarray", starts: "np.ndarray", report: Callable[[float, str], None] | None = None
) -> "tuple[SymmetricFlows, np.ndarray, xr.Dataset]":
    """The flows, their counts, and what the conjecture says: counts above s are made again at the lowest tolerance."""
    import numpy as np
    import xarray as xr

    from saddlescope.flow import symmetric_flows

    watch: dict[str, Any] = {} if report is None else {"report": report}
    flows = symmetric_flows(a, starts, test_point=x, until=_UNTIL, tolerance=_QUICK, **watch)
    counts, small = descents(flows), np.linalg.norm(starts, 2, axis=(1, 2)) <= 1
    above, clear = np.flatnonzero(counts > len(a)), np.zeros(2)
    if len(above):
        again = symmetric_flows(a, starts[above], test_point=x, until=_UNTIL, tolerance=_EXACT)
        counts[above] = descents(again)
        for k in np.flatnonzero(counts[above] > len(a)):
            steps = np.diff(again.turning_losses[k])[1:]  # after the first fall or rise
            kind = int(small[above[k]])
            clear[kind] = max(clear[kind], steps[steps > 0].min() / (x @ x / 2))
    seen = [
        np.array([np.sum(of & (small == kind)) for kind in (False, True)]) for of in (counts > len(a), small == small)
    ]
    values = {name: ("small", value) for name, value in zip(CONJECTURE, (*seen, clear), strict=True)}
    return flows, counts, xr.Dataset(values)


def searched(params: Any, report: Callable[[float, str], None]) -> "xr.Dataset":
    """The best start of every kind of search: its loss against time, and its rise; NaN where there is none."""
    import numpy as np
    import xarray as xr

    from saddlescope.flow import find_start, symmetric_flows
    from saddlescope.flow.start_search import SearchError

    followed = params.pool + 512 * params.generations
    rises, times, losses = np.zeros(len(_SEARCHES)), *np.full((2, len(_SEARCHES), _SHOWN), np.nan)
    for k, (kind, (name, wanted, bound)) in enumerate(_SEARCHES.items()):
        report(k / len(_SEARCHES), f"search: {kind} descents")
        a, x = data(*FIGURES[name])
        try:
            best = find_start(
                a, descents=wanted, test_point=x, until=_UNTIL, seed=params.seed, bound=bound, pool=params.pool,
                generations=params.generations,
            )  # fmt: skip
        except SearchError:
            continue
        rises[k], followed = best.rise, best.followed
        last = best.flow.turning_times[0, best.flow.turns[0]]
        marks = np.geomspace(last / 100, 3 * last, _SHOWN)
        times[k] = marks
        flow = symmetric_flows(a, best.start[None], test_point=x, until=6 * last, record=marks)
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
