"""Claims and pictures that the entries of predicted stages share."""

from collections.abc import Callable

import numpy as np
import xarray as xr

from saddlescope.papers.beyond.shared.stage_comparison import level_errors, over_stages, slopes
from saddlescope.plot import Axis, Figure, Line, Panel, Table, lines
from saddlescope.reproduction import Claims, Estimate

AGF = "Kunin et al. 2025, abstract"
SADDLES = "Zhang, Saxe and Latham 2026, abstract"


def add_slope_claim(claims: Claims, family: str, smallest: str) -> None:
    """Add that the error of the predicted times falls as 1 / log(1/α), down to the smallest α.

    A unit needs O(1) e-folds more or less out of log(1/α), so that the slope is -1.
    """

    @claims.reading(
        "slope",
        f"As α falls to {smallest}, the stage times of {family} tend to the predicted ones, with an error in "
        "proportion to 1 / log(1/α)",
        f"{AGF}: order, timing and magnitude of the drops; rate and bar of 10 %: this project",
        high=0.1,
    )
    def slope(run: xr.Dataset) -> Estimate:
        """Largest distance from -1 of the slope of log error over log log(1/α)."""
        return Estimate.largest(abs(slopes(run) + 1), over="seeds")


def add_level_claim(claims: Claims, family: str, smallest: str) -> None:
    """Add that the plateaus of the flow have the predicted losses from the smallest α."""

    @claims.reading(
        "levels",
        f"From α = {smallest}, the loss plateaus of {family} are at the predicted levels",
        f"{AGF}: order, timing and magnitude of the drops; bar: this project",
        high=1e-4,
    )
    def levels(run: xr.Dataset) -> Estimate:
        """Largest difference of a plateau's loss from the prediction at this α, in units of the initial loss."""
        return over_stages(run, level_errors(run))


def stage_table(run: xr.Dataset) -> Table:
    """Return predicted and found times and losses of one seed at the smallest scale."""
    names = ("predicted_time", "found_time", "predicted_loss", "found_loss")
    one = run.isel(scale=-1).dropna("stage", how="all", subset=["predicted_time"])
    rows = zip(one.stage.values.tolist(), *(one[name].values.tolist() for name in names), strict=True)
    return Table(columns=("stage", "T predicted", "t found", "loss predicted", "loss found"), rows=tuple(rows))


def stage_figures(*, title: str, caption: str, unit: str = "log(1/α)") -> Callable[[xr.Dataset], list[Figure]]:
    """Return a function that draws the one picture of `stage_figure`."""
    return lambda run: [stage_figure(run, title=title, caption=caption, unit=unit)]


def stage_figure(run: xr.Dataset, *, title: str, caption: str, unit: str = "log(1/α)") -> Figure:
    """Draw the loss of the first seed against the prediction, and the errors of the times of all seeds."""
    first = run.isel(seed=0)
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
    errors = Panel(
        title="error of the times",
        x=Axis("decades of α below 1", scale="log"),
        y=Axis("root mean square error", scale="log"),
        marks=tuple(
            Line(x=-run.scale.values, y=one.values, group="one seed each", color=0, width=1.0)
            for one in error.transpose("seed", "scale")
        ),
    )
    return Figure(
        name="stages",
        title=title,
        caption=f"{caption} Table: stages of seed {int(first.seed)} at α = 1e{float(run.scale[-1]):g}.",
        panels=(losses, errors),
        table=stage_table(first),
    )
