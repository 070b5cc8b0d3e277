"""Width: the effect of the width d' and of the dimension d on transient memorization.

The symmetric two-layer network on two concepts, the data of Figure 5, with normal entries of U(0), (d, d'), of standard
deviation tau. Directions beyond the second have no data. Since W(0) = U U^T has w_ii near d' tau^2 but w_ij near
sqrt(d') tau^2 (equation E.1), minor entries of a wide network start small relative to the major ones, and suppression
hardly makes the loss rise. Descents are visible ones: separated by rises of more than 1 % of the first loss, as a
reader of the paper's figures could see.
"""

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.shared.random_starts import FIGURES, VISIBLE, draw_starts
from saddlescope.papers.concept_learning.shared.transient_memorization import difference_of_shares
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point
from saddlescope.plot import Axis, Figure, Figures, Panel, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, Evidence, RunContext, param

_UNTIL = 100.0
_TOLERANCE = 1e-6


class Params(EntryParams):
    """Widths, dimensions and scales."""

    widths: tuple[int, ...] = param((2, 4, 8, 16, 64), "widths d'", gt=0, least=2, order="increasing", scale="log")
    scales: tuple[float, ...] = param(
        (0.001, 0.03, 0.1),
        "standard deviations τ of the entries of U(0)",
        gt=0,
        least=2,
        order="increasing",
        scale="log",
    )
    high: int = param(8, "the higher dimension d; the lower one is 2", ge=3)
    starts: int = param(12_000, "random starts of each width and scale at d = 2", ge=16)
    high_starts: int = param(400, "random starts of each width and scale at the higher dimension", ge=16)
    seed: int = param(1, "seed of the starts", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Sample starts for every dimension, scale and width."""

    def sample(d: int, scale: float, width: int, step: RunContext) -> xr.Dataset:
        starts = params.starts if d == 2 else params.high_starts
        return sample_starts(d, width, scale, starts, (params.seed, step.cell))

    axes, each = (
        {"dim": (2, params.high), "scale": params.scales, "width": params.widths},
        len(params.scales) * len(params.widths),
    )
    return context.over(axes, sample, weights=[1] * each + [2] * each)


def sample_starts(d: int, width: int, scale: float, starts: int, seed: tuple[int, int]) -> xr.Dataset:
    """Count starts with several descents."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.measure import find_descents

    U = draw_starts(np.random.default_rng(seed), "normal", scale, (starts, d, width))
    # Without data the directions beyond the second are all alike: only V^T V of their rows V counts, thus the factor R.
    rows = U if d == 2 else np.concatenate([U[:, :2], np.linalg.qr(U[:, 2:], mode="r")], axis=1)
    a, x = (np.pad(of, (0, rows.shape[1] - 2)) for of in strengths_and_test_point(*FIGURES["Figure 5"]))
    flows = symmetric_flows(a, rows, test_point=x, until=_UNTIL, tolerance=_TOLERANCE)
    visible = find_descents(flows.turning_losses, hysteresis=VISIBLE).counts
    return xr.Dataset({"starts": starts, "visible": np.sum(visible >= 2)})


claims = Claims(
    limits="One data law with two concepts, and normal starts. At the smallest scale all rises are below the visible "
    "1 %, at any width and dimension, so the dimension is compared at the largest scale, where they are not. Section "
    "3.3 changes d and d' together, and E.2 names the width as a second reason; `figure-3` has four-layer networks. "
    "The bound of `wide` is from trial runs on other seeds at scales near 0.05."
)


@claims.reading(
    "wide",
    "In the widest networks, at most 5% of initial weights give two or more visible descents of the "
    "out-of-distribution loss",
    "Appendix E.2; 5% is this project's bar",
    high=0.05,
)
def _widest_share(run: xr.Dataset) -> Estimate:
    """Share of starts with two or more visible descents, at d = 2, the largest width and the second smallest scale."""
    one = run.isel(dim=0, scale=1, width=[0, -1])
    each = zip(one.width.values, (one.visible / one.starts).values, strict=True)
    shares = ", ".join(f"d' = {width}: {share:.4f}" for width, share in each)
    remark = f"{shares}, tau = {float(one.scale):g}"
    return Estimate.share(one.visible[-1], one.starts[-1], remark, over="random starts")


@claims.reading(
    "dimension",
    "At equal width, two or more visible out-of-distribution loss descents are more frequent in two dimensions than "
    "in more",
    "Section 3.3: 'strongest when dimensionality d of the dataset is low'",
    low=0.0,
)
def _dimension_difference(run: xr.Dataset) -> Estimate:
    """Share of starts with two or more visible descents at d = 2 less that at higher d, mean over widths.

    At the largest scale; the remark has both shares at every width.
    """
    one, found = run.isel(scale=-1), []
    for k in range(run.sizes["width"]):
        low, high = ((one.visible[dim, k], int(one.starts[dim, k])) for dim in (0, 1))
        found.append(difference_of_shares(low, high))
    shares = (one.visible / one.starts).values
    remark = ", ".join(f"{low:.3f} and {high:.3f}" for low, high in shares.T)
    return Estimate(
        sum(each.value for each in found) / len(found),
        sum(each.uncertainty**2 for each in found) ** 0.5 / len(found),
        f"d = {int(run.dim[0])} and {int(run.dim[1])}, by width: {remark}",
        int(one.starts[1].sum()),
        evidence=Evidence.SAMPLE,
        over="random starts",
    )


def figures(run: xr.Dataset) -> Figures:
    """Draw the share with two or more descents against the width."""
    shares = (run.visible / run.starts).assign_coords(width=np.log2(run.width))
    marks = [
        mark
        for dim in (0, 1)
        for mark in lines(
            shares.isel(dim=dim, drop=True),
            x="width",
            hue="scale",
            label=f"τ = {{:g}}, d = {int(run.dim[dim])}",
            grouped=True,
            style="dashed" if dim else "solid",
        )
    ]
    yield Figure(
        name="width",
        title="Share of starts with two or more visible descents against the width",
        caption="Share of normal starts with two or more descents of the loss, separated by rises of more than 1 % "
        "of the first loss; two concepts, scales τ and dimensions d.",
        panels=(Panel(x=Axis("log₂ of the width d'"), y=Axis("share of starts"), marks=tuple(marks)),),
    )


entry = Entry(
    "concept-learning/width",
    "Width: the effect of the width d' and of the dimension d on transient memorization",
    source="Section 3.3, appendix E.2",
    quick=dict(widths=(2, 16), scales=(0.001, 0.03), high=4, starts=400, high_starts=48),
    paper=dict(high=64, high_starts=100),
)
