"""Figure of the entry `figure_3`: outputs, losses, and the role of depth."""

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.figure_3.claims import LARGE, select_networks
from saddlescope.papers.concept_learning.figure_3.simulations import HIGH, LOW, WHOLE, WIDE
from saddlescope.plot import Axis, Figure, Line, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw outputs, losses and the role of depth, with a table of all networks."""
    return [
        Figure(
            name="transient",
            title="Deep networks of low dimension memorize before they generalise",
            caption="Left: outputs of four-layer networks at the test point, one a dimension, points at marks evenly "
            "spaced in the logarithm of the step; the one of low dimension is the transient one with the median rise. "
            "Middle: loss at the test point of 12 networks of either dimension over its start. Right: part of the "
            "networks whose loss rises again, against depth: noise of SGD adds to it.",
            panels=(_plane(run), _losses(run), _depths(run)),
            columns=3,
            table=_table(run),
        )
    ]


def _example(run: xr.Dataset) -> int:
    """Return the transient network of median rise in low dimension, else that of the largest rise."""
    one = select_networks(run, LOW, run.attrs["paper_depth"])
    rise = np.where(one.descents > 1, one.rise, np.nan)
    if np.isnan(rise).all():
        return int(np.argmax(one.rise.values))
    return int(np.nanargmin(abs(rise - np.nanmedian(rise))))


def _name(run: xr.Dataset, kind: str) -> str:
    return f"d = {run.attrs['low' if kind == LOW else 'high']}"


def _plane(run: xr.Dataset) -> Panel:
    mu = np.array(run.attrs["mu"])
    lines: list[Line] = []
    for k, kind in enumerate((LOW, HIGH)):
        output = run.output.isel(dimension=(run.shown == kind).values).isel(dimension=0, seed=_example(run))
        x, y = output.transpose("concept", "step").values
        lines.append(Line(x=x, y=y, group=_name(run, kind), color=k, width=1.2, opacity=0.6))
        lines.append(Line(x=x[::8], y=y[::8], group=_name(run, kind), color=k, style="points", width=1.5))
    goal, clusters = mu[:, None], np.concatenate([np.diag(mu), np.zeros((2, 1))], axis=1)
    lines.append(Line(x=goal[0], y=goal[1], label="test point", color=2, style="points", width=6.0))
    lines.append(Line(x=clusters[0], y=clusters[1], label="training clusters", color=3, style="points", width=6.0))
    return Panel(title="output", x=Axis("concept 1"), y=Axis("concept 2"), marks=tuple(lines))


def _losses(run: xr.Dataset) -> Panel:
    lines: list[Line] = []
    for k, kind in enumerate((LOW, HIGH)):
        losses = select_networks(run, kind, run.attrs["paper_depth"]).test_loss.transpose("seed", "step").values
        lines += [
            Line(x=run.step.values[1:], y=(loss / loss[0])[1:], group=_name(run, kind), color=k, width=1.0, opacity=0.7)
            for loss in losses[:12]
        ]
    return Panel(
        title=f"depth {run.attrs['paper_depth']}", x=Axis("step", scale="log"), y=Axis("loss over its start"),
        marks=tuple(lines),
    )  # fmt: skip


def _depths(run: xr.Dataset) -> Panel:
    lines: list[Line] = []
    low, high = _name(run, LOW), _name(run, HIGH)
    for kind, group, color in ((LOW, low, 0), (HIGH, high, 1), (WHOLE, f"{low}, no minibatches", 4)):
        of_kind = run.isel(network=(run.kind == kind).values)
        depth, part = of_kind.depth.values, (of_kind.descents > 1).mean("seed").values
        lines.append(Line(x=depth, y=part, group=group, color=color, width=2.0))
        lines.append(Line(x=depth, y=part, group=group, color=color, style="points", width=3.0))
    wide = select_networks(run, WIDE, run.attrs["paper_depth"])
    share = np.atleast_1d(float((wide.descents > 1).mean()))
    label = f"{low}, no minibatches, hidden layers of {run.attrs['high']}"
    lines.append(Line(x=np.atleast_1d(int(wide.depth)), y=share, label=label, color=5, style="points", width=5.0))
    return Panel(
        title="role of depth", x=Axis("depth"), y=Axis("transient part", range=(-0.02, 1.02)), marks=tuple(lines)
    )


def _table(run: xr.Dataset) -> Table:
    rows = []
    for n in range(run.sizes["network"]):
        one = run.isel(network=n)
        counts = one.descents.values
        left = one.test_loss.isel(step=-1) / one.test_loss.isel(step=0)
        rows.append(
            (
                str(one.kind.item()), int(one.depth), *(int((counts == k).sum()) for k in (0, 1, 2)),
                int((counts > 2).sum()), int((one.rise.values[counts > 1] > LARGE).sum()),
                float(one.rise.median()), float(one.rise.max()), float(left.median()),
            )
        )  # fmt: skip
    columns = (
        "networks", "depth", "no descent", "one", "two", "more", "transient with a rise above 5 %",
        "rise over the first loss, median", "largest", "loss left at the end, median",
    )  # fmt: skip
    return Table(columns=columns, rows=tuple(rows))
