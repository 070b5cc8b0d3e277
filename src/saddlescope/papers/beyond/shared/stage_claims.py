"""Claims and pictures that the entries of predicted stages share."""

import numpy as np
import xarray as xr

from saddlescope.papers.beyond.shared.stage_comparison import existing, level_errors, slopes
from saddlescope.plot import Axis, Figure, Line, Panel, Table, lines
from saddlescope.reproduction.claim import Claims, Estimate

AGF = "Kunin et al. 2025, abstract"
SADDLES = "Zhang, Saxe and Latham 2026, abstract"


def over_stages(run: xr.Dataset, errors: xr.DataArray) -> Estimate:
    """Return the largest error over stages and seeds, of which the seeds are the cases; infinite if missed."""
    return Estimate.largest(existing(run, errors).max("stage"), f"{int(run.predicted_time.notnull().sum())} stages")


def add_stage_claims(claims: Claims, family: str) -> None:
    """Add that the error of the times falls as 1 / log(1/α), and that the plateaus have the predicted losses."""

    @claims.add(
        "slope", f"The error of the predicted stage times of {family} falls in proportion to 1 / log(1/α)",
        quantity="largest distance from -1 of the slope of log error over log log(1/α), over seeds", kind="reading",
        source=f"{AGF}: timing of the drops; a unit needs O(1) e-folds more or less out of log(1/α), so the slope is "
        "-1; this project's bar of 10 %", high=0.1, evidence="cases", over="seeds",
        why="An error of another origin than a fixed number of e-folds would fall faster, or not at all",
        doubt="Stages so close that a scale does not separate them have other errors; scales are chosen small for it",
    )  # fmt: skip
    def slope(run: xr.Dataset) -> Estimate:
        return Estimate.largest(abs(slopes(run) + 1).fillna(np.inf))

    add_level_claim(claims, family)


def add_level_claim(claims: Claims, family: str) -> None:
    """Add that the plateaus of the flow have the predicted losses."""

    @claims.add(
        "levels", f"From the smallest initial scale, the loss plateaus of {family} are at the predicted levels",
        quantity="largest difference of a plateau's loss from the prediction, in units of the initial loss",
        kind="reading", source=f"{AGF}: magnitude of the drops; this project's bar", high=1e-4,
        evidence="cases", over="seeds",
        why="The loss in the middle of each stage of the flow is compared with the saddle that the prediction names",
        doubt="Stages are found in the flow from the predicted levels, halfway between two of them",
    )  # fmt: skip
    def levels(run: xr.Dataset) -> Estimate:
        return over_stages(run, level_errors(run))


def stage_figure(run: xr.Dataset, *, title: str, caption: str, unit: str = "log(1/α)") -> Figure:
    """Draw the loss of the first seed against the prediction, and the errors of the times of all seeds."""
    first = run.isel(seed=0).dropna("stage", how="all", subset=["predicted_time"])
    losses = Panel(
        title=f"seed {int(first.seed)}",
        x=Axis(f"time / {unit}"),
        y=Axis("loss"),
        marks=(
            Line(x=run.time.values, y=run.predicted_curve.values, label="predicted, α → 0", style="steps", color=3),
            *lines(run.loss, x="time", hue="scale", label="α = 1e{:g}"),
        ),
    )
    error = np.sqrt(((run.found_time - run.predicted_time) ** 2).mean("stage"))
    decades = -run.scale.values
    errors = Panel(
        title="error of the times",
        x=Axis("decades of α below 1", scale="log"),
        y=Axis("root mean square error", scale="log"),
        marks=tuple(
            Line(x=decades, y=one.values, group="one seed each", color=0, width=1.0)
            for one in error.transpose("seed", "scale")
        ),
    )
    small = first.isel(scale=-1)
    rows = tuple(
        (int(k), float(one.predicted_time), float(one.found_time), float(one.predicted_loss), float(one.found_loss))
        for k in small.stage.values
        for one in (small.sel(stage=k),)
    )
    columns = ("stage", "T predicted", "t found", "loss predicted", "loss found")
    return Figure(
        name="stages",
        title=title,
        caption=f"{caption} Table: stages of seed {int(first.seed)} at α = 1e{float(small.scale):g}.",
        panels=(losses, errors),
        table=Table(columns=columns, rows=rows),
    )
