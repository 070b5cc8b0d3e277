"""Figures of the entry `descents`."""

from typing import Literal

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Figure, Line, Panel, Table

_STYLES: dict[str, Literal["solid", "dashed"]] = {"normal": "solid", "uniform": "dashed"}


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw numbers of descents, rises, counts against hysteresis, and the losses of the best starts found."""
    return [_statistics(run), *([_found(run)] if bool((run.rise > 0).any()) else [])]


def _statistics(run: xr.Dataset) -> Figure:
    how_many, how_far, seen = [], [], []
    for k, name in enumerate(run.data.values.tolist()):
        for law, style in _STYLES.items():
            one = run.sel(data=name, law=law)
            total, label = float(one.counts.sum()), f"{name}, {law}"
            some = one.counts.values > 0
            how_many.append(
                Line(x=run.descents.values[some], y=one.counts.values[some] / total, group=label, color=k, style=style)
            )
            how_far.append(
                Line(x=10**run.log_rise.values, y=np.cumsum(one.rises.values[::-1])[::-1] / total, group=label, color=k,
                     style=style)
            )  # fmt: skip
            several = one.counts_at.sel(descents=slice(2, None)).sum("descents").values / total
            seen.append(Line(x=run.hysteresis.values[1:], y=several[1:], group=label, color=k, style=style))
    more = [
        Line(x=run.hysteresis.values[1:], y=(run.counts_at.sel(data=name, law="uniform", descents=slice(3, None))
             .sum("descents") / run.counts.sel(data=name, law="uniform").sum()).values[1:], group=f"{name}, uniform",
             color=k, style="dashed")
        for k, name in enumerate(run.data.values.tolist())
    ]  # fmt: skip
    rows = [
        (name, law, int(run.counts.sel(data=name, law=law).sum()),
         *(float(run.counts.sel(data=name, law=law, descents=k) / run.counts.sel(data=name, law=law).sum())
           for k in (1, 2, 3, 4, 5)),
         float(run.largest_rise.sel(data=name, law=law)))
        for name in run.data.values.tolist() for law in ("normal", "uniform")
    ]  # fmt: skip
    share = Axis("share of the starts", scale="log")
    h = Axis("hysteresis, over the first loss", scale="log")
    return Figure(
        name="statistics",
        title="Several descents are common where W starts positive, and most rises are small",
        caption="Random starts at the scale of the paper's figures. Top: how many descents they have at hysteresis 0, "
        "and how many have a rise between descents of at least so much. Bottom: how many still have two descents, or "
        "three, when rises below the hysteresis do not count. Dashed: entries of U between 0 and the scale, the "
        "authors' own law; solid: normal ones, of both signs.",
        panels=(
            Panel(title="how many", x=Axis("descents"), y=share, marks=tuple(how_many)),
            Panel(title="how far", x=Axis("largest rise / (|x|²/2)", scale="log"), y=share, marks=tuple(how_far)),
            Panel(title="two or more", x=h, y=Axis("share of the starts"), marks=tuple(seen)),
            Panel(title="three or more", x=h, y=share, marks=tuple(more)),
        ),
        table=Table(
            columns=("data", "law", "starts", "P(1)", "P(2)", "P(3)", "P(4)", "P(5)", "largest rise"), rows=tuple(rows)
        ),
    )


def _found(run: xr.Dataset) -> Figure:
    titles = {
        "three": "three descents, Figure 8's data",
        "four": "four descents, Figure 9's data",
        "2 concepts, three": "three with two concepts",
        "3 concepts, four": "four with three concepts",
        "3 concepts, four, large": "four with three concepts, from large weights",
    }
    panels = [
        Panel(
            title=f"{titles[kind]}: rise {float(one.rise):.3f}",
            x=Axis("time", "t", scale="log"),
            y=Axis("loss / (|x|²/2)", range=(0.0, 1.05)),
            marks=(Line(x=one.curve_time.values, y=one.curve.values, color=0),),
        )
        for kind in run.kind.values.tolist()
        if float((one := run.sel(kind=kind)).rise) > 0
    ]
    return Figure(
        name="found",
        title="A search finds starts whose loss rises far before the last descent",
        caption="Loss out of distribution of the starts found, with entries of U up to 0.3; where there is a start of "
        "large weights, up to 4, W(0) is larger than the identity, and three concepts make four descents.",
        panels=tuple(panels),
    )
