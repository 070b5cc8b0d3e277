"""Axes of time that show every stage, the part of a record in which learning happens, and curves of a loss over time.

Stages can be decades apart, and small stages, of noise in the data for example, can follow long after everything else
has been learned. Pictures end a little after 99 % of the fall of the loss, and times far apart have a logarithmic axis.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from saddlescope.figures.records import Axis, Line, Mark, Panel

_LEARNED = 0.99  # of the fall of the loss: what comes later is far away and invisible
_BEYOND = 0.12  # of the axis: room after the last time that it must show
_SPREAD = 20.0  # ratio of the last time to the first from which the first is invisible on a linear axis
_BEFORE = 4.0  # first time on a logarithmic axis, as a factor below the first event
_NEAR = 0.03  # of the axis: labels nearer to each other would overlap
_MOST_MARKS = 40
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class TimeAxis:
    """Range of an axis of time.

    Attributes:
        unit: of the times.
        first, last: the times at its ends.
        log: True for a logarithmic axis, whose first time is positive.
    """

    unit: str
    first: float
    last: float
    log: bool

    @classmethod
    def of(cls, unit: str, events: Iterable[float], first: float, learned: float, end: float) -> "TimeAxis":
        """Return an axis on which events, such as the starts of stages, are distinct.

        It ends a little after `learned`, the last time that must be shown, at most at `end`.
        """
        shown = min((time for time in events if first < time <= learned), default=learned)
        log = first >= 0 and learned > _SPREAD * shown > 0
        begin = max(first, shown / _BEFORE) if log else first
        beyond = learned * (learned / begin) ** _BEYOND if log else learned + _BEYOND * (learned - begin)
        return cls(unit, begin, min(beyond, end), log)

    @property
    def axis(self) -> Axis:
        """The axis as data."""
        label = time_label(self.unit)
        return Axis(label, scale="log", range=(self.first, self.last)) if self.log else Axis(label)

    def clipped(self, times: np.ndarray) -> np.ndarray:
        """Return the times, those before the axis at its first time, so that curves begin at the axis."""
        return np.maximum(times, self.first)

    def marks(self, events: Iterable[tuple[float, str]]) -> tuple[Mark, ...]:
        """Return a mark for each event on the axis, labelled where there is room."""
        marks: list[Mark] = []
        named = -math.inf
        for time, label in events:
            if self.first <= time <= self.last:
                room = self._place(time) - named > _NEAR
                marks.append(Mark(at=time, label=label if room else ""))
                named = self._place(time) if room else named
        return tuple(marks)

    def _place(self, time: float) -> float:
        """Return the place of a time on the axis, from 0 to 1."""
        first, last, at = (math.log(t) if self.log else t for t in (self.first, self.last, time))
        return (at - first) / (last - first) if last > first else 0.0


def learned_at(times: np.ndarray, losses: np.ndarray, final: float, end: float, *, share: float = _LEARNED) -> float:
    """Return the first time at which a share of the fall from the first loss to `final` is done; else `end`.

    If `end` is infinite, return a time after the first: then nothing is learned, and any time shows it.
    """
    with np.errstate(invalid="ignore"):  # infinite losses have no level
        level = losses[0] - share * (losses[0] - final)
    below = np.flatnonzero(losses <= level)
    if len(below) and times[below[0]] > times[0]:
        return float(times[below[0]])
    return end if times[0] < end < math.inf else float(times[0]) + 1.0


def final_loss(losses: np.ndarray) -> float:
    """Return the loss that a run arrives at: the median of the last tenth of its finite losses, NaN without any."""
    finite = losses[np.isfinite(losses)]
    return float(np.median(finite[-max(1, len(finite) // 10) :])) if len(finite) else math.nan


def loss_panel(
    unit: str, times: np.ndarray, losses: np.ndarray, events: Iterable[tuple[float, str]] = (), title: str = ""
) -> Panel:
    """Return the panel of the loss of a run over its entire time, with labelled events in the order of time."""
    first, end = float(times[0]), float(times[-1])
    half = learned_at(times, losses, final_loss(losses), end, share=0.5)
    shown = list(events)[:_MOST_MARKS]
    over = TimeAxis.of(unit, [half, *(time for time, _ in shown)], first, end, end)
    line = Line(x=over.clipped(times), y=losses, color=0, width=2.0)
    return Panel(x=over.axis, y=Axis("loss"), marks=(line, *over.marks(shown)), title=title if shown else "")


def time_label(unit: str) -> str:
    """Return the label of an axis of time in this unit."""
    return unit if unit == "steps" else f"time {unit}".replace("time t /", "time /").replace("alpha", "α")


def scale_label(log_scale: float) -> str:
    """Return the initial scale in words: `α = 10⁻¹⁶` for log(1e-16).

    >>> import math
    >>> scale_label(-512 * math.log(10)), scale_label(math.log(0.03))
    ('α = 10⁻⁵¹²', 'α = 10⁻¹·⁵²')
    """
    exponent = f"{log_scale / math.log(10):.3g}" if abs(log_scale) < 1e3 else f"{log_scale / math.log(10):.0f}"
    return f"α = 10{exponent.translate(_SUPERSCRIPTS).replace('.', '·')}"
