"""Pictures of results, by the names of their classes: drawing needs their public attributes, not their packages."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from saddlescope.measure.arrays import as_numpy
from saddlescope.plot.axes import draw_on_axes
from saddlescope.plot.figure import AnyMark, Axis, Heat, Line, Mark, Panel
from saddlescope.plot.loss_stages_panel import loss_stages_panel
from saddlescope.plot.spectra_panel import spectra_panel
from saddlescope.plot.staircase_panels import comparison_panel, found_panel, staircase_of, time_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEW = 6  # lines, each with a label and a colour of its own
_SAME_SPEED = 1e-3  # relative difference up to which two searches found one direction
_CURVE = 12  # records from which on a line through them is a curve
_MOST_LINES = 60  # of a crowd of thin lines
_MOST_MARKS = 40  # crossings beyond it are not marked


def plot_result(result: Any, ax: "Axes | None" = None) -> "Axes":
    """Draw a result on axes, those of a new figure if None, and return them."""
    return draw_on_axes(result_panel(result), ax)


def result_panel(result: Any) -> Panel:
    """Return the panel of a result, by the name of the nearest of its classes that has one."""
    for cls in type(result).__mro__:
        if cls.__name__ in PANELS:
            return PANELS[cls.__name__](result)
    raise TypeError(f"{type(result).__name__} has no picture; add one to PANELS.")


def _trajectory(run: Any) -> Panel:
    """Loss over time, with the entries that pass the level; those with no room for their names are left out."""
    loss = Line(x=run.times, y=run.losses, color=0, width=2.0)
    marks = _crossings(getattr(run, "crossings", ()), float(run.times[-1]))
    title = f"+i, −i: entry i rises above, falls below {run.level:.3g} in size" if marks else ""
    return Panel(x=Axis(time_label(run.time_unit)), y=Axis("loss"), marks=(loss, *marks), title=title)


def _crossings(crossings: Any, last: float) -> list[Mark]:
    marks: list[Mark] = []
    for one in crossings[:_MOST_MARKS]:
        if not marks or one.time - marks[-1].at > 0.03 * last:
            marks.append(Mark(at=one.time, label=f"{'+' if one.rising else '−'}{one.index}"))
    return marks


def _batch(runs: Any) -> Panel:
    """Losses over time of every flow."""
    width = 1.6 if len(runs) <= _FEW else 0.8
    marks = tuple(
        Line(x=one.times, y=one.losses, color=flow if len(runs) <= _FEW else 0, label=f"flow {flow}", width=width)
        for flow, one in enumerate(runs.each[:_MOST_LINES])
    )
    return Panel(x=Axis(time_label(runs.time_unit)), y=Axis("loss"), marks=_unlabelled(marks))


def _symmetric_flows(flows: Any) -> Panel:
    """Losses out of distribution of every start, at the recorded times and at all extrema."""
    style = "solid" if len(flows.times) >= _CURVE else "points"
    marks = []
    for start in range(min(len(flows), _MOST_LINES)):
        times, first = np.unique(np.append(flows.times, flows.turning_times[start]), return_index=True)
        losses = np.append(flows.losses[start], flows.turning_losses[start])[first]
        color, width = (start, 1.6) if len(flows) <= _FEW else (0, 0.8)
        marks.append(Line(x=times, y=losses, color=color, label=f"start {start}", width=width, style=style))
    return Panel(x=Axis("time t"), y=Axis("loss out of distribution"), marks=_unlabelled(tuple(marks)))


def _symmetric_path(path: Any) -> Panel:
    """Entries of W over time, those of the diagonal in bold."""
    times = np.unique(np.concatenate([np.linspace(0.0, path.until, 400), path.edges]))
    W = path(times)
    marks = tuple(
        Line(x=times, y=W[:, i, j], label=f"w{i}{j}", width=2.0 if i == j else 0.8, color=i if i == j else None)
        for i, j in np.argwhere(np.triu(np.ones_like(W[0]))).tolist()
    )
    return Panel(x=Axis("time t"), y=Axis("entry of W"), marks=_unlabelled(marks[:_MOST_LINES]))


def _unlabelled(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Return lines without labels where they are a crowd."""
    return lines if len(lines) <= _FEW else tuple(replace(line, label="") for line in lines)


def _deep_linear(stages: Any) -> Panel:
    ranks = np.array(stages.ranks)
    marks: tuple[AnyMark, ...] = (
        Line(x=ranks, y=stages.losses, color=0, width=1.0),
        Line(x=ranks, y=stages.losses, label="plateaus", style="points", color=0, width=3.0),
    )
    return Panel(x=Axis("rank"), y=Axis("loss"), marks=marks)


def _width_ladder(ladder: Any) -> Panel:
    """Loss of the narrow networks by width, saddles of wider networks apart from the others."""
    widths = np.array([rung.width for rung in ladder.rungs])
    losses, saddles = np.array(ladder.losses), np.array([rung.saddle for rung in ladder.rungs])
    marks: list[AnyMark] = [Line(x=widths, y=losses, color=0, width=1.0)]
    for color, (kind, shown) in enumerate((("saddle of wider networks", saddles), ("no descent found", ~saddles))):
        if shown.any():
            marks.append(Line(x=widths[shown], y=losses[shown], label=kind, style="points", color=color, width=3.0))
    return Panel(x=Axis("width of the narrow network"), y=Axis("loss"), marks=tuple(marks))


def _escape_directions(found: Any) -> Panel:
    """Speeds along the descent of every start, and the fastest one in bold."""
    best, ranks = found.best, ", ".join(map(str, found.ranks[found.best].tolist()))
    kept = [k for k in np.argsort(-found.speeds)[:_MOST_LINES].tolist() if k != best]
    after = found.steps > 0
    marks: list[AnyMark] = [
        Line(x=found.steps[after], y=found.curves[k][after], color=5, width=0.8, opacity=0.5) for k in kept
    ]
    marks.append(Line(x=found.steps[after], y=found.curves[best][after], color=0, width=2.4))
    marks.append(Mark(at=float(found.speeds[best]), axis="y", label=f"{found.speeds[best]:.4g}, ranks {ranks}"))
    others = found.speeds[found.speeds < found.speeds[best] * (1 - _SAME_SPEED)]
    if len(others):
        marks.append(Mark(at=float(others.max()), axis="y", label=f"{others.max():.4g}"))
    return Panel(x=Axis("step of the search", scale="log"), y=Axis("escape speed"), marks=tuple(marks))


def _escape_flow(flow: Any) -> Panel:
    line = Line(x=flow.times, y=flow.log_norms / np.log(10), color=0, width=2.0)
    return Panel(x=Axis("time s"), y=Axis("log₁₀ of the norm of the weights"), marks=(line,))


def _margin_flow(flow: Any) -> Panel:
    shown = flow.log_times > 0
    line = Line(x=flow.log_times[shown], y=flow.margin[shown], color=0, width=2.0)
    return Panel(x=Axis("ln t", scale="log"), y=Axis("smallest margin"), marks=(line,))


def _implicit_bias(answer: Any) -> Panel:
    """Excess of both norms over their least value at the present margin, for each flow."""
    run, marks = answer.dataset, []
    for color, flow in enumerate(run.flow.values.tolist()):
        for norm in ("nuclear", "Frobenius"):
            style = "solid" if norm == "nuclear" else "dashed"
            y = run.excess.sel(flow=flow, norm=norm).values
            shown = np.isfinite(y) & (y > 0) & (run.log_time.values > 0)
            label = f"{flow}: {norm}"
            marks.append(Line(x=run.log_time.values[shown], y=y[shown], label=label, color=color, style=style))
    y = Axis("norm above its least value, relative", scale="log")
    return Panel(x=Axis("ln t", scale="log"), y=y, marks=tuple(marks))


def _diagonal_svm(solved: Any) -> Panel:
    at = np.arange(len(solved.beta))
    marks: list[AnyMark] = [Mark(at=0.0, axis="y")]
    marks += [Line(x=np.array([k, k]), y=np.array([0.0, b]), color=0, width=1.4) for k, b in enumerate(solved.beta)]
    label = f"least ℓ1 norm {solved.certificate.primal:.6g}"
    marks.append(Line(x=at, y=solved.beta, label=label, style="points", color=0, width=2.6))
    return Panel(x=Axis("coordinate"), y=Axis("β"), marks=tuple(marks))


def _matrix_svm(solved: Any) -> Panel:
    of = solved.certificate
    W = solved.weights
    size = float(np.abs(W).max())
    heat = Heat(x=np.arange(W.shape[1]), y=np.arange(W.shape[0]), z=W, label="entry of W = K Qᵀ", range=(-size, size))
    title = f"least {of.norm} norm {of.primal:.6g}, rank {of.rank}"
    return Panel(x=Axis("query coordinate"), y=Axis("key coordinate"), marks=(heat,), title=title)


def _spectrum(spectrum: Any) -> Panel:
    values, floors = (as_numpy("values", array[None]) for array in (spectrum.values, spectrum.noise_floor))
    rows = values.reshape(-1, values.shape[-1])
    index = np.arange(1, rows.shape[1] + 1)
    style, width = ("points", 1.6) if len(rows) == 1 else ("solid", 0.8)
    marks: list[AnyMark] = [Line(x=index, y=row, color=0, width=width, style=style) for row in rows[:_MOST_LINES]]
    if (floor := float(floors.max())) > 0:
        marks.append(Mark(at=floor, axis="y", label="noise floor"))
    return Panel(x=Axis("index"), y=Axis("singular value", scale="log"), marks=tuple(marks))


PANELS: dict[str, Callable[[Any], Panel]] = {
    "BatchedTrajectory": _batch,
    "Comparison": comparison_panel,
    "ConceptStages": lambda predicted: found_panel(staircase_of(predicted)),
    "DeepLinearStages": _deep_linear,
    "DiagonalSvm": _diagonal_svm,
    "EscapeDirections": _escape_directions,
    "EscapeFlow": _escape_flow,
    "FactoredTrajectory": _trajectory,
    "ImplicitBias": _implicit_bias,
    "IncrementalLearning": lambda predicted: found_panel(staircase_of(predicted)),
    "LossStages": loss_stages_panel,
    "LowRankLearning": lambda predicted: found_panel(staircase_of(predicted)),
    "MarginFlow": _margin_flow,
    "MatrixSvm": _matrix_svm,
    "RankRecords": lambda records: spectra_panel(records),
    "Spectrum": _spectrum,
    "SymmetricFlows": _symmetric_flows,
    "SymmetricPath": _symmetric_path,
    "Staircase": found_panel,
    "Trajectory": _trajectory,
    "UnitLearning": lambda predicted: found_panel(staircase_of(predicted)),
    "UnitTrajectory": _trajectory,
    "WidthLadder": _width_ladder,
}
"""Functions that return the panel of a result, by the name of its class."""
