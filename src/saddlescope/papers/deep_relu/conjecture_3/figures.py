"""Figures of Conjecture 3: ratios of singular values, and the activations."""

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.conjecture_3.claims import select_passages
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw how near the layers are to rank one along the way, and their activations."""
    shown = _choose_networks(run)
    return [_ratios_figure(run, shown), _activations_figure(run, shown)]


def _choose_networks(run: xr.Dataset) -> list[int]:
    """Return the first network of every task that reaches the second saddle."""
    tasks: dict[str, int] = {}
    for n, name in enumerate(run.network.values.tolist()):
        if int(run.stages_found[n]) > 1:
            tasks.setdefault(name.partition(",")[0], n)
    return list(tasks.values()) or [0]


def _panel(run: xr.Dataset, n: int, key: str, label: str, least: float) -> Panel:
    one = run.isel(network=n)
    starts = one.stage_start.dropna("stage").values[1:]
    step = one.step.values
    end = 1.4 * starts[1] if len(starts) > 1 else np.inf
    inside = (step >= (starts[0] / 2 if len(starts) else 1)) & (step <= end)
    curves = [
        Line(x=step[inside], y=one[key].sel(layer=layer).values[inside], group=f"layer {layer}", color=layer - 1)
        for layer in one.layer.values.tolist()
        if one[key].sel(layer=layer).notnull().any()
    ]
    drops = [Mark(at=float(start), group="drops of the loss", color=7) for start in starts if start <= end]
    return Panel(
        title=str(one.network.item()),
        x=Axis("step"),
        y=Axis(label, scale="log", range=(least, 1.0)),
        marks=(*curves, *drops),
    )


def _ratios_figure(run: xr.Dataset, shown: list[int]) -> Figure:
    return Figure(
        name="ratios",
        title="Deep layers come nearer to rank one until the next saddle",
        caption="s_2/s_1 of the weights of each layer, from before the escape from the origin (first dotted line) to "
        "the escape from the second saddle (second one, if the run has it), where the next singular value grows. The "
        "table has every network at the arrival at the second saddle: s_2/s_1, and the stable rank, which the bulk "
        "raises.",
        panels=tuple(_panel(run, n, "second_ratio", "s_2/s_1 of W_l", 0.03) for n in shown),
        table=_table(run),
    )


def _activations_figure(run: xr.Dataset, shown: list[int]) -> Figure:
    panels = []
    for n in shown:
        panels.append(_panel(run, n, "tail_activations", "tail energy of Z^s_l", 1e-6))
        panels.append(_panel(run, n, "nonlinearity", "|Z^s_l - Z_l| / |Z_l|", 0.01))
    return Figure(
        name="activations",
        title="Behind the first layers, activations are of rank one and hardly cut by the ReLU",
        caption="Tail energy sum over i >= 2 of s_i^2 / sum of s_i^2 of the activations of each layer, and the part of "
        "the preactivations that the ReLU takes away. Below 1e-6 the tail energies are rounding errors of float32.",
        panels=tuple(panels),
    )


def _table(run: xr.Dataset) -> Table:
    rows = []
    for one in select_passages(run):
        last = one.isel(mark=-1)
        ratios, stable = (
            ", ".join(f"{value:.2f}" for value in last[key].values) for key in ("second_ratio", "stable_rank")
        )
        counts = ", ".join(str(int(value)) for value in one.above_bulk.max("mark").values)
        rows.append((str(one.network.item()), int(last.step), ratios, stable, counts))
    columns = ("network", "arrival at step", "s_2/s_1 of layers 1..L", "stable ranks", "most above the bulk")
    return Table(columns=columns, rows=tuple(rows))
