"""Base of greedy predictions: their staircase, the status of their end, near-ties, and checks of their options."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Panel
from saddlescope.measure.stages import Stage, Staircase

_CANCELLED = 1e-12  # share of the terms of a slope that is rounding


class AlgorithmStatus(StrEnum):
    """Termination status of `incremental_learning`, `low_rank_learning` and `unit_learning`."""

    CONVERGED = "converged"
    NO_UTILITY = "no_utility"
    MAX_STAGES = "max_stages"
    UNTIL = "until"
    TIE = "tie"
    DEGENERATE = "degenerate"
    UNSTABLE = "unstable"
    SADDLE = "saddle"
    NO_MINIMUM = "no_minimum"
    NOT_FINITE = "not_finite"


@dataclass(frozen=True)
class NearTie:
    """Property of a stage that a given initial scale does not resolve.

    Attributes:
        stage: the index k.
        kind: "order" if another coordinate or unit becomes active at almost the same time, so that the order of entry
            is open; "plateau" if the stage ends before its plateau is reached.
        efolds: the separation, in factors of e of a weight.
        coordinate: of diagonal weights, the one that is too close: the competitor, or the one that ends the plateau;
            None for units.
    """

    stage: int
    kind: Literal["order", "plateau"]
    efolds: float
    coordinate: int | None = None


class Prediction(TableMixin, PlotMixin):
    """Predicted stages, and the termination status: a base for frozen dataclasses."""

    stages: tuple[Any, ...]
    end: float
    status: AlgorithmStatus
    message: str

    @abstractmethod
    def _active(self, stage: Any) -> tuple[int, tuple[int, ...] | None]:
        """Return the number of active components of a stage, and their numbers where they have some."""

    def _described(self, of_last: str = "", of_all: str = "") -> str:
        first, last = self.stages[0], self.stages[-1]
        return (
            f"{type(self).__name__}({of_all}{len(self.stages)} stages to T = {last.time:.6g}, {of_last}loss "
            f"{first.loss:.3g} to {last.loss:.3g}, {self.status.value})"
        )

    def panel(self) -> Panel:
        """Return the picture of the staircase."""
        return self.staircase.panel()

    @property
    def time_unit(self) -> str:
        """Unit of all times."""
        return "t / log(1/alpha)"

    @property
    def ends(self) -> tuple[float, ...]:
        """Time at which each stage ends."""
        return (*(stage.time for stage in self.stages[1:]), self.end)

    @property
    def staircase(self) -> Staircase:
        """Prediction as a `Staircase`, whose ranks are numbers of active components, to be compared with a run's."""
        stages = (
            Stage(stage.time, end, stage.loss, *self._active(stage))
            for stage, end in zip(self.stages, self.ends, strict=True)
        )
        return Staircase(tuple(stages), self.time_unit)


def closer_than(efolds: float, ties: Iterable[NearTie]) -> tuple[NearTie, ...]:
    """Return the near-ties that are separated by fewer e-folds.

    Raises:
        InputError: efolds is not positive.
    """
    if not efolds > 0:
        raise InputError(f"efolds must be positive; got {efolds!r}.")
    return tuple(tie for tie in ties if tie.efolds < efolds)


def check_log_scale(log_scale: float) -> None:
    """Raise InputError unless a number is the logarithm of an initial scale."""
    if not (log_scale < 0 and math.isfinite(log_scale)):
        raise InputError(
            f"log_scale must be the natural logarithm of an initial scale below 1; got {log_scale!r}. "
            "Use math.log(alpha)."
        )


def check_limits(tolerance: float, max_stages: int | None, weight_decay: float = 0.0) -> None:
    """Raise InputError for options of a prediction that are out of range."""
    if not (isinstance(tolerance, float) and 0 < tolerance < 1e-3):
        raise InputError(f"tolerance must be a number between 0 and 1e-3; got {tolerance!r}.")
    if max_stages is not None and not (isinstance(max_stages, int | np.integer) and max_stages >= 1):
        raise InputError(f"max_stages must be an integer of at least 1, or None; got {max_stages!r}.")
    if not 0 <= weight_decay < math.inf:
        raise InputError(f"weight_decay must be finite and not negative; got {weight_decay!r}.")


def rounding_of_slope(loss: float, curvature: float) -> float:
    """Return what rounding may leave of a slope whose terms cancel, as those of X^T y in least squares.

    The terms are as large as sqrt(2 L L''), the slope of a parabola that falls from L to 0.
    """
    return _CANCELLED * math.sqrt(2 * abs(loss)) * math.sqrt(abs(curvature))


def report_stage(report: Report, stages: Sequence[Any], max_stages: int | None, *, active: str, share: float) -> None:
    """Report the last stage, with the finished fraction: of `max_stages`, or the share of what can become active."""
    stage, k = stages[-1], len(stages) - 1
    done = share if max_stages is None else k / max_stages
    report(min(done, 1.0), f"stage {k}: {active}, T = {stage.time:.4g}, loss {stage.loss:.3g}")
