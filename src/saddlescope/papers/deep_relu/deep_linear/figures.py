"""Figures of deep linear networks: loss and spectra of runs, and the success of the finder of stages."""

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.deep_linear.claims import SUCCESS_BARS
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the loss and the spectrum of a middle layer of one network per depth, and the success of the finder."""
    return [_runs_figure(run), _finder_figure(run)]


def _runs_figure(run: xr.Dataset) -> Figure:
    seed = int(run.seed[0])
    first = run.isel(network=(run.seed == seed).values)
    panels = [panel for n in range(first.sizes["network"]) for panel in _panels(first.isel(network=n))]
    return Figure(
        name="runs",
        title="Linear networks learn one singular direction at a time, at levels known exactly",
        caption=f"Training loss against the step of gradient descent, and the largest singular values of the second "
        f"layer, with seed {seed}. Dashed: the loss of the best linear fit of rank 0, 1, 2, ..., from the data alone. "
        "Dotted: where stages begin, found from loss and spectra alone.",
        panels=tuple(panels),
        table=_table(run),
    )


def _panels(one: xr.Dataset) -> list[Panel]:
    step, starts = one.step.values, one.stage_start.dropna("stage").values[1:]
    shown = slice(int(np.searchsorted(step, starts[0] / 4)) if len(starts) else 1, None)
    x = Axis("step", scale="log")
    begins = [Mark(at=float(start), group="stages found", color=7) for start in starts]
    loss = Line(x=step[shown], y=one.loss.values[shown], group="loss", color=0)
    levels = [
        Line(
            x=step[shown][[0, -1]], y=np.full(2, float(level)), group="best fits of rank k", style="dashed", width=0.9,
            color=3,
        )
        for level in one.level.values[: int(one.visible)]
    ]  # fmt: skip
    values = [
        Line(x=step[shown], y=one.singular_values.sel(layer=2, value=k).values[shown], group=f"s_{k}", color=k)
        for k in one.value.values.tolist()
        if one.singular_values.sel(layer=2, value=k).notnull().any()
    ]
    name = f"depth {int(one.depth)}"
    return [
        Panel(title=name, x=x, y=Axis("loss", scale="log"), marks=(loss, *levels, *begins)),
        Panel(title=f"{name}, layer 2", x=x, y=Axis("singular value"), marks=(*values, *begins)),
    ]


def _table(run: xr.Dataset) -> Table:
    rows = []
    for n in range(run.sizes["network"]):
        one = run.isel(network=n)
        for k in range(min(int(one.stages_found), one.sizes["stage"])):
            stage = one.isel(stage=k)
            ranks = [int(rank) for rank in stage.stage_layer_rank.values if rank >= 0]
            rows.append(
                (
                    int(one.depth), int(one.seed), float(stage.stage_start), ", ".join(map(str, ranks)),
                    float(stage.stage_loss), float(stage.level),
                )
            )  # fmt: skip
    return Table(columns=("depth", "seed", "begins at step", "ranks of layers", "loss", "best fit"), rows=tuple(rows))


def _finder_figure(run: xr.Dataset) -> Figure:
    share = run.right / run.staircases
    noisy = run.loss_noise.values > 0
    lines = [
        Line(
            x=run.loss_noise.values[noisy], y=share.sel(sampling=sampling).values[noisy], group=f"{sampling} sampling",
            color=color, style="points" if color else "solid",
        )
        for color, sampling in enumerate(run.sampling.values)
    ]  # fmt: skip
    bars = [Mark(at=noise, label=f"bar: {bar:.0%}") for noise, bar in SUCCESS_BARS.items() if noise]
    rows = tuple(
        (float(noise), *(float(one) for one in share.sel(loss_noise=noise).values), int(run.staircases))
        for noise in run.loss_noise.values
    )
    return Figure(
        name="finder",
        title="How much noise the finder of stages bears",
        caption="Share of synthetic staircases (2 to 6 stages of varied lengths, heights and widths) that are found "
        "right in every stage, time, level and rank, against the noise of the loss in units of its range.",
        panels=(
            Panel(
                x=Axis("noise of the loss / range", scale="log"), y=Axis("found right", range=(0.0, 1.02)),
                marks=(*lines, *bars),
            ),
        ),
        table=Table(columns=("noise", "linear sampling", "geometric sampling", "staircases each"), rows=rows),
    )  # fmt: skip
