"""Escape from the origin: the speeds that random starts find, against the depth and width of a ReLU network.

The data are those of Example 1 of Bantzis, Simon and Jacot (2025): eight points on a circle with loss gradients of
alternating sign. Networks whose layers all have rank one reach tan(π/8) at any depth; at depth 3 the largest speed
of all is 1/2.
"""

from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared.circle_data import alternating_circle, depth_three_optimum, rank_one_optimum
from saddlescope.plot import Axis, Figure, Figures, Line, Mark, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param
from saddlescope.reproduction.catalogue import TOYS

_SAMPLES = 8
_WIDEST = 16  # networks are padded to it, so that all widths share compiled code
_STEPS = 1000
_RATE = 0.03
_FASTER = 1e-3


class Params(EntryParams):
    """Descents from random starts look for the direction in which the loss falls fastest from the origin.

    Wide networks find faster ones than any network of rank one has; narrow ones rarely do. Theory: Bantzis et al.,
    arXiv:2505.21722.
    """

    depth: int = param(3, "depth of the network", ge=2, le=6)
    width: int = param(8, "width of the hidden layers", ge=1, le=_WIDEST)
    starts: int = param(32, "random starts", ge=8, le=64, multiple_of=8)
    seed: int = param(0, "seed of the starts", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Descend from all starts."""
    from saddlescope.theory.escape.sphere_descent import sphere_descent

    X, G = alternating_circle(_SAMPLES)
    rng = np.random.default_rng(params.seed)
    inner = (_WIDEST,) * (params.depth - 1)
    shapes = zip((*inner, G.shape[1]), (X.shape[1], *inner), strict=True)
    weights = [rng.standard_normal((params.starts, *shape)) for shape in shapes]
    for lower, upper in pairwise(weights):
        lower[:, params.width :], upper[:, :, params.width :] = 0.0, 0.0  # neurons without weights stay so
    record = np.unique(np.geomspace(1, _STEPS, 80).round().astype(int))
    _, speeds = sphere_descent(
        tuple(weights), X, G, steps=_STEPS, learning_rate=_RATE, record=record, report=context.report
    )
    return xr.Dataset(
        {"speed": (("start", "step"), speeds)},
        coords={"step": record},
        attrs={"depth": params.depth, "width": params.width},
    )


claims = Claims(limits="A descent of 1000 steps may end before it is above. The figure has no numbers.")


@claims.extension(
    "faster",
    "At least half of the starts find an escape faster than any network of rank one",
    "Conjecture 1 and Figure 2 of Bantzis et al., which has no numbers; a bar for the eye",
    low=0.5,
)
def _share_faster(run: xr.Dataset) -> Estimate:
    """Share of starts whose speed ends above tan(π/8), the best of rank one."""
    final = run.speed.values[:, -1]
    return Estimate.share(_faster(run), len(final), f"the fastest has {final.max():.4f}", over="random starts")


def _faster(run: xr.Dataset) -> int:
    return int((run.speed.values[:, -1] > rank_one_optimum(_SAMPLES) + _FASTER).sum())


def figures(run: xr.Dataset) -> Figures:
    """Draw the descents, and the share of starts above each speed."""
    bounds = (
        Mark(at=rank_one_optimum(_SAMPLES), label="best of rank one", axis="y"),
        Mark(at=depth_three_optimum(_SAMPLES), label="best of depth 3", axis="y"),
    )
    name = f"depth {run.attrs['depth']}, width {run.attrs['width']}"
    curves = tuple(
        Line(x=run.step.values, y=path, group=name, color=0, width=1.2, opacity=0.5) for path in run.speed.values
    )
    final = np.sort(run.speed.values[:, -1])[::-1]
    share = np.arange(1, len(final) + 1) / len(final)
    reached = Line(x=share, y=final, group=name, color=0, style="points", width=2.4)
    speed, starts = Axis("escape speed", range=(0.0, 0.55)), Axis("share of starts", range=(0.0, 1.03))
    yield Figure(
        name="speeds",
        title=f"{name.capitalize()}: {_faster(run)} of {len(final)} starts escape faster than rank one",
        caption="Left: the speed along each descent. Right: the final speeds, the fastest first. Lines: the "
        "best speed of networks of rank one, tan(π/8), and of all networks of depth 3, 1/2.",
        panels=(
            Panel(title="descents", x=Axis("step", scale="log"), y=speed, marks=(*curves, *bounds)),
            Panel(title="final speeds", x=starts, y=speed, marks=(reached, *bounds)),
        ),
    )


entry = Entry(
    "toys/escape",
    "Depth and width set the escape speed",
    citation=TOYS,
    source="Escape",
    quick={"starts": 8},
)
