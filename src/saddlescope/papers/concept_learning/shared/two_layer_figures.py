"""Panels and tables of one run of the symmetric two-layer model: loss and its drivers, entries of W, output."""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.plot import Axis, Heat, Line, Mark, Panel, Table, lines

_DRIVERS = 2  # entries listed for each piece


def entry_name(i: int, j: int) -> str:
    """Return the paper's name of an entry, counted from 1, such as w12."""
    return f"w{min(i, j) + 1}{max(i, j) + 1}"


def _entries(one: xr.Dataset) -> list[tuple[int, int, int]]:
    """Return row, column and stronger concept of every entry."""
    a = one.strength.values
    pairs = zip(one.entry_row.values.tolist(), one.entry_column.values.tolist(), strict=True)
    return [(i, j, i if a[i] > a[j] else j) for i, j in pairs]


def loss_panel(one: xr.Dataset, *, top: float | None = None) -> Panel:
    """Draw the loss out of distribution against the logarithm of time, with its turns; `top` cuts its axis off."""
    turns = one.turning_loss[1:-1].assign_coords(turning_time=one.turning_time[1:-1])
    marks = (
        *lines(one.loss, x="time", label="loss out of distribution", grouped=True, width=2.0),
        *lines(turns, x="turning_time", label="its turns, exact", grouped=True, color=1, style="points"),
    )
    y = Axis("|(W − 1) x|² / 2", range=None if top is None else (-0.05 * top, top))
    return Panel(x=_time_axis(one), y=y, marks=marks)


def later_losses(one: xr.Dataset) -> float:
    """Return an upper end of the loss's axis that shows the turns after the first descent."""
    return 1.15 * float(one.turning_loss[1:].max())


def entries_panel(one: xr.Dataset, *, predicted: bool = False) -> Panel:
    """Draw entries against time: major ones solid, minor ones dashed or dotted in the colour of their suppressor."""
    a = one.strength.values
    marks: list[Line | Mark] = []
    for i, j, strong in _entries(one):
        near = not any(min(a[i], a[j]) < other < a[strong] for other in a)
        marks += lines(
            one.W[:, i, j],
            x="time",
            label=entry_name(i, j),
            grouped=True,
            color=strong,
            style="solid" if i == j else "dashed" if near else "dotted",
            width=2.0 if i == j else 1.4,
        )
    if predicted:
        marks += [Mark(at=float(t), color=k) for k, t in enumerate(one.predicted_time.values) if t < one.time[-1]]
    else:
        marks += [Mark(at=float(t), group="turns of the loss") for t in one.turning_time.values[1:-1]]
    return Panel(x=_time_axis(one), y=Axis("entry of W"), marks=tuple(marks))


def entry_histories_panel(one: xr.Dataset) -> Panel:
    """Draw |w_ij| of all entries on a logarithmic scale, with the predicted times of the major ones."""
    a = one.strength.values
    drawn: list[Line] = []
    for i, j, strong in _entries(one):
        if a[strong] == 0:
            group, color, style = "irrelevant", len(a), "dotted"
        elif i == j:
            group, color, style = f"major {entry_name(i, i)}", i, "solid"
        else:
            group, color, style = f"group {strong + 1}", strong, "dashed"
        drawn += lines(abs(one.W[:, i, j]), x="time", label=group, grouped=True, color=color, style=style)
    learned = {k: float(time) for k, time in enumerate(one.predicted_time.values) if np.isfinite(time)}
    return Panel(
        title="all entries, with the predicted times of w_kk = 1/2",
        x=Axis("time t of gradient flow", range=(0.0, 1.5 * max(learned.values()))),
        y=Axis("|w_ij|", scale="log", range=(_lowest_shown(one), 2.0)),
        marks=(*drawn, *(Mark(at=time, color=k) for k, time in learned.items())),
    )


def stage_heats(one: xr.Dataset) -> tuple[Panel, ...]:
    """Draw |W| at the start, half-way between the predicted stages, and half as long again after the last."""
    learned = np.sort(one.predicted_time.values[np.isfinite(one.predicted_time.values)])
    place = np.arange(1.0, one.sizes["row"] + 1)
    heats = []
    for n, time in enumerate([0.0, *((learned[:-1] + learned[1:]) / 2), 1.5 * learned[-1]]):
        k = int(np.argmin(np.abs(one.time.values - time)))
        z = np.maximum(np.abs(one.W.values[k]), _lowest_shown(one))
        heats.append(
            Panel(
                title="at the start" if n == 0 else f"{n} learned, t = {float(one.time[k]):.3g}",
                x=Axis("column"),
                y=Axis("row", range=(place[-1] + 0.5, 0.5)),
                marks=(Heat(x=place, y=place, z=z, label="|w|", scale="log"),),
            )
        )
    return tuple(heats)


def _lowest_shown(one: xr.Dataset) -> float:
    """Return a tenth of the smallest entry at the start, the lower end of logarithmic axes."""
    return float(abs(one.W[0]).min()) / 10


def output_panel(one: xr.Dataset, title: str = "output") -> Panel:
    """Draw the output W x as a path in the plane of the first two concepts."""
    p, q = one.test_point.values[:2]
    f, turns = one.output.values, (one.turning_W.values @ one.test_point.values)[1:-1]
    dots = partial(Line, style="points")
    marks = (
        Line(x=f[:, 0], y=f[:, 1], group="output W x", color=6, width=2.0),
        dots(x=turns[:, 0], y=turns[:, 1], group="its turns, exact", color=1),
        dots(x=np.array([p, 0.0]), y=np.array([0.0, q]), group="training clusters", color=2),
        dots(x=np.array([p]), y=np.array([q]), group="test point", color=3),
    )
    return Panel(title=title, x=Axis("(W x)1"), y=Axis("(W x)2"), marks=marks)


def piece_table(one: xr.Dataset) -> Table:
    """Return a table of every rise and fall of the loss, with the entries that drive it most."""
    names = [entry_name(i, j) for i, j, _ in _entries(one)]
    rows = []
    for n, change in enumerate(np.diff(one.turning_loss.values)):
        drive = np.maximum(one.push.values[n] * np.sign(change), 0.0).ravel()
        drivers = ", ".join(
            f"|{names[k // 2]}| {one.phase.values[k % 2]} ({drive[k] / drive.sum():.0%})"
            for k in np.argsort(-drive, kind="stable")[:_DRIVERS]
        )
        first, last = one.turning_time.values[n : n + 2].tolist()
        rows.append(("rise" if change > 0 else "fall", first, last, float(change), drivers))
    return Table(columns=("piece", "from t", "to t", "change of the loss", "driven most by"), rows=tuple(rows))


def entry_table(one: xr.Dataset) -> Table:
    """Return a table of every entry with its kind, groups, times found and predicted."""
    a = one.strength.values
    rows = []
    for n, (i, j, _) in enumerate(_entries(one)):
        concepts = sorted({p for p in (i, j) if a[p] > 0}, key=lambda p: -a[p])
        kind = "irrelevant" if not concepts else "major" if i == j else "minor"
        groups = ", ".join(str(p + 1) for p in concepts) if kind == "minor" else "-"
        time = one.predicted_time[i] if i == j else one.predicted_peak_time[i, j]
        numbers = [float(one[name][n]) for name in ("grows", "top", "height", "settles")]
        shown = ["never" if value == float("inf") else value for value in (*numbers, float(time))]
        rows.append((entry_name(i, j), kind, groups, *("-" if value != value else value for value in shown)))
    times = ("grows", "half or peak", "height", "learned or suppressed", "half or peak, predicted")
    return Table(columns=("entry", "kind", "groups", *times), rows=tuple(rows))


def _time_axis(one: xr.Dataset) -> Axis:
    return Axis("time t of gradient flow", scale="log", range=(float(one.time[1]), float(one.time[-1])))
