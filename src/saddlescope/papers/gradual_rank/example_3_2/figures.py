"""The figures of Example 3.2."""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.example_3_2.claims import ORDERS, deepest_network, smallest_scale
from saddlescope.plot import Axis, Figure, Line, Panel, Table, corners


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the loss of every network, the entries of the deepest one, and how good either prediction is."""
    return [_loss(run), _entries(run), _errors(run)]


_TIME = "t / (T_1 log(1/alpha))"


def _alpha(log10_scale: float) -> str:
    return f"alpha = 1e{log10_scale:g}"


def _loss(run: xr.Dataset) -> Figure:
    panels = []
    for name in run.network.values:
        one = run.sel(network=name)
        curves = [
            Line(x=run.time.values, y=one.loss.sel(scale=scale).values, group=_alpha(scale), color=color)
            for color, scale in enumerate(run.scale.values)
        ]
        limit = Line(
            x=run.time.values, y=one.predicted_loss_curve.values, group="Algorithm 1", style="dashed", width=1.2
        )
        panels.append(Panel(title=name, x=Axis(_TIME), y=Axis("loss", scale="log"), marks=(*curves, limit)))
    return Figure(
        name="loss",
        title="Transformers of any depth and number of heads learn in stages",
        caption="Loss against rescaled time in units of T_1, for each initial scale, with the staircase that Algorithm "
        "1 predicts for the limit, as far as it comes. With two heads a layer it needs the initial weights.",
        panels=tuple(panels),
    )


def _entries(run: xr.Dataset) -> Figure:
    one = deepest_network(run)
    time, span = run.time.values, float(abs(one.beta).max())
    levels = np.vstack([np.zeros(one.sizes["coordinate"]), one.predicted_beta.transpose("stage", "coordinate").values])
    first = float(one.predicted_time[0])
    limit = levels[np.searchsorted(one.predicted_time.values / first, time, side="right")]
    curves = {"gradient flow": one.beta.transpose("time", "coordinate").values, "Algorithm 1": limit}

    def line(group: str, i: int, color: int) -> Line:
        dashed = group == "Algorithm 1"
        kept = corners(time, curves[group][:, i], 2e-3 * span)
        return Line(
            x=time[kept], y=curves[group][kept, i], group=group, color=color,
            style="dashed" if dashed else "solid", width=0.8 if dashed else 1.1,
        )  # fmt: skip

    places = np.arange(one.sizes["coordinate"]).reshape(int(one.layers), int(one.heads), 2, -1)
    panels = [
        Panel(
            title=f"layer {layer}, diagonal of {name}",
            x=Axis(_TIME),
            y=Axis("entry"),
            marks=tuple(line(group, i, i) for group in curves for i in places[layer, :, n].ravel().tolist()),
        )
        for layer in range(int(one.layers))
        for n, name in enumerate(("W_K W_Qᵀ", "W_V W_Oᵀ"))
    ]
    return Figure(
        name="entries",
        title="The rank of every product rises by one entry at a time",
        caption=f"The network {one.network.item()} at {_alpha(float(one.scale))}: each line is one diagonal entry of a "
        "product in one layer, counted from 0; dashed, Algorithm 1's limit. The table has each stage: T_k, the time "
        "that theory predicts at this alpha, the measured time if it lies in that one's window, and the errors.",
        panels=tuple(panels),
        table=_table(one, run.attrs["dim"]),
    )


def _table(one: xr.Dataset, dim: int) -> Table:
    rows = []
    for k in one.stage.values[one.held.values.astype(bool)]:
        stage = one.sel(stage=k)
        rest, entry = divmod(int(stage.predicted_coordinate), dim)
        rest, product = divmod(rest, 2)
        layer, head = divmod(rest, int(one.heads))
        name = f"layer {layer} head {head} {('KQ', 'VO')[product]} {entry}"
        limit, finite = (float(stage.told_time.sel(order=order)) for order in ORDERS)
        found = float(stage.found_time.sel(order="finite"))
        sign = "+" if stage.predicted_sign > 0 else "−"
        rows.append(
            (int(k), name, sign, limit, finite, found, f"{found / limit - 1:+.2%}", f"{found / finite - 1:+.3%}")
        )
    columns = ("k", "coordinate", "sign", "T_k", "T_k + C_k / log(1/alpha)", "t_k", "error of T_k", "with C_k")
    return Table(columns=columns, rows=tuple(rows))


def _errors(run: xr.Dataset) -> Figure:
    last = smallest_scale(run)
    names = {"limit": "T_k", "finite": "T_k + C_k / log(1/alpha)"}
    panels = []
    for network in run.network.values:
        one = last.sel(network=network)
        panels.append(
            Panel(
                title=str(network),
                x=Axis("stage k"),
                y=Axis("relative error", scale="log"),
                marks=tuple(
                    Line(
                        x=run.stage.values,
                        y=abs(one.found_time / one.told_time - 1).sel(order=order).where(one.held).values,
                        group=name,
                        color=color,
                        style="points",
                    )
                    for color, (order, name) in enumerate(names.items())
                ),
            )
        )
    return Figure(
        name="errors",
        title="Stage times from theory alone",
        caption=f"Relative error of the predicted stage times at {_alpha(float(last.scale))}, stage by stage: of "
        "Algorithm 1's limit, and with the next order, which needs the initial weights. A stage outside a "
        "prediction's window has no point.",
        panels=tuple(panels),
    )
