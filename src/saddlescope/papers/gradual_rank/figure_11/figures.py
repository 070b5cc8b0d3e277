"""The figures of Figure 11."""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.figure_11.transitions import PROGRESS, Transition, transitions
from saddlescope.papers.gradual_rank.shared.diagonal_entries import coordinate_name
from saddlescope.papers.gradual_rank.shared.noisy_training import paired_lines
from saddlescope.plot import Axis, Figure, Panel, Table


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the transitions over time, with a table, and over their progress."""
    found = transitions(run)
    return [_over_time(run, found), _over_progress(run, found)]


MOST = 7  # coordinates that a panel shows: those that move most, and by a hundredth of the size at least


def _moving(one: Transition) -> np.ndarray:
    moved = abs(one.noisy - one.noisy[0]).max(axis=0)
    return np.argsort(-moved, kind="stable")[: min(MOST, int((moved > 0.01 * one.size).sum()))]


def _over_time(run: xr.Dataset, found: tuple[Transition, ...]) -> Figure:
    panels = tuple(
        Panel(
            title=f"{coordinate_name(run, one.entering)} enters: stage {one.stage}",
            x=Axis("time t since the noise", "epochs at learning rate 1"),
            y=Axis("entry of beta"),
            marks=tuple(
                line
                for color, i in enumerate(_moving(one))
                for line in paired_lines(
                    one.since, one.noisy[:, i], one.beta[:, i], color=color, width=2.2 if i == one.entering else 1.1
                )
            ),
        )
        for one in found
    )
    return Figure(
        name="transitions",
        title="After noise when a coordinate becomes nonnegligible, the transition comes sooner",
        caption=f"From the noise to the middle of the new plateau: the up to {MOST} entries of beta that move most, "
        "after the noise (solid) and without it (dashed); the one that enters is drawn thick. The table has how much "
        "sooner that one is half-way, in time t, and what is expected: the e-folds by which noise made its weight "
        "larger, over |g| at the saddle before.",
        panels=panels,
        columns=3,
        table=Table(
            columns=("stage", "enters", "noise at", "size", "to theta^k", "without noise", "at the same time",
                     "at the same progress", "sooner by", "expected"),
            rows=tuple(_row(run, one) for one in found),
        ),
    )  # fmt: skip


def _row(run: xr.Dataset, one: Transition) -> tuple[str | float | int, ...]:
    noisy, without = one.path(True), one.path(False)
    same, sooner = "–", "–"
    if noisy is not None and without is not None:
        same = f"{abs(noisy[1] - without[1]).max() / one.size:.1%}"
        sooner = f"{without[0][40] - noisy[0][40]:.1f}"  # half-way
    return (
        one.stage,
        coordinate_name(run, one.entering),
        f"{one.time:.2f}",
        one.size,
        f"{one.endpoint():.2%}",
        f"{one.endpoint(noisy=False):.2%}",
        f"{one.farthest():.0%}",
        same,
        sooner,
        f"{one.growth / one.pull:.1f}",
    )


def _over_progress(run: xr.Dataset, found: tuple[Transition, ...]) -> Figure:
    grid = np.linspace(*PROGRESS)
    panels = []
    for one in found:
        noisy, without = one.path(True), one.path(False)
        if noisy is None or without is None:
            continue
        panels.append(
            Panel(
                title=f"{coordinate_name(run, one.entering)} enters: stage {one.stage}",
                x=Axis(f"progress of {coordinate_name(run, one.entering)}"),
                y=Axis("entry of beta"),
                marks=tuple(
                    line
                    for color, i in enumerate(_moving(one))
                    for line in paired_lines(
                        grid, noisy[1][:, i], without[1][:, i], color=color, width=2.2 if i == one.entering else 1.1
                    )
                ),
            )
        )
    return Figure(
        name="paths",
        title="The same path, only sooner",
        caption="The same entries against the progress of the entering one, beta_i over its value on the new plateau: "
        "after the noise (solid) and without it (dashed). They part where other coordinates enter at the same time, "
        "since the noise changes the order.",
        panels=tuple(panels),
        columns=3,
    )
