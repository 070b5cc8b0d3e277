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

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank import CITATION, figure_2
from saddlescope.papers.gradual_rank.shared.diagonal_entries import PRODUCTS, coordinates, entry_panel, staircase
from saddlescope.plot import Axis, Figure, Line, Panel
from saddlescope.reproduction import Claims, Entry, Estimate


def distances_to_limit(run: xr.Dataset, product: str) -> np.ndarray:
    """Return the distance d of each scale's trajectory to the predicted limit, shape (scales,)."""
    time, beta = run.time.values, run.beta.transpose("scale", "time", "coordinate").values
    apart = np.abs(beta - staircase(run, time))[..., list(coordinates(run, product))].sum(axis=-1)
    return np.trapezoid(apart, time) / time[-1]


claims = Claims(
    limits="Six scales of one instance by gradient flow, where the paper trains by SGD; a distance that falls need not "
    "vanish."
)


@claims.reading(
    "limit",
    "Each smaller initial scale brings the diagonals of W_K W_Qᵀ and W_V W_Oᵀ closer to Algorithm 1's staircase",
    "Figures 8 and 9: 'tend to a limiting trajectory', by Theorem 4.1 the staircase",
    high=1.0,
)
def _largest_ratio(run: xr.Dataset) -> Estimate:
    """Largest ratio, from one α to the next smaller, of the time-averaged distance of a diagonal from the staircase."""
    if run.sizes["scale"] < 2:
        return Estimate.unresolved("Convergence needs two or more initial scales; add some to `log10_scales`.")
    found = {product: distances_to_limit(run, product) for product in PRODUCTS}
    shown = "; ".join(f"{product}: " + ", ".join(f"{d:.3g}" for d in each) for product, each in found.items())
    ratios = [each[1:] / each[:-1] for each in found.values()]
    return Estimate.largest(ratios, f"distances of {shown}", over="products and steps to a smaller scale")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw Figure 8, Figure 9, and the distance to the limit against the scale."""
    begin = float(run.time.values[1])
    diagonals = [
        Figure(
            name=figure,
            title=f"Diagonal of {PRODUCTS[product]} at each initial scale",
            caption=f"Each line is one diagonal entry of {PRODUCTS[product]} over rescaled time, on a logarithmic "
            "axis; one panel per initial scale α. Dashed: the limit that Algorithm 1 predicts from the loss alone.",
            panels=tuple(entry_panel(run, product, scale, begin=begin) for scale in run.scale.values),
            columns=3,
        )
        for product, figure in (("KQ", "figure-8"), ("VO", "figure-9"))
    ]
    x, y = Axis("digits of α, log10(1/α)", scale="log"), Axis("mean distance, summed over entries", scale="log")
    marks = tuple(
        Line(x=-run.scale.values, y=distances_to_limit(run, product), label=name, color=k)
        for k, (product, name) in enumerate(PRODUCTS.items())
    )
    convergence = Figure(
        name="convergence",
        title="Distance of trajectories from the limit against the initial scale",
        caption="Distance of the trajectory at each α to the predicted limit: the sum over the entries of one product "
        "of the absolute difference, averaged over rescaled time.",
        panels=(Panel(x=x, y=y, marks=marks),),
    )
    return [*diagonals, convergence]


entry = Entry(
    "gradual-rank/figure-8",
    "Figures 8 and 9: the diagonals of both products tend to a limiting trajectory as α vanishes",
    citation=CITATION,
    source="Appendix A",
    params=figure_2.Params,
    quick=figure_2.entry.quick,
    run=figure_2.run,
    claims=claims,
    figures=figures,
    metrics=figure_2.metrics,
)
