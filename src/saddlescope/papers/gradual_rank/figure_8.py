"""Figures 8 and 9: the diagonals of both products tend to a limiting trajectory as α vanishes.

The run is Figure 2's: one head learns a teacher head from ever smaller initial weights. Here every entry of the
diagonals of W_K W_Qᵀ (Figure 8) and W_V W_Oᵀ (Figure 9) is compared with the limit that Algorithm 1 predicts.

    t       rescaled time: time of the gradient flow divided by log(1/α)
    B(t)    the predicted limit: β on the plateau at time t, a staircase
    d       distance of two trajectories of one product: mean over t in [0, until] of the sum over its entries of
            the absolute difference

Pointwise distances do not converge: near a jump of the limit a trajectory is away by the height of the jump at any α,
for a time that vanishes with α.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank import CITATION, figure_2
from saddlescope.papers.gradual_rank.shared.diagonal_entries import PRODUCTS, coordinates, entry_panel, staircase
from saddlescope.plot import Axis, Figure, Line, Panel, Table
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.entry import Entry


def _distance(run: xr.Dataset, product: str, one: np.ndarray, other: np.ndarray) -> float:
    """Return the distance d of two trajectories of shape (times, coordinates)."""
    time = run.time.values
    apart = np.abs(one - other)[:, list(coordinates(run, product))].sum(axis=1)
    return float(np.trapezoid(apart, time) / time[-1])


def distances_to_limit(run: xr.Dataset, product: str) -> np.ndarray:
    """Return the distance of each scale's trajectory to the predicted limit, shape (scales,)."""
    limit = staircase(run)
    return np.array([_distance(run, product, run.beta.sel(scale=scale).values, limit) for scale in run.scale.values])


def distances_to_next(run: xr.Dataset, product: str) -> np.ndarray:
    """Return the distance of each scale's trajectory to that of the next smaller scale, shape (scales - 1,)."""
    trajectories = [run.beta.sel(scale=scale).values for scale in run.scale.values]
    return np.array([_distance(run, product, *pair) for pair in pairwise(trajectories)])


def _largest_ratio(
    distances: Callable[[xr.Dataset, str], np.ndarray], product: str, needed: int, run: xr.Dataset
) -> Estimate:
    if run.sizes["scale"] < needed:
        return Estimate.unresolved(f"Convergence needs {needed} or more initial scales; add some to `log10_scales`.")
    found = distances(run, product)
    shown = ", ".join(f"{distance:.3g}" for distance in found)
    return Estimate.largest(found[1:] / found[:-1], f"distances {shown}")


# The bounds. "The training trajectories tend to a limiting trajectory" has no number. Read here as: each smaller α is
# nearer to the limit that the theory predicts; and, without any theory, each step to a smaller α moves the trajectory
# by less than the step before (Cauchy's criterion).
claims = Claims()
for _product, _name in PRODUCTS.items():
    _figure = {"KQ": "Figure 8", "VO": "Figure 9"}[_product]
    claims.add(
        f"limit-{_product}",
        f"Each smaller initial scale brings the diagonal of {_name} closer to the staircase that Algorithm 1 "
            "predicts",
        quantity="largest ratio, from one initial scale to the next smaller, of the time-averaged distance of the "
            "trained diagonal from the staircase",
        kind="reading", source=f"{_figure}: 'tend to a limiting trajectory', by Theorem 4.1 the staircase", high=1.0,
        evidence="cases", over="steps to a smaller scale",
        why="Tending to a limit is a distance that falls with the scale, and its mean over time allows for the jumps",
        doubt="Six scales of one clean instance, by gradient flow, where the paper trains with SGD; a distance that "
            "falls need not vanish",
    )(partial(_largest_ratio, distances_to_limit, _product, 2))  # fmt: skip
    claims.add(
        f"cauchy-{_product}",
        f"Each smaller initial scale moves the training trajectory of {_name}'s diagonal by less than the one before",
        quantity="largest ratio of the time-averaged distance between trajectories at successive initial scales to "
            "that one step before", kind="reading",
        source=f"{_figure}: 'tend to a limiting trajectory'; Cauchy's criterion needs no theory of the limit",
        high=1.0, sizes=("default", "paper"), evidence="cases", over="steps to a smaller scale",
        why="Steps that shrink by a factor below 1 have a finite sum, so that the trajectories have some limit",
        doubt="Ratios below 1 at five steps do not bound those of smaller scales, and scales are spaced unevenly in "
            "digits",
    )(partial(_largest_ratio, distances_to_next, _product, 3))  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw Figure 8, Figure 9, and the distance to the limit against the scale."""
    return [_diagonals(run, "KQ", "figure-8"), _diagonals(run, "VO", "figure-9"), _convergence(run)]


def _diagonals(run: xr.Dataset, product: str, name: str) -> Figure:
    begin = float(run.time.values[1])
    return Figure(
        name=name,
        title=f"Diagonal of {PRODUCTS[product]} at each initial scale",
        caption=f"Each line is one diagonal entry of {PRODUCTS[product]} over rescaled time, on a logarithmic axis; "
        "one panel per initial scale α. Dashed: the limit that Algorithm 1 predicts from the loss alone.",
        panels=tuple(entry_panel(run, product, scale, begin=begin) for scale in run.scale.values),
        columns=3,
    )


def _convergence(run: xr.Dataset) -> Figure:
    digits = -run.scale.values
    limits = {product: distances_to_limit(run, product) for product in PRODUCTS}
    steps = {product: distances_to_next(run, product) for product in PRODUCTS}
    return Figure(
        name="convergence",
        title="Distance between trajectories against the initial scale",
        caption="Distance of the trajectory at each α to the predicted limit (left) and to the trajectory at the "
        "next smaller α (right): the sum over the entries of one product of the absolute difference, averaged over "
        "rescaled time.",
        panels=tuple(
            Panel(
                title=title,
                x=Axis("digits of α, log10(1/α)", scale="log"),
                y=Axis("mean distance, summed over entries", scale="log"),
                marks=tuple(
                    Line(x=x, y=distances[product], label=name if title == "to the limit" else "", group=name, color=k)
                    for k, (product, name) in enumerate(PRODUCTS.items())
                ),
            )
            for title, x, distances in (("to the limit", digits, limits), ("to the next α", digits[:-1], steps))
            if len(x)
        ),
        table=Table(
            columns=("α", *(f"{name}, to the limit" for name in PRODUCTS.values())),
            rows=tuple(
                (f"1e{scale:g}", *(float(limits[product][k]) for product in PRODUCTS))
                for k, scale in enumerate(run.scale.values)
            ),
        ),
    )


entry = Entry(
    "gradual-rank/figure-8",
    "Figures 8 and 9: the diagonals of both products tend to a limiting trajectory as α vanishes", citation=CITATION,
    source="Appendix A", params=figure_2.Params, quick=figure_2.entry.quick, run=figure_2.run, claims=claims,
    figures=figures, metrics=figure_2.metrics,
)  # fmt: skip
