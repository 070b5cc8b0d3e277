"""Figure of Theorem 3.1: the bound by layer, its first layer with content, and the optima."""

import math

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the bound by layer, the first layer at which it has content, and the optimum beside it."""
    names = list(dict.fromkeys(str(name) for name in run.data.values))
    curves, firsts, actual = [], [], []
    for color, name in enumerate(names):
        some = run.isel(data=run.data.values == name)
        middle = some.isel(data=int(np.argsort(some.constant.values)[some.sizes["data"] // 2]))
        curves.append(Line(x=run.l.values, y=middle.curve.values, group=name, color=color))
        firsts.append(
            Line(
                x=np.exp(some.budget.values / 2) - 1, y=some.first_layer.values, group=name, color=color, style="points"
            )
        )
        tails = np.maximum(some.activations.max("data").values, 1e-16)
        actual.append(Line(x=run.layer.values, y=tails, group=name, color=color, style="points"))
    excess = np.geomspace(1e-8, 20, 100)
    law = 81 * (1 + excess) ** 2 * 2 * np.log1p(excess)
    firsts.append(Line(x=excess, y=law, label="81 c²", style="dashed", color=len(names), width=1.2))
    one = Mark(at=1.0, label="all ratios are at most 1", axis="y")
    return [
        Figure(
            name="content",
            title="Theorem 3.1 speaks from layer 81 c² on: layer 115,000 for Example 1",
            caption="Left: the theorem's bound against the layer, for circles and for data near rank one (the median "
            "one of each kind); above 1 it says nothing. Middle: the first layer where it is below 1, against how far "
            "|X||G|/s* is above 1, its least value. Right: what it bounds, the largest tail(Zσ_l) of the optimum over "
            "the data sets of each kind; exactly 0 is drawn at 1e-16. The table has what the sharper inequality says.",
            panels=(
                Panel(
                    title="the bound",
                    x=Axis("layer l", scale="log"),
                    y=Axis("bound", scale="log", range=(1e-3, 1e3)),
                    marks=(*curves, one),
                ),
                Panel(
                    title="where it begins",
                    x=Axis("|X||G|/s* − 1", scale="log"),
                    y=Axis("first layer", scale="log"),
                    marks=tuple(firsts),
                ),
                Panel(
                    title=f"the optimum, made {int(run.layer[-1]) + 1} layers deep",
                    x=Axis("layer l", scale="log"),
                    y=Axis("tail(Zσ)", scale="log"),
                    marks=tuple(actual),
                ),
            ),
            columns=3,
            table=_table(run, names),
        )
    ]


def _table(run: xr.Dataset, names: list[str]) -> Table:
    rows = []
    for name in names:
        some = run.isel(data=run.data.values == name)
        budget = float(some.budget.max())
        rows.append(
            (
                name,
                some.sizes["data"],
                int(some.one_sign.sum()),
                math.ceil(float(some.first_layer.max())),
                f"{budget:.3g}",
                f"{float((some.spent / some.budget).max()):.3f}",
                math.floor(budget / math.log(2)),
            )
        )
    columns = (
        "data", "sets", "with G of one sign", "first layer with content", "budget", "spent, largest share",
        "layers with a tail above 1/2, at most",
    )  # fmt: skip
    return Table(columns=columns, rows=tuple(rows))
