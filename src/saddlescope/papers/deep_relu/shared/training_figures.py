"""Figures of a network trained on images: loss, spectra over time, spectra at a step."""

from collections.abc import Mapping
from functools import partial

import xarray as xr

from saddlescope.plot import Axis, Line, Mark, Panel, Table, lines

STEP = "step / 1000"


def loss_panel(runs: Mapping[str, xr.Dataset], marks: tuple[Mark, ...] = (), *, title: str = "training loss") -> Panel:
    """Draw the loss of all training images, one curve per run."""
    curves = [
        Line(x=run.step.values / 1000, y=run.loss.values, group=name, color=n)
        for n, (name, run) in enumerate(runs.items())
    ]
    return Panel(title=title, x=Axis(STEP), y=Axis("loss"), marks=(*curves, *marks))


def layer_panels(run: xr.Dataset) -> tuple[Panel, ...]:
    """Draw the largest singular values of each layer over time."""
    values = run.singular_values.assign_coords(step=run.step / 1000)
    draw = partial(lines, x="step", hue="value", grouped=True)
    first = partial(draw, label=lambda k: f"s{'₀₁₂₃'[k]}")
    others = partial(draw, label="s₄ to s₁₀", color=None, width=0.8)
    return tuple(
        Panel(
            title=f"layer {layer}",
            x=Axis(STEP),
            y=Axis("singular values"),
            marks=(
                *first(values.sel(layer=layer, value=slice(3))),
                *others(values.sel(layer=layer, value=slice(4, None))),
            ),
        )
        for layer in run.layer.values.tolist()
    )


def spectra_panel(at: xr.Dataset, title: str) -> Panel:
    """Draw the largest singular values of all layers at one step."""
    spectra = lines(at.singular_values, x="value", hue="layer", label="layer {}", grouped=True)
    return Panel(title=title, x=Axis("i"), y=Axis("singular value sᵢ", scale="log"), marks=spectra)


def stage_table(runs: Mapping[str, xr.Dataset]) -> Table:
    """Tabulate the stages of each network: first step, level, and the rank of every layer."""
    rows = []
    for key, run in runs.items():
        for stage in run.stage.values[: int(run.stages_found)].tolist():
            one = run.sel(stage=stage)
            ranks = ", ".join(str(int(rank)) for rank in one.stage_layer_rank.values if rank >= 0)
            rows.append((key, stage, round(float(one.stage_start)), float(one.stage_loss), ranks))
    return Table(columns=("network", "stage", "begins at step", "loss", "ranks of the layers"), rows=tuple(rows))


def by_network(run: xr.Dataset) -> dict[str, xr.Dataset]:
    """Return the run of each network by its name."""
    return {name: run.isel(network=n) for n, name in enumerate(run.network.values.tolist())}
