"""Figures 8 and 9: the diagonals of both products tend to a limiting trajectory as alpha vanishes.

The run is Figure 2's: one head learns a teacher head from ever smaller initial weights alpha. Here every entry of the
diagonals of W_K W_Q^T (Figure 8) and W_V W_O^T (Figure 9) is compared with the limit that Algorithm 1 predicts.

    t       rescaled time: time of the gradient flow divided by log(1/alpha)
    B(t)    the predicted limit: beta on the plateau that lasts at time t, a staircase
    d       distance of two trajectories of one product: mean over t in [0, until] of the sum over its entries of
            the absolute difference

Pointwise distances would not do: near a jump of the limit the trajectories are as far from it as the jump is high, at
any alpha, during a time that vanishes with alpha.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.figure_2 import Params, metrics, run
from saddlescope.papers.gradual_rank.shared.diagonal_entries import PRODUCTS, coordinates, entry_panel, staircase
from saddlescope.plot import Axis, Figure, Line, Panel, Table
from saddlescope.reproduction.claim import Claim, Estimate, Kind
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


# The bounds. "The training trajectories tend to a limiting trajectory" has no number. Read here as: each smaller alpha
# is nearer to the limit that the theory predicts; and, without any theory, each step to a smaller alpha moves the
# trajectory by less than the step before (Cauchy's criterion).
def _largest_ratio(
    distances: Callable[[xr.Dataset, str], np.ndarray], product: str, needed: int
) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        if run.sizes["scale"] < needed:
            return Estimate.unresolved(f"{needed} scales are needed to see whether anything converges.")
        found = distances(run, product)
        shown = ", ".join(f"{distance:.3g}" for distance in found)
        return Estimate(float((found[1:] / found[:-1]).max()), remark=f"distances {shown}")

    return statistic


claims = tuple(
    claim
    for product, name in PRODUCTS.items()
    for claim in (
        Claim(
            name=f"limit-{product}",
            statement=f"The diagonal of {name} tends to Algorithm 1's staircase",
            quantity="largest ratio of distances, each alpha to the one before",
            kind=Kind.PRINTED,
            source=f"Figure {8 if product == 'KQ' else 9}: 'as alpha -> 0 [they] tend to a limiting trajectory', "
            "which by Theorem 4.1 is the staircase",
            high=1.0,
            statistic=_largest_ratio(distances_to_limit, product, 2),
        ),
        Claim(
            name=f"cauchy-{product}",
            statement=f"Each step to a smaller alpha moves the diagonal of {name} by less than the step before",
            quantity="largest ratio of moves",
            kind=Kind.PRINTED,
            source=f"Figure {8 if product == 'KQ' else 9}: Cauchy's criterion, which needs no theory of the limit",
            high=1.0,
            statistic=_largest_ratio(distances_to_next, product, 3),
        ),
    )
)


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw Figure 8, Figure 9, and the distance to the limit against the scale."""
    return [_diagonals(run, "KQ", "figure-8"), _diagonals(run, "VO", "figure-9"), _convergence(run)]


def _diagonals(run: xr.Dataset, product: str, name: str) -> Figure:
    begin = float(run.time.values[1])
    return Figure(
        name=name,
        title=f"The diagonal of {PRODUCTS[product]} tends to a staircase",
        caption=f"Each line is one diagonal entry of {PRODUCTS[product]} over rescaled time, on a logarithmic axis; "
        "panels go to smaller initial scales alpha. Dashed, in every panel: the limit that Algorithm 1 predicts from "
        "the loss alone.",
        panels=tuple(entry_panel(run, product, scale, begin=begin) for scale in run.scale.values),
        columns=3,
    )


def _convergence(run: xr.Dataset) -> Figure:
    digits = -run.scale.values
    measures = (
        ("to the limit", digits, distances_to_limit),
        ("to the next alpha", digits[:-1], distances_to_next),
    )
    panels = tuple(
        Panel(
            title=title,
            x=Axis("digits of alpha, log10(1/alpha)", scale="log"),
            y=Axis("mean distance, summed over entries", scale="log"),
            marks=tuple(
                Line(x=x, y=distances(run, product), label=name if k == 0 else "", group=name, color=color)
                for color, (product, name) in enumerate(PRODUCTS.items())
            ),
        )
        for k, (title, x, distances) in enumerate(measures)
        if len(x)
    )
    return Figure(
        name="convergence",
        title="How fast the trajectories converge",
        caption="Distance of the trajectory at each alpha to the predicted limit (left) and to the trajectory at the "
        "next smaller alpha (right): the sum over the entries of one product of the absolute difference, averaged over "
        "rescaled time.",
        panels=panels,
        table=Table(
            columns=("alpha", *(f"{name}, to the limit" for name in PRODUCTS.values())),
            rows=tuple(
                (f"1e{scale:g}", *map(float, row))
                for scale, row in zip(
                    run.scale.values, zip(*(distances_to_limit(run, p) for p in PRODUCTS), strict=True), strict=True
                )
            ),
        ),
    )


entry = Entry(
    "gradual-rank/figure-8",
    "Figures 8 and 9: the diagonals of both products tend to a limiting trajectory as alpha vanishes",
    citation=CITATION,
    source="Appendix A",
    params=Params,
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
