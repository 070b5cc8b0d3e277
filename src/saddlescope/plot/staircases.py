"""Pictures of staircases: a prediction beside the runs and staircases that it predicts."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from saddlescope._shared.errors import InputError
from saddlescope.figures.records import AnyMark, Axis, Line, Panel
from saddlescope.figures.stage_steps import activations, learned_by, step_line
from saddlescope.figures.time_axes import TimeAxis, final_loss, learned_at, scale_label
from saddlescope.measure.loss_stages import LossStages
from saddlescope.measure.stages import Run, Staircase, run_or_staircase, staircase_of
from saddlescope.plot.axes import draw_on_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = (0, 1, 2, 4, 5, 6)  # of the palette, for runs: 3 is the prediction


def plot_staircase(
    predicted: Any,
    *runs: Any,
    labels: Sequence[str] | None = None,
    until: float | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the loss of a predicted staircase, in bold, and of runs beside it, over time.

    The axis of time is logarithmic where stages are so far apart that the first ones would be invisible.

    Args:
        predicted: a `Staircase`, or a prediction with one, such as that of `incremental_learning`.
        *runs: trajectories, staircases found in them, or losses of trainings, from `find_plateaus`.
        labels: one for each run; None: the initial scale of a trajectory, "found" or "recorded".
        until: the last time shown; None: a little after the prediction and all runs have learned 99 % of what they
            learn, at most the end of the longest run.
        ax: Matplotlib axes to draw on; None: those of a new figure.

    Returns:
        The axes.

    Raises:
        InputError: something is no staircase and no run, the units of time differ, or labels are not one per run.
    """
    return draw_on_axes(staircase_panel(predicted, *runs, labels=labels, until=until), ax)


def staircase_panel(
    predicted: Any, *runs: Any, labels: Sequence[str] | None = None, until: float | None = None
) -> Panel:
    """Return the panel that `plot_staircase` draws."""
    stairs = staircase_of("predicted", predicted)
    if labels is not None and len(labels) != len(runs):
        raise InputError(f"labels must be {len(runs)}, one per run; got {len(labels)}.")
    given = [run_or_staircase("runs", run, stairs.time_unit) for run in runs]
    names = [_name(run) for run in given] if labels is None else list(labels)
    first = float(stairs.stages[0].start)
    if until is not None and not first < until < math.inf:
        raise InputError(f"until must be finite and after the first stage begins; got {until!r}.")
    ends = [float(run.stages[-1].end) if isinstance(run, Staircase) else float(run.times[-1]) for run in given]
    end = max(ends, default=math.inf) if until is None else until
    learned = min(end, max(map(_learned, [stairs, *given]))) if until is None else until
    over = TimeAxis.of(stairs.time_unit, stairs.times, first, learned, end)
    label = "predicted, α → 0" if "alpha" in stairs.time_unit else "predicted"
    marks: list[AnyMark] = [step_line(stairs.stages, over, label, 3, width=5.0, opacity=0.4)]
    for color, run, name in zip(_COLORS * len(given), given, names, strict=False):
        if isinstance(run, Staircase):
            marks.append(step_line(run.stages, over, name, color))
        else:
            shown = run.times <= over.last
            marks.append(Line(x=over.clipped(run.times[shown]), y=run.losses[shown], label=name, color=color))
    if not runs:
        marks += over.marks(activations(stairs.stages))
    return Panel(x=over.axis, y=Axis("loss"), marks=tuple(marks))


def _learned(run: Run | Staircase) -> float:
    """Return the time by which a run or staircase has learned 99 % of what it learns."""
    if isinstance(run, Staircase):
        return learned_by(run.stages)
    return learned_at(run.times, run.losses, final_loss(run.losses), float(run.times[-1]))


def _name(run: Run | Staircase) -> str:
    if isinstance(run, Staircase):
        return "found"
    if isinstance(run, LossStages):
        return "recorded"
    scale = getattr(run, "log_scale", None)
    return "simulated" if scale is None else scale_label(scale)
