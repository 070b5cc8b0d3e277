"""The figures of the entry on tied heads."""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.tied_heads.claims import HEADS, head_ratios, smallest_scale
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table, corners


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the pair over time, its ratio, and the keys that end the tie."""
    return [_pair(run), _ratio(run), _keys(run)]


def _alpha(log10_scale: float) -> str:
    return f"alpha = 1e{log10_scale:g}"


def _predicted(run: xr.Dataset) -> xr.DataArray:
    return run.total * run.predicted_share


def _pair(run: xr.Dataset) -> Figure:
    one = run.isel(seed=0)
    panels = []
    for scale in run.scale.values:
        both = one.beta.sel(scale=scale).isel(coordinate=one.pair)
        marks: list[Line | Mark] = [
            Line(x=run.time.values, y=both.sel(head=head).values, group=f"head {head}", color=color)
            for color, head in enumerate(run["head"].values)
        ]
        marks += [
            Mark(at=float(_predicted(one).sel(head=head)), axis="y", group=f"head {head}, predicted", color=color)
            for color, head in enumerate(run["head"].values)
        ]
        marks.append(Mark(at=1.0, group="T_1"))
        panels.append(
            Panel(
                title=_alpha(scale),
                x=Axis("t / (T_1 log(1/alpha))"),
                y=Axis("entry of W_V W_Oᵀ"),
                marks=tuple(marks),
            )
        )
    return Figure(
        name="pair",
        title="Two heads of one layer learn the same entry together",
        caption="The tied entry of W_V W_Oᵀ in both heads against rescaled time, for ever smaller initial scales. "
        "Horizontal lines: the share of each head on the first plateau, predicted from the initial weights; the "
        "vertical one: T_1. The ratio lasts until the first key is learned; who has the entry in the end is decided by "
        f"later stages. Seed {int(one.seed)}.",
        panels=tuple(panels),
    )


def _ratio(run: xr.Dataset) -> Figure:
    one = run.isel(seed=0)
    logs = one.log_abs_pair.sel(head=1) - one.log_abs_pair.sel(head=2)
    predicted = float(head_ratios(one, "predicted_share")[1])
    curves: list[Line | Mark] = [
        Line(x=run.time.values, y=np.exp(logs.sel(scale=scale).values), label=_alpha(scale), color=color)
        for color, scale in enumerate(run.scale.values)
    ]
    measured, theory = head_ratios(run, "found_pair")
    spread = [float(theory.min()) / 3, float(theory.max()) * 3]
    points: list[Line] = [
        Line(x=np.array(spread), y=np.array(spread), label="equal", style="dashed", width=1.0),
        *(
            Line(x=theory.values, y=measured.sel(scale=scale).values, group=_alpha(scale), color=color, style="points")
            for color, scale in enumerate(run.scale.values)
        ),
    ]
    return Figure(
        name="ratio",
        title="The ratio of the two heads follows from the initial weights",
        caption=f"Left: the ratio of the tied entries over time, seed {int(one.seed)}; the line is the prediction. It "
        "is there long before the entries are learned, the same at every alpha, and ends with the first keys. Right: "
        "measured at t_1 against predicted, for all seeds and scales.",
        panels=(
            Panel(
                title="|b^1 / b^2| over time",
                x=Axis("t / (T_1 log(1/alpha))"),
                y=Axis("ratio of head 1 to head 2", scale="log", range=(predicted / 1e3, predicted * 1e3)),
                marks=(*curves, Mark(at=predicted, axis="y", label="predicted")),
            ),
            Panel(
                title="b^1 / b^2 at t_1",
                x=Axis("predicted", scale="log"),
                y=Axis("measured", scale="log"),
                marks=tuple(points),
            ),
        ),
        table=Table(
            columns=("seed", "T_1", "predicted b^1 / b^2", *(f"at {_alpha(s)}" for s in run.scale.values), "keys"),
            rows=tuple(_row(run.sel(seed=seed)) for seed in run.seed.values),
        ),
    )


def _row(one: xr.Dataset) -> tuple[str | float | int, ...]:
    measured, predicted = head_ratios(one, "found_pair")
    keys, _ = head_ratios(smallest_scale(one), "key_growth")
    return int(one.seed), float(one.first_time), float(predicted), *(float(value) for value in measured), float(keys)


def _keys(run: xr.Dataset) -> Figure:
    one = smallest_scale(run.isel(seed=0))
    head_size = run.sizes["coordinate"] // HEADS
    panels = []
    for first, name in ((0, "W_K W_Qᵀ"), (head_size // 2, "W_V W_Oᵀ")):
        marks: list[Line | Mark] = [Mark(at=1.0, group="T_1")]
        for color, head in enumerate(run["head"].values):
            for entry in range(head_size // 2):
                y = one.beta.isel(coordinate=color * head_size + first + entry).values
                kept = corners(run.time.values, y, 1e-3 * float(abs(one.beta).max()))
                marks.append(Line(x=run.time.values[kept], y=y[kept], group=f"head {head}", color=color, width=1.2))
        panels.append(
            Panel(title=f"diagonal of {name}", x=Axis("t / (T_1 log(1/alpha))"), y=Axis("entry"), marks=tuple(marks))
        )
    return Figure(
        name="keys",
        title="The first keys end the tie",
        caption=f"All entries of both heads at {_alpha(float(one.scale))}, seed {int(one.seed)}. The head with the "
        "larger share of the first entry grows its keys faster on the first plateau, in proportion to its share; from "
        "the first key on the heads differ.",
        panels=tuple(panels),
    )
