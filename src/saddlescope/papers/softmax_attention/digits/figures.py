"""Figures of the flows on digits: shares over time, outcomes by pair, and the tokens."""

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.digits.claims import FLOWS, MINIMISED_NORMS
from saddlescope.papers.softmax_attention.digits.digit_tokens import SIDE
from saddlescope.plot import Axis, Figure, Heat, Line, Mark, Panel, Table

_OUTCOMES = ("nuclear", "Frobenius", "undecided", "lost", "unfollowed", "none")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw excesses over time, outcomes by pair, and the tokens."""
    rows = tuple(
        (flow, *(int(np.sum(run.outcome.sel(flow=flow).values == name)) for name in _OUTCOMES)) for flow in FLOWS
    )
    return [
        Figure(
            name="shares",
            title="On real images each flow minimises its own norm, where it chooses every optimal patch",
            caption="Excess of the direction over the least norm, in units of that of the other norm's solution: 0 "
            "where it solves the problem, 1 where it is no nearer than the other solution is. Lines are pairs "
            "of digits in which every margin gets positive. The table counts pairs by outcome.",
            panels=tuple(_shares_panel(run, flow) for flow in range(len(FLOWS))),
            columns=3,
            table=Table(columns=("flow", *_OUTCOMES), rows=rows),
        ),
        Figure(
            name="tokens",
            title="What the tokens are",
            caption="Images of the first pair, four patches each; the patch of the highest score, which attention "
            "should choose, as it is, the others dimmed.",
            panels=tuple(
                _image_panel(image, int(best)) for image, best in zip(run.image.values, run.optimal.values, strict=True)
            ),
            columns=4,
        ),
    ]


def _shares_panel(run: xr.Dataset, flow: int) -> Panel:
    of = run.isel(flow=flow)
    chosen = of.isel(pair=np.isin(of.outcome.values, _OUTCOMES[:3]))
    lines = [
        Line(x=run.log_time.values, y=np.maximum(values, 1e-8), group=f"{name} norm", color=k, opacity=0.5, width=1.0)
        for k, name in enumerate(("nuclear", "Frobenius"))
        for values in chosen.share.sel(norm=name).values
    ]
    return Panel(
        title=f"{FLOWS[flow]}: {MINIMISED_NORMS[flow]} expected",
        x=Axis("ln t", scale="log"),
        y=Axis("share", scale="log", range=(1e-6, 1e2)),
        marks=(*lines, Mark(at=0.1, label="resolved", axis="y")),
    )


def _image_panel(image: np.ndarray, best: int) -> Panel:
    shown, (row, column) = 0.3 * image, divmod(best, image.shape[1] // SIDE)
    place = np.s_[row * SIDE : (row + 1) * SIDE, column * SIDE : (column + 1) * SIDE]
    shown[place] = image[place]
    side = np.arange(len(image))
    return Panel(title="", x=Axis("pixel"), y=Axis("pixel"), marks=(Heat(x=side, y=side[::-1], z=shown),))
