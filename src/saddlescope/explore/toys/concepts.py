"""Two concepts: the order in which a network learns them, against their signals and diversities.

A symmetric two-layer network x -> U U^T x on the identity task of Yang et al. (2024) with two concepts learns first
the one of the larger a = σ² + μ²/2, in the limit of small U.
"""

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Band, Figure, Figures, Line, Panel, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param
from saddlescope.reproduction.catalogue import TOYS

_LARGEST_SIGMA, _LARGEST_MU = 1.5, 2.5
_POINTS = 160


class Params(EntryParams):
    """A network learns the concept with the larger signal or the larger diversity first.

    Drag concept 1 across the line on the map, where the second moments of both are equal, and the order flips.
    Theory: Yang et al., arXiv:2410.08309.
    """

    signal: float = param(1.0, "signal μ₁ of concept 1", ge=0.2, le=_LARGEST_MU)
    diversity: float = param(0.3, "diversity σ₁ of concept 1", ge=0.0, le=_LARGEST_SIGMA)
    other_signal: float = param(1.5, "signal μ₂ of concept 2", ge=0.2, le=_LARGEST_MU)
    other_diversity: float = param(0.3, "diversity σ₂ of concept 2", ge=0.0, le=_LARGEST_SIGMA)
    log10_scale: float = param(-3.0, "initial scale: log₁₀ of the size of U", ge=-8.0, le=-1.0)
    starts: int = param(24, "random starts U", ge=4, le=96)
    seed: int = param(0, "seed of the starts", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the flows from all starts until both concepts are learned."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.models import StructuredIdentityTask

    mu, sigma = (params.signal, params.other_signal), (params.diversity, params.other_diversity)
    task = StructuredIdentityTask(mu, sigma, 1, 2)
    starts = 10.0**params.log10_scale * np.random.default_rng(params.seed).standard_normal((params.starts, 2, 2))
    until = (8 - 4.7 * params.log10_scale) / (4 * float(task.strengths.min()))
    flows = symmetric_flows(
        task.second_moment,
        starts,
        test_point=task.test_point,
        until=until,
        tolerance=1e-6,
        record=np.linspace(0.0, until, _POINTS),
        report=context.report,
    )
    at = np.searchsorted(flows.times, np.linspace(0.0, until, _POINTS))
    learned = (flows.W[:, at] @ task.test_point) / np.array(mu)
    return xr.Dataset(
        {
            "learned": (("start", "time", "concept"), learned),
            "strength": ("concept", task.strengths),
            "mu": ("concept", list(mu)),
            "sigma": ("concept", list(sigma)),
        },
        coords={"time": flows.times[at], "concept": [1, 2]},
    )


def _first(run: xr.Dataset) -> np.ndarray:
    """Return the concept, 1 or 2, that each start half learns first; 0 where none does."""
    above = run.learned.values > 0.5
    reached = np.where(above.any(axis=1), above.argmax(axis=1), np.inf)
    return np.where(np.isfinite(reached).any(axis=1), 1 + (reached[:, 1] < reached[:, 0]), 0)


claims = Claims(
    limits="Near equal second moments the starts decide, at any scale that is not astronomically small: in the limit "
    "of small starts the larger one always wins."
)


@claims.extension(
    "order",
    "Most starts learn the concept of the larger second moment first",
    "Yang et al. 2024, section 4; a bar for the eye",
    low=0.8,
)
def _share_in_order(run: xr.Dataset) -> Estimate:
    """Share of starts that first half learn the concept with the larger a = σ² + μ²/2."""
    larger = 1 + int(run.strength[1] > run.strength[0])
    first = _first(run)
    a = ", ".join(f"{float(value):.3g}" for value in run.strength)
    return Estimate.share(int((first == larger).sum()), len(first), f"a = {a}", over="random starts")


def _found(run: xr.Dataset) -> str:
    """Return which concept most starts learn first, and which one theory puts first."""
    first, (one, two) = _first(run), run.strength.values
    shares = [int((first == concept).sum()) for concept in (1, 2)]
    most = 1 + int(shares[1] > shares[0])
    theory = "theory: neither" if one == two else f"theory: concept {1 + int(two > one)}"
    return f"{max(shares)} of {len(first)} starts learn concept {most} first ({theory})"


def figures(run: xr.Dataset) -> Figures:
    """Draw the learned shares over time, and the map of orders."""
    by_concept = {"x": "time", "hue": "concept", "label": "concept {}", "grouped": True}
    curves = [*lines(run.learned.median("start"), width=3.0, **by_concept)]  # first: they are what the legend shows
    curves += [line for path in run.learned for line in lines(path, width=1.0, opacity=0.35, **by_concept)]
    sigma = np.linspace(0.0, _LARGEST_SIGMA, 200)
    line = np.sqrt(np.maximum(2 * (float(run.strength[1]) - sigma**2), 0.0))
    top = np.full_like(sigma, _LARGEST_MU)
    order = (
        Band(x=sigma, low=np.minimum(line, top), high=top, group="concept 1", color=0),
        Band(x=sigma, low=np.zeros_like(sigma), high=np.minimum(line, top), group="concept 2", color=1),
        Line(x=sigma, y=line, group="equal second moments", color=None, style="dashed"),
        Line(
            x=np.array([float(run.sigma[0])]),
            y=np.array([float(run.mu[0])]),
            group="concept 1 now",
            color=3,
            style="points",
            width=5.0,
            moves=("diversity", "signal"),
        ),
    )
    yield Figure(
        name="order",
        title=_found(run),
        caption="Left: the learned share of each concept at the combined test point, all starts and their median. "
        "Right: the concept that theory puts first, over signal and diversity of concept 1; on the live page, drag "
        "the point.",
        panels=(
            Panel(title="learning", x=Axis("time"), y=Axis("share learned"), marks=tuple(curves)),
            Panel(
                title="map",
                x=Axis("diversity σ₁", range=(0.0, _LARGEST_SIGMA)),
                y=Axis("signal μ₁", range=(0.0, _LARGEST_MU)),
                marks=order,
            ),
        ),
    )


entry = Entry(
    "toys/concepts",
    "Signal and diversity order the concepts",
    citation=TOYS,
    source="Concepts",
    quick={"starts": 8},
)
