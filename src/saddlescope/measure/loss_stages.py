"""Plateaus, drops and rises of a recorded loss, as `saddlescope.measure.find_plateaus` finds them."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import Table
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import AnyMark, Axis, Band, Line, Mark, Panel
from saddlescope.measure.bottleneck import bottleneck_rank
from saddlescope.measure.records import Series
from saddlescope.measure.stages import Stage, Staircase

_LARGEST_DRAWN = 1e307


@dataclass(frozen=True)
class Drop:
    """A drop of the loss from a plateau to the next.

    Attributes:
        begin: step at which the fall is faster than the geometric mean of the plateau's speed and its own largest one.
        step: its middle, the step at which half of the fall is done.
        end: step at which the fall is slower again; the last step if the record ends in the drop.
        size: by how much the loss falls.
        before: the loss at its begin.
        after: the loss at its end.
        certainty: share of ten random halves of the records in which the drop is found again.
        earliest: the smallest middle in these halves.
        latest: the largest middle in these halves.
        finished: False if the record ends in the drop.
    """

    begin: float
    step: float
    end: float
    size: float
    before: float
    after: float
    certainty: float
    earliest: float
    latest: float
    finished: bool


@dataclass(frozen=True)
class Plateau:
    """A part of the record between drops.

    Attributes:
        begin: first step.
        step: its middle.
        end: last step.
        loss: median over its middle half.
        size: by how much the loss falls from its begin to its end.
        certainty: the smallest of the drops that bound it; 1 without drops.
        layer_ranks: the rank of every layer, from the input on; None without singular values.
    """

    begin: float
    step: float
    end: float
    loss: float
    size: float
    certainty: float
    layer_ranks: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Rise:
    """A rise of the loss above its lowest value so far.

    Attributes:
        kind: "initial rise", "spike" (over within a tenth of the record), "lost progress", or "divergence" (the record
            ends above its first loss).
        begin: step at which the loss leaves its lowest value.
        step: step of the highest loss.
        end: step at which the loss is back, or the last step.
        low: the loss before.
        high: the highest loss.
    """

    kind: str
    begin: float
    step: float
    end: float
    low: float
    high: float


@dataclass(frozen=True, repr=False, eq=False)
class LossStages(TableMixin, PlotMixin):
    """Plateaus, drops and rises of a recorded loss.

    Attributes:
        steps: (n,), those with a finite loss, strictly increasing.
        losses: (n,).
        plateaus: in order.
        drops: in order.
        rises: in order.
        remarks: sentences on what else the record shows.
        smooth_steps: (m,) of the medians in which drops were looked for.
        smooth_losses: (m,), these medians.
        log_loss: True if the losses are positive and extend over more than a decade, so that the axis is logarithmic.
        log_steps: True if a drop is in the first twentieth of the record.
    """

    steps: Series
    losses: Series
    plateaus: tuple[Plateau, ...]
    drops: tuple[Drop, ...]
    rises: tuple[Rise, ...]
    remarks: tuple[str, ...]
    smooth_steps: Float[np.ndarray, "m"]
    smooth_losses: Float[np.ndarray, "m"]
    log_loss: bool
    log_steps: bool

    @property
    def times(self) -> Series:
        """The steps: a recorded loss is a run, which `compare` and `plot_staircase` take."""
        return self.steps

    @property
    def time_unit(self) -> str:
        """The unit of the times."""
        return "steps"

    @property
    def activity(self) -> None:
        """None: stages are compared by their losses."""

    @property
    def identified(self) -> bool:
        """False: no components are known."""
        return False

    @property
    def staircase(self) -> Staircase:
        """The stages with their ranks: each begins at the middle of a finished drop; `rank` is the `bottleneck_rank`.

        Raises:
            InputError: no singular values were given.
        """
        edges = [float(self.steps[0]), *(drop.step for drop in self.drops if drop.finished), float(self.steps[-1])]
        stages = []
        for start, end in itertools.pairwise(edges):
            inside = [one for one in self.plateaus if start <= one.step <= end]
            longest = max(inside or self.plateaus, key=lambda one: one.end - one.begin)
            if longest.layer_ranks is None:
                raise InputError("A staircase has ranks: pass singular_values to find_plateaus.")
            rank = bottleneck_rank(longest.layer_ranks)
            stages.append(Stage(start, end, longest.loss, rank, layer_ranks=longest.layer_ranks))
        return Staircase(tuple(stages), "steps")

    def to_dict(self) -> dict[str, Any]:
        """Return plateaus, drops, rises and remarks as values of JSON."""
        parts = {"drops": self.drops, "plateaus": self.plateaus, "rises": self.rises}
        return {name: [asdict(one) for one in values] for name, values in parts.items()} | {
            "remarks": list(self.remarks)
        }

    def __repr__(self) -> str:
        names = (("plateau", self.plateaus), ("drop", self.drops), ("rise", self.rises))
        counts = ", ".join(f"{len(values)} {name}{'s' * (len(values) != 1)}" for name, values in names)
        return f"LossStages({counts}; steps {self.steps[0]:.6g} to {self.steps[-1]:.6g})"

    def _table(self) -> Table:
        ranked = any(one.layer_ranks is not None for one in self.plateaus)
        return ("part", "begin", "middle", "end", "loss", "falls by", "certainty", *["layer ranks"] * ranked), (
            (*row, *[ranks or ""] * ranked) for row, ranks in self._rows()
        )

    def _rows(self) -> Iterator[tuple[tuple[Any, ...], tuple[int, ...] | None]]:
        for one in sorted((*self.plateaus, *self.drops), key=lambda one: one.begin):
            if isinstance(one, Drop):
                name = "drop" if one.finished else "drop, unfinished"
                yield (name, one.begin, one.step, one.end, one.before, one.size, one.certainty), None
            else:
                row = ("plateau", one.begin, one.step, one.end, one.loss, one.size, one.certainty)
                yield row, one.layer_ranks

    def panel(self) -> Panel:
        """Return the entire record, raw and smoothed, with plateaus as bands and drops as lines.

        Axes are logarithmic where `log_loss` and `log_steps` say so.

        Raises:
            InputError: numbers so near the end of float64 that the ticks of an axis would be beyond it.
        """
        x, y = self.steps, self.losses
        if (largest := max(np.max(np.abs(x)), np.max(np.abs(y)))) > _LARGEST_DRAWN:
            raise InputError(
                f"losses and steps must be at most {_LARGEST_DRAWN:g} to be drawn; got {largest:.3g}. Divide them."
            )
        if self.log_steps and x[0] <= 0:  # a logarithmic axis has no 0: it begins at the first step after it
            y, x = y[x > 0], x[x > 0]
        first, last, ends = float(x[0]), float(x[-1]), np.array([np.min(y), np.max(y)])

        def band(begin: float, end: float, group: str, color: int) -> Band:
            low, high = np.full((2, 2), ends).T
            return Band(x=np.array([max(begin, first), end]), low=low, high=high, group=group, color=color)

        marks: list[AnyMark] = [band(one.begin, one.end, "plateau", 5) for one in self.plateaus]
        for drop in self.drops:
            if drop.latest > drop.earliest:
                marks.append(band(drop.earliest, drop.latest, "drop", 1))
            marks.append(Mark(at=drop.step, group="drop", color=1))
        marks.append(Line(x=x, y=y, width=0.8, opacity=0.45, color=0))
        marks.append(Line(x=self.smooth_steps, y=self.smooth_losses, width=2.0, color=0))
        return Panel(
            x=Axis("step", scale="log" if self.log_steps else "linear", range=(first, last)),
            y=Axis("loss", scale="log" if self.log_loss else "linear"),
            marks=tuple(marks),
            title=self._title(),
        )

    def _title(self) -> str:
        if not self.drops:
            return "no drop; plateau in colour" if self.plateaus else "no drop"
        steps = ", ".join(f"{drop.step:.4g}" for drop in self.drops[:6]) + (", …" if len(self.drops) > 6 else "")
        return f"drops at step {steps}; plateaus in colour"
