"""Figures of a network trained on images: loss, spectra over time, spectra at a step."""

import xarray as xr

from saddlescope.plot import Axis, Line, Mark, Panel, Table

STEP = "step / 1000"


def loss_panel(
    runs: dict[str, xr.Dataset], marks: tuple[Mark, ...] = (), *, title: str = "training loss", color: int = 0
) -> Panel:
    """Draw the loss of all training images, one curve per run; `color` is that of the first."""
    curves = [
        Line(x=run.step.values / 1000, y=run.loss.values, group=name, color=color)
        for color, (name, run) in enumerate(runs.items(), color)
    ]
    return Panel(title=title, x=Axis(STEP), y=Axis("loss"), marks=(*curves, *marks))


def layer_panels(run: xr.Dataset) -> tuple[Panel, ...]:
    """Draw the largest singular values of each layer over time."""
    names = {1: "s_1", 2: "s_2", 3: "s_3"}
    return tuple(
        Panel(
            title=f"layer {layer}",
            x=Axis(STEP),
            y=Axis("singular values"),
            marks=tuple(
                Line(
                    x=run.step.values / 1000,
                    y=run.singular_values.sel(layer=layer, value=value).values,
                    group=names.get(value, "s_4 to s_10"),
                    color=min(value, 4) - 1,
                    width=1.6 if value in names else 0.8,
                )
                for value in run.value.values.tolist()
            ),
        )
        for layer in run.layer.values.tolist()
    )


def spectra_panel(at: xr.Dataset, title: str) -> Panel:
    """Draw the largest singular values of all layers at one step."""
    return Panel(
        title=title,
        x=Axis("i"),
        y=Axis("singular value s_i", scale="log"),
        marks=tuple(
            Line(
                x=at.value.values, y=at.singular_values.sel(layer=layer).values, group=f"layer {layer}", color=layer - 1
            )
            for layer in at.layer.values.tolist()
        ),
    )


def stage_table(run: xr.Dataset) -> Table:
    """Tabulate the stages found: first step, level, and the rank of every layer."""
    return Table(columns=("stage", "begins at step", "loss", "ranks of the layers"), rows=stage_rows(run))


def stage_rows(run: xr.Dataset, *first: str | int) -> tuple[tuple[str | float | int, ...], ...]:
    """Return the rows of such a table, each with the same first cells."""
    rows = []
    for stage in run.stage.values[: int(run.stages_found)].tolist():
        one = run.sel(stage=stage)
        ranks = ", ".join(str(int(rank)) for rank in one.stage_layer_rank.values)
        rows.append((*first, stage, round(float(one.stage_start)), float(one.stage_loss), ranks))
    return tuple(rows)
