"""The figures of Theorem 4.1."""

from math import log

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.theorem_4_1.claims import (
    NEAR,
    corrected_times,
    delay_constants,
    extrapolation_error,
    reached_plateaus,
    relative_errors,
)
from saddlescope.plot import Axis, Figure, Heat, Line, Mark, Panel, Table

SHOWN = 13  # stages whose C_k are drawn


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw errors against alpha with their law, and the plateaus that each scale resolves."""
    return [_convergence(run), _resolution(run)]


def _e_folds(run: xr.Dataset) -> np.ndarray:
    return -run.scale.values * log(10)


def _convergence(run: xr.Dataset) -> Figure:
    unit = _e_folds(run)
    errors = relative_errors(run, run.found_time)  # NaN where a stage did not happen
    left = abs((run.found_time - corrected_times(run)) / run.predicted_time).transpose("scale", "stage").values
    median = np.median(errors, axis=1)
    x = Axis("log(1/alpha)", scale="log")
    marks: list[Line | Mark] = [
        Line(x=unit, y=errors.max(1), label="largest", color=3),
        Line(x=unit, y=median, label="median", color=0),
        Line(x=unit, y=np.median(left, axis=1), label="median, with C_k from theory", color=2),
        Line(
            x=unit,
            y=median[-1] * unit[-1] / unit,
            label="1 / log(1/alpha)",
            color=None,
            style="dashed",
            width=1.2,
        ),
    ]
    if np.isfinite(median[-2:]).all():
        last = run.isel(scale=[-2, -1])
        marks.append(
            Mark(at=extrapolation_error(last, last.found_time), label="median, extrapolated from two", axis="y")
        )
    constants = delay_constants(run, run.found_time).transpose("scale", "stage").values
    lines = []
    for k in range(min(SHOWN, run.sizes["stage"])):
        style = "solid" if run.separated.values[k] else "dotted"
        lines.append(Line(x=unit, y=constants[:, k], label=f"k = {k + 1}", color=k, style=style))
        lines.append(
            Line(
                x=unit[-1:],
                y=run.predicted_constant.values[k : k + 1],
                group="C_k from theory",
                color=k,
                style="points",
            )
        )
    return Figure(
        name="convergence",
        title="Stage times approach Algorithm 1's as 1 / log(1/alpha)",
        caption="Left: median and largest relative error of all stage times against log(1/alpha), with the law, and "
        "what is left with C_k from the theory, or by extrapolation of two runs. Right: the error times log(1/alpha) "
        "for the first stages. It is a constant C_k of each stage as soon as the stages before it are told apart; "
        "dotted lines are of stages that are not well separated at 1e-64. Points are the theory's C_k.",
        panels=(
            Panel(title="error of the stage times", x=x, y=Axis("|t_k / T_k − 1|", scale="log"), marks=tuple(marks)),
            Panel(title="C_k", x=x, y=Axis("(t_k − T_k) log(1/alpha)"), marks=tuple(lines)),
        ),
        table=_table(run),
    )


def _table(run: xr.Dataset) -> Table:
    measured = (f"t_k at 1e{scale:g}" for scale in run.scale.values)
    constants = delay_constants(run, run.found_time).isel(scale=-1)
    rows = (
        (
            int(k),
            int(stage.predicted_coordinate),
            float(stage.predicted_time),
            *(float(t) for t in stage.found_time),
            float(stage.predicted_constant),
            float(constants.sel(stage=k)),
            "yes" if bool(stage.separated) else "no",
        )
        for k, stage in ((k, run.sel(stage=k)) for k in run.stage.values)
    )
    return Table(
        columns=("k", "coordinate", "T_k", *measured, "C_k", "C_k at the smallest", "well separated"), rows=tuple(rows)
    )


def _resolution(run: xr.Dataset) -> Figure:
    unit = _e_folds(run)
    resolved = run.resolved.transpose("scale", "stage").values.mean(1)
    reached = Panel(
        title="plateaus told apart",
        x=Axis("log(1/alpha)", scale="log"),
        y=Axis("fraction of plateaus", range=(0.0, 1.05)),
        marks=(
            Line(x=unit, y=reached_plateaus(run).values, label=f"reached within {NEAR:g}"),
            Line(x=unit, y=resolved, label="resolved, by the theory alone", style="dashed"),
        ),
    )
    distance = run.theta_distance.transpose("scale", "stage").values
    heat = Panel(
        title="largest |theta − theta^k| in the middle of plateau k",
        x=Axis("stage k"),
        y=Axis("log10 log(1/alpha)"),
        marks=(Heat(x=run.stage.values, y=np.log10(unit), z=np.maximum(distance, 1e-12), scale="log"),),
    )
    return Figure(
        name="plateaus",
        title="Ever more plateaus are reached as the initial scale vanishes",
        caption="Left: the fraction of plateaus in whose middle all products of weights are near those of theta^k, "
        "beside the fraction that the theory calls long enough at that alpha. Right: the largest difference of a "
        "weight, stage by stage.",
        panels=(reached, heat),
    )
