"""Predicted stages of a sum of units, and near-ties at a finite initial scale."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin, Table
from saddlescope.theory.prediction import AlgorithmStatus, NearTie, Prediction, check_log_scale, closer_than


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UnitStage(ReprMixin):
    """Stage k of the learning of a sum of units: a plateau at a saddle.

    Attributes:
        time: T_k, when the stage begins, in the time unit of the result.
        entered: kind of the unit that became active; None for stage 0.
        unit: its number, where units have one; else None.
        direction: its direction when it became active, shape (p,), of norm 1; None for stage 0.
        utility: U of this direction; 0 for stage 0.
        left: number of units that fell dormant in the transition.
        thetas: flat weights of the active units, shape (a, p). Where the unit is a quadratic form, these are
            orthogonal directions of each kind that stand for any number of units with the same sum of theta theta^T.
        kinds: kind of each active unit.
        units: number of each active unit, where units have one; else None.
        loss: L at the saddle, the level of the plateau.
        curvature: smallest eigenvalue of the Hessian of L by the active weights that is not 0, the rate at which
            gradient flow approaches the saddle; infinite for stage 0.
        flat: number of directions of the active weights along which L does not change to second order.
        passed: True if the active units went past a saddle among them to come here, on the side given by the initial
            weights of the unit that entered (kappa > 2).
        fall: by how much the loss still falls while the time since the transition grows by a factor of e: 0 at a
            minimum, and little in a valley without end, whose bottom is the plateau for kappa > 2.
        runner_up: kind of the next unit that would have become active; None if no other.
        margin: its delay, in the time unit of the result; infinite without a runner-up.
        runner_up_rate: d log|theta| / dt of the runner-up, for kappa = 2; 0 without one.
    """

    time: float
    entered: int | None
    unit: int | None
    direction: Float[np.ndarray, "p"] | None
    utility: float
    left: int
    thetas: Float[np.ndarray, "a p"]
    kinds: tuple[int, ...]
    units: tuple[int, ...] | None
    loss: float
    curvature: float
    flat: int
    passed: bool
    fall: float
    runner_up: int | None
    margin: float
    runner_up_rate: float

    @property
    def active(self) -> int:
        """Number of active units."""
        return len(self.thetas)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UnitLearning(Prediction):
    """Predicted stages, and the termination status.

    Attributes:
        stages: stage 0, at the origin, and all that follow.
        end: time at which the last stage ends; infinite when learning has converged.
        end_rate: d log|theta| / dt of the unit that ends it, for kappa = 2; 0 if none does.
        degree: kappa, the measured degree of the unit at the origin, of the terms that have a utility there.
        status: termination status.
        message: the same in a sentence, with the cure for a failure.
    """

    stages: tuple[UnitStage, ...]
    end: float
    end_rate: float
    degree: float
    status: AlgorithmStatus
    message: str

    def __repr__(self) -> str:
        return self._described(f"{self.stages[-1].active} active units, ", f"degree {self.degree:g}, ")

    def _table(self) -> Table:
        rows = ((k, one.time, one.entered, one.unit, one.active, one.loss) for k, one in enumerate(self.stages))
        return ("stage", "T", "kind that enters", "unit", "active units", "loss"), rows

    def _active(self, stage: UnitStage) -> tuple[int, tuple[int, ...] | None]:
        return stage.active, None if stage.units is None else tuple(sorted(stage.units))

    @property
    def time_unit(self) -> str:
        """Unit of all times."""
        return super().time_unit if self.degree == 2 else f"t alpha^{self.degree - 2:g}"

    def near_ties(self, log_scale: float, *, efolds: float = 1.0) -> tuple[NearTie, ...]:
        """Return stages that at the initial scale alpha are separated by fewer than `efolds` e-folds (kappa = 2).

        - order: the runner-up of stage k lacks its rate times the margin times log(1/alpha) e-folds when it begins.
        - plateau: stage k lasts its duration times log(1/alpha) in time t. The slower of the approach to the saddle
          and of the growth of the unit that ends it, times this time, is the number of e-folds.

        Args:
            log_scale: the natural logarithm of alpha, below 0; any size.
            efolds: number of e-folds that count as separated.

        Raises:
            InputError: log_scale is not below 0, efolds is not positive, or kappa is not 2: then stages are separated
                by powers of alpha wherever their times differ.
        """
        check_log_scale(log_scale)
        if self.degree != 2:
            raise InputError(f"near_ties must be asked of units of degree 2; got degree {self.degree:g}.")
        return closer_than(efolds, self._separations(-log_scale))

    def _separations(self, log_time: float) -> Iterator[NearTie]:
        growths = [*(2 * stage.utility for stage in self.stages[1:]), self.end_rate]
        for k, (stage, end, grown) in enumerate(zip(self.stages, self.ends, growths, strict=True)):
            if k and math.isfinite(stage.margin):
                yield NearTie(k, "order", stage.margin * stage.runner_up_rate * log_time)
            if math.isfinite(end):
                yield NearTie(k, "plateau", min(stage.curvature, grown) * (end - stage.time) * log_time)
