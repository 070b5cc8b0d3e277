"""The figures of Figure 2."""

from collections.abc import Iterator

import xarray as xr

from saddlescope.papers.gradual_rank.figure_2.claims import FIRST
from saddlescope.papers.gradual_rank.shared.diagonal_entries import PRODUCTS, coordinate_name, entry_panel
from saddlescope.plot import Axis, Figure, Line, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the loss (Figure 2a) with the stages in a table, and the entries of both products (Figure 2b)."""
    return [_loss(run), _entries(run)]


def _alpha(log10_scale: float) -> str:
    return f"alpha = 1e{log10_scale:g}"


def _loss(run: xr.Dataset) -> Figure:
    time = run.time.values
    curves = [
        Line(x=time, y=run.loss.sel(scale=scale).values, label=_alpha(scale), color=k)
        for k, scale in enumerate(run.scale.values)
    ]
    predicted = Line(
        x=time, y=run.predicted_loss_curve.values, label="Algorithm 1", color=None, style="dashed", width=1.2
    )
    end = min(run.attrs["until"], 1.25 * float(run.predicted_time[: FIRST + 1].max()))
    begin = 0.6 * float(run.predicted_time[0])
    early = (time >= begin) & (time <= end)
    zoomed = [Line(x=line.x[early], y=line.y[early], group=line.label, color=line.color) for line in curves]
    zoomed.append(Line(x=time[early], y=predicted.y[early], group="Algorithm 1", style="dashed", width=1.2))
    x, y = Axis("time of the flow / log(1/alpha)"), Axis("loss")
    return Figure(
        name="loss",
        title="The loss falls in a staircase as the initial scale vanishes",
        caption="Loss against rescaled time for each initial scale alpha, with the staircase that Algorithm 1 "
        "predicts. Left: the first stages. The table has each stage's coordinate, its predicted time, the measured "
        "times t_k (half-way to the plateau), and predicted and measured loss on the plateau. The last column "
        "says whether the smallest alpha resolves the plateau.",
        panels=(
            Panel(title=f"the first {FIRST} stages", x=x, y=y, marks=tuple(zoomed)),
            Panel(title="all stages", x=x, y=y, marks=(*curves, predicted)),
        ),
        table=Table(columns=_columns(run), rows=tuple(_rows(run))),
    )


def _columns(run: xr.Dataset) -> tuple[str, ...]:
    measured = (f"t_k at {_alpha(scale)}" for scale in run.scale.values)
    return ("k", "coordinate", "sign", "T_k", *measured, "error", "loss", "measured loss", "resolved")


def _rows(run: xr.Dataset) -> Iterator[tuple[str | float | int, ...]]:
    for k in run.stage.values:
        stage = run.sel(stage=k)
        if stage.predicted_time > run.attrs["until"]:
            break
        smallest = stage.isel(scale=-1)
        yield (
            int(k),
            coordinate_name(run, int(stage.predicted_coordinate)),
            "+" if stage.predicted_sign > 0 else "−",
            float(stage.predicted_time),
            *(float(t) for t in stage.found_time),
            f"{float(smallest.found_time / smallest.predicted_time - 1):+.2%}",
            float(stage.predicted_loss),
            float(smallest.plateau_loss),
            "yes" if bool(smallest.resolved) else "no",
        )


def _entries(run: xr.Dataset) -> Figure:
    smallest = float(run.scale.values[-1])
    return Figure(
        name="entries",
        title="The rank of both products rises by one coordinate at a time",
        caption="Each line is one diagonal entry of W_K W_Qᵀ (left) or W_V W_Oᵀ (right) of the learning head at the "
        "smallest initial scale; dashed, Algorithm 1's prediction. Figures 8 and 9 have all scales.",
        panels=tuple(entry_panel(run, product, smallest) for product in PRODUCTS),
    )
