"""Pictures of staircases: predicted beside measured, alone, and what a comparison found."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope.measure.comparison import Comparison
from saddlescope.measure.stages import Staircase
from saddlescope.plot.axes import draw_on_axes
from saddlescope.plot.figure import AnyMark, Axis, Line, Mark, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEARNED = 0.99  # of the fall of the loss: what comes later is far away and invisible
_BEYOND = 1.12  # the end of the picture over the last time that it must show
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_COLORS = (0, 1, 2, 4, 5, 6)  # of the palette, for runs: 3 is the prediction
_NEAR = 0.03  # of the axis: nearer marks would cover each other's labels


def plot_staircase(
    predicted: Any,
    *runs: Any,
    labels: Sequence[str] | None = None,
    until: float | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw the loss of a predicted staircase, in bold, and of runs beside it, over time.

    Args:
        predicted: a `Staircase`, or a prediction with one, such as that of `incremental_learning`.
        *runs: trajectories, or staircases found in them.
        labels: one for each run; None: the initial scale of a trajectory, or "found".
        until: the last time shown; None: that of the longest run, or without runs that at which 99 % of the loss
            has been learned.
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
    stairs = staircase_of(predicted)
    if labels is not None and len(labels) != len(runs):
        raise InputError(f"labels must be {len(runs)}, one per run; got {len(labels)}.")
    given = [_described(run, stairs.time_unit) for run in runs]
    names = [name for name, _ in given] if labels is None else list(labels)
    last = until if until is not None else max((end for _, end in given), default=end_of_learning(stairs))
    if not (math.isfinite(last) and last > stairs.stages[0].start):
        raise InputError(f"until must be finite and after the first stage begins; got {until!r}.")
    marks: list[AnyMark] = [_steps(stairs, last, _prediction(stairs), 3, width=5.0, opacity=0.4)]
    for color, run, name in zip(_COLORS * len(runs), runs, names, strict=False):
        if hasattr(run, "losses") and hasattr(run, "status"):
            shown = run.times <= last
            marks.append(Line(x=run.times[shown], y=run.losses[shown], label=name, color=color))
        else:
            marks.append(_steps(staircase_of(run), last, name, color))
    if not runs:
        marks += stage_marks(stairs, last)
    return Panel(x=Axis(time_label(stairs.time_unit)), y=Axis("loss"), marks=tuple(marks))


def found_panel(stairs: Staircase) -> Panel:
    """Return the panel of one staircase: its loss, and the components that become active."""
    last = end_of_learning(stairs)
    marks = (_steps(stairs, last, "", 0, width=2.2), *stage_marks(stairs, last))
    return Panel(x=Axis(time_label(stairs.time_unit)), y=Axis("loss"), marks=marks)


def comparison_panel(compared: Comparison) -> Panel:
    """Return the panel of a comparison: the relative time error of each arrival, and those that have none."""
    marks: list[AnyMark] = [Mark(at=0.0, axis="y")]
    for match in compared.matches:
        if not math.isnan(match.time_error):
            x, y = np.array([match.predicted.time]), np.array([100 * match.time_error])
            marks.append(Line(x=x, y=y, label=f"{match.predicted.component}", style="points", width=3.0, color=0))
    marks += [Mark(at=one.time, label=f"missed {one.component}", color=1) for one in compared.missed]
    marks += [Mark(at=one.time, label=f"not predicted {one.component}", color=3) for one in compared.extra]
    label = f"predicted time, {time_label(compared.time_unit)}"
    return Panel(x=Axis(label), y=Axis("found later than predicted", "%"), marks=tuple(marks))


def staircase_of(given: Any) -> Staircase:
    """Return a staircase, or that of a prediction.

    Raises:
        InputError: it is neither.
    """
    stairs = given if isinstance(given, Staircase) else getattr(given, "staircase", None)
    if not isinstance(stairs, Staircase):
        raise InputError(
            f"predicted must be a Staircase, or a prediction with one; got {type(given).__name__!r}. "
            "Pass the result of incremental_learning, or of find_stages."
        )
    return stairs


def time_label(unit: str) -> str:
    """Return the label of an axis of time in this unit."""
    return unit if unit == "steps" else f"time {unit}".replace("time t /", "time /").replace("alpha", "α")


def end_of_learning(stairs: Staircase) -> float:
    """Return the end of a picture of a staircase: a while after 99 % of the fall of its loss."""
    losses, first, end = stairs.losses, stairs.stages[0].start, stairs.stages[-1].end
    level = losses[0] - _LEARNED * (losses[0] - min(losses))
    learned = next((stage.start for stage in stairs.stages if stage.loss <= level), first)
    if learned > first:
        return min(first + _BEYOND * (learned - first), end)
    return end if first < end < math.inf else first + 1.0


def _prediction(stairs: Staircase) -> str:
    return "predicted, α → 0" if "alpha" in stairs.time_unit else "predicted"


def stage_marks(stairs: Staircase, last: float) -> tuple[Mark, ...]:
    """Return a mark at the start of each stage, named by the components that become active, where there is room."""
    marks: list[Mark] = []
    named = -math.inf
    width = last - stairs.stages[0].start
    for before, stage in zip(stairs.stages, stairs.stages[1:], strict=False):
        if stage.start > last:
            break
        entered = sorted({*(stage.support or ())} - {*(before.support or ())})
        text = "+" + ", ".join(map(str, entered)) if entered else f"rank {stage.rank}"
        room = stage.start - named > _NEAR * width
        marks.append(Mark(at=stage.start, label=text if room else ""))
        named = stage.start if room else named
    return tuple(marks)


def scale_label(log_scale: float) -> str:
    """Return the initial scale in words: `α = 10⁻¹⁶` for log(1e-16).

    >>> import math
    >>> scale_label(-512 * math.log(10)), scale_label(math.log(0.03))
    ('α = 10⁻⁵¹²', 'α = 10⁻¹·⁵²')
    """
    exponent = f"{log_scale / math.log(10):.3g}" if abs(log_scale) < 1e3 else f"{log_scale / math.log(10):.0f}"
    return f"α = 10{exponent.translate(_SUPERSCRIPTS).replace('.', '·')}"


def _described(run: Any, unit: str) -> tuple[str, float]:
    """Return the label of a run, and its last time."""
    trajectory = hasattr(run, "losses") and hasattr(run, "status")
    if not trajectory and not isinstance(run, Staircase):
        raise InputError(
            f"runs must be trajectories or staircases found in them; got {type(run).__name__!r}. "
            "Pass the result of gradient_flow, or of find_stages."
        )
    if run.time_unit != unit:
        raise InputError(f"runs must be in the time unit of predicted, {unit!r}; got {run.time_unit!r}.")
    if not trajectory:
        return "found", end_of_learning(run) if math.isinf(run.stages[-1].end) else run.stages[-1].end
    scale = getattr(run, "log_scale", None)
    return "simulated" if scale is None else scale_label(scale), float(run.times[-1])


def _steps(
    stairs: Staircase, last: float, name: str, color: int | None, *, width: float = 1.6, opacity: float = 1.0
) -> Line:
    """Return the loss of a staircase, until a last time."""
    shown = [stage for stage in stairs.stages if stage.start < last]
    x = np.array([*(stage.start for stage in shown), min(last, shown[-1].end)])
    y = np.array([*(stage.loss for stage in shown), shown[-1].loss])
    return Line(x=x, y=y, label=name, color=color, style="steps", width=width, opacity=opacity)
