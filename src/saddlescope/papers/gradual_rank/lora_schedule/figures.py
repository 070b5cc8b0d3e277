"""The comparison of LoRAs with constant and with allotted ranks, drawn; what its tables of ranks are called."""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.lora_schedule.claims import ARMS, TABLES, parameters
from saddlescope.plot import Axis, Band, Figure, Line, Panel, Table

NAMES = {
    "full": "full fine-tuning",
    "constant": "constant rank",
    "schedule": "schedule from early spectra",
    "hindsight": "ranks from the last spectra",
}

COLORS = {"full": 2, "constant": 1, "schedule": 0, "hindsight": 3}


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the losses of the arms with a table of the outcome, the allotted ranks, the spectra behind them."""
    return [losses(run), ranks(run), spectra(run)]


def losses(run: xr.Dataset) -> Figure:
    """Draw the losses of all arms, with a table of where they ended."""

    def curves(arm: str, steps: xr.DataArray, values: xr.DataArray) -> list[Line]:
        x, name, color = steps.isel(seed=0).values, NAMES[arm], COLORS[arm]
        each = [
            Line(x=x, y=values.sel(seed=seed).values, group=name, color=color, opacity=0.35, width=1.0)
            for seed in run.seed.values
        ]
        return [*each, Line(x=x, y=values.mean("seed").values, label=name, group=name, color=color)]

    def last(values: xr.DataArray, seed: int) -> float:
        return float(values.sel(seed=seed).isel(test=-1))

    x, y = Axis("optimiser steps"), Axis("test loss", "nats")
    panels = []
    for rank in run.budget.values.tolist():
        marks = [
            mark
            for arm in ARMS
            for mark in curves(arm, run.test_step.sel(arm=arm), run.test_loss.sel(budget=rank, arm=arm))
        ]
        panels.append(Panel(title=f"parameters of rank {rank} everywhere", x=x, y=y, marks=tuple(marks)))
    panels.append(Panel(title="all weights", x=x, y=y, marks=tuple(curves("full", run.full_step, run.full_loss))))
    arms = [(rank, arm) for rank in run.budget.values.tolist() for arm in ARMS]
    rows = [
        (
            f"seed {seed}",
            last(run.full_loss, seed),
            *(last(run.test_loss.sel(budget=rank, arm=arm), seed) for rank, arm in arms),
            *(int(parameters(run.sel(seed=seed, budget=rank), arm)) for rank, arm in arms),
        )
        for seed in run.seed.values.tolist()
    ]
    names = [f"{arm}, rank {rank}" for rank, arm in arms]
    return Figure(
        name="losses",
        title="Adapting to another text",
        caption=f"Test loss on {run.attrs['task']} of a GPT-2 trained on {run.attrs['text']}; thick: mean over seeds. "
        f"The constant rank makes the {run.attrs['probe']} steps more that the schedule spent on looking.",
        panels=tuple(panels),
        columns=3,
        table=Table(
            columns=("", "last loss, full", *(f"last loss, {n}" for n in names), *(f"parameters, {n}" for n in names)),
            rows=tuple(rows),
        ),
    )


def _kinds(run: xr.Dataset) -> dict[str, list[str]]:
    """Return the matrices by kind, in the order of their layers."""
    found: dict[str, list[str]] = {}
    for name in run.matrix.values.tolist():
        found.setdefault(".".join(name.split(".")[3:5]), []).append(name)
    return found


def ranks(run: xr.Dataset) -> Figure:
    """Draw the ranks allotted to each matrix."""
    panels = []
    for kind, names in _kinds(run).items():
        layers, marks = np.arange(1, len(names) + 1), []
        for table in TABLES:
            name, color = NAMES[table], COLORS[table]
            allotted = run["rank"].isel(budget=-1).sel(table=table, matrix=names)
            if table != "constant":
                low, high = allotted.min("seed").values, allotted.max("seed").values
                marks.append(Band(x=layers, low=low, high=high, group=name, color=color))
            marks.append(Line(x=layers, y=allotted.mean("seed").values, label=name, group=name, color=color))
        panels.append(Panel(title=kind, x=Axis("layer"), y=Axis("rank"), marks=tuple(marks)))
    return Figure(
        name="ranks",
        title="Where the ranks go",
        caption="Rank allotted to each matrix at the large budget: mean over seeds, and their whole range.",
        panels=tuple(panels),
    )


def spectra(run: xr.Dataset) -> Figure:
    """Draw the spectra they were allotted from."""
    index = Axis("index of the singular value", scale="log")
    size = Axis("singular value / largest", scale="log", range=(1e-2, 1.3))
    panels = []
    for kind, names in _kinds(run).items():
        relative = run.spectrum.sel(matrix=names)
        relative = (relative / relative.isel(index=0)).mean("seed")
        marks, x = [], run.index.values + 1
        for color, name in enumerate(names):
            early, late = (
                relative.sel(matrix=name, record="probe").values,
                relative.sel(matrix=name, record="end").values,
            )
            group = f"layer {color + 1}"
            marks.append(Line(x=x, y=early, group=group, color=color, style="dashed", width=1.1))
            marks.append(Line(x=x, y=late, label=group, group=group, color=color))
        panels.append(Panel(title=kind, x=index, y=size, marks=tuple(marks)))
    return Figure(
        name="spectra",
        title="The spectra behind the ranks",
        caption="Singular values of the updates of full fine-tuning over the largest, mean over seeds: dashed after "
        f"{run.attrs['probe']} steps, solid at the end.",
        panels=tuple(panels),
    )
