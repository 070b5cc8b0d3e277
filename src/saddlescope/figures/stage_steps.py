"""Pictures of the stages of a staircase: its loss as steps, and the components that become active."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np

from saddlescope.figures.records import Axis, Line, Panel
from saddlescope.figures.time_axes import TimeAxis, learned_at


@runtime_checkable
class Stage(Protocol):
    """Attributes of a stage that a picture needs, as those of a `saddlescope.measure.Staircase` have them."""

    @property
    def start(self) -> float:
        """Time at which it begins."""
        ...

    @property
    def end(self) -> float:
        """Time at which the next one begins."""
        ...

    @property
    def loss(self) -> float:
        """Level of the plateau."""
        ...

    @property
    def rank(self) -> int:
        """Number of active components."""
        ...

    @property
    def support(self) -> tuple[int, ...] | None:
        """The active components, if they have an identity."""
        ...


def learned_by(stages: Sequence[Stage]) -> float:
    """Return the time at which 99 % of the fall of the stages' loss has been learned."""
    starts, losses = (np.array(each, float) for each in zip(*((one.start, one.loss) for one in stages), strict=True))
    return learned_at(starts, losses, float(losses.min()), float(stages[-1].end))


def step_line(
    stages: Sequence[Stage],
    over: TimeAxis,
    label: str,
    color: int | None,
    *,
    width: float = 1.6,
    opacity: float = 1.0,
) -> Line:
    """Return the loss of the stages on an axis of time."""
    shown = [stage for stage in stages if stage.start < over.last] or list(stages[:1])
    x = over.clipped(np.array([*(one.start for one in shown), min(over.last, shown[-1].end)]))
    y = np.array([*(one.loss for one in shown), shown[-1].loss])
    return Line(x=x, y=y, label=label, color=color, style="steps", width=width, opacity=opacity)


def activations(stages: Sequence[Stage]) -> Iterator[tuple[float, str]]:
    """Yield the start of each stage but the first, with the components that become active."""
    for before, stage in pairwise(stages):
        entered = sorted({*(stage.support or ())} - {*(before.support or ())})
        yield float(stage.start), "+" + ", ".join(map(str, entered)) if entered else f"rank {stage.rank}"


def stages_panel(stages: Sequence[Stage], unit: str) -> Panel:
    """Return the panel of the stages until 99 % of the fall of their loss has been learned."""
    first, *starts = (float(one.start) for one in stages)
    over = TimeAxis.of(unit, starts, first, learned_by(stages), float(stages[-1].end))
    marks = (step_line(stages, over, "", 0, width=2.2), *over.marks(activations(stages)))
    return Panel(x=over.axis, y=Axis("loss"), marks=marks)
