"""Predictions of Algorithm 1: stages, and near-ties and corrections at a finite initial scale."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin, Table
from saddlescope.theory.incremental.finite_scale import Correction, FirstOrderInit
from saddlescope.theory.incremental.stationary_point import StationaryPoint
from saddlescope.theory.prediction import AlgorithmStatus, NearTie, Prediction, check_log_scale, closer_than


@dataclass(frozen=True, eq=False, repr=False)
class GreedyStage(ReprMixin):
    """Stage k of incremental learning: a plateau at the saddle theta^k.

    Attributes:
        time: T_k, when the stage begins, in units of log(1/alpha).
        entered: the coordinates whose activation began the stage, ascending: one, i_{k-1}, unless several are tied;
            none for stage 0.
        signs: the sign each of them took, +1 or -1.
        left: coordinates that left the support in the transition, ascending.
        beta: u * v at the saddle, shape (p,); exactly 0 outside the support.
        loss: L(beta), with the penalty of weight decay: the level of the plateau.
        gradient: g(beta) = -dL/dbeta, shape (p,).
        slope: xi when the stage begins, shape (p,); sgn(beta) on the support, times 1 + lambda T_k
            under weight decay.
        curvature: the largest constant c_k of Assumption 4.4 (half the smallest eigenvalue of the Hessian of L(u, s u)
            on the support); infinite for stage 0, and 0 if tied coordinates leave the loss flat along their difference.
        convergence_rate: the rate at which gradient flow, in time t, approaches the saddle: the same constant, but with
            tied coordinates counted as one.
        runner_up: the next coordinate that would have become active without those that entered; None if no other.
        margin: its delay, in units of log(1/alpha); infinite without a runner-up.
        correction: the parts of order 1 when the stage begins; None unless weights were given.
    """

    time: float
    entered: tuple[int, ...]
    signs: tuple[int, ...]
    left: tuple[int, ...]
    beta: Float[np.ndarray, "p"]
    loss: float
    gradient: Float[np.ndarray, "p"]
    slope: Float[np.ndarray, "p"]
    curvature: float
    convergence_rate: float
    runner_up: int | None
    margin: float
    correction: Correction | None

    @classmethod
    def at(
        cls,
        saddle: StationaryPoint,
        *,
        time: float,
        slope: Float[np.ndarray, "p"],
        entered: tuple[int, ...] = (),
        signs: tuple[int, ...] = (),
        left: tuple[int, ...] = (),
        runner_up: int | None = None,
        margin: float = math.inf,
        correction: Correction | None = None,
    ) -> "GreedyStage":
        """Return the stage at a stationary point; its arrays become read-only."""
        for array in (saddle.beta, saddle.gradient, slope):
            array.setflags(write=False)
        return cls(
            time=time,
            entered=entered,
            signs=signs,
            left=left,
            beta=saddle.beta,
            loss=saddle.loss,
            gradient=saddle.gradient,
            slope=slope,
            curvature=saddle.curvature,
            convergence_rate=saddle.convergence_rate,
            runner_up=runner_up,
            margin=margin,
            correction=correction,
        )

    @property
    def support(self) -> tuple[int, ...]:
        """Coordinates where beta is not 0, ascending."""
        return tuple(np.flatnonzero(self.beta).tolist())


@dataclass(frozen=True, eq=False, repr=False)
class IncrementalLearning(Prediction):
    """Stages that Algorithm 1 predicts, and its termination status.

    Attributes:
        stages: stage 0, at the origin, and all that follow.
        end: time at which the last stage ends, in units of log(1/alpha); infinite when learning has converged.
        next: the coordinates that end it: none when converged, two or more for a tie.
        status: termination status.
        message: the same in a sentence, with the cure for a failure.
        weights: logarithms of the initial weights, for the corrections; None if no weights were given.
        end_correction: the part of order 1 of `end`, in time t; None without weights, or if learning has converged.
        weight_decay: lambda.
    """

    stages: tuple[GreedyStage, ...]
    end: float
    next: tuple[int, ...]
    status: AlgorithmStatus
    message: str
    weights: FirstOrderInit | None = None
    end_correction: float | None = None
    weight_decay: float = 0.0

    def __repr__(self) -> str:
        return self._described()

    def _table(self) -> Table:
        rows = (
            (k, stage.time, stage.entered, stage.left, len(stage.support), stage.loss)
            for k, stage in enumerate(self.stages)
        )
        return ("stage", "T", "enter", "leave", "active", "loss"), rows

    def _active(self, stage: GreedyStage) -> tuple[int, tuple[int, ...]]:
        return len(stage.support), stage.support

    @property
    def corrections(self) -> Float[np.ndarray, "stages"] | None:
        """Correction C_k of each stage, in time t: at a small alpha stage k begins at T_k + C_k / log(1/alpha).

        A stage begins when the first of the coordinates that enter passes half its |beta| on the plateau. C_0 is 0.
        The error is exponentially small in the separation of stages. None unless weights were given.
        """
        found = [stage.correction.halfway for stage in self.stages if stage.correction is not None]
        return np.array(found) if found else None

    def times_at(self, log_scale: float) -> Float[np.ndarray, "stages"]:
        """Return the start of each stage at the scale alpha, in units of log(1/alpha): T_k + C_k / log(1/alpha).

        Args:
            log_scale: the natural logarithm of alpha, below 0.

        Returns:
            In the order of the stages. Where it does not ascend, alpha is too large for the limit's order.

        Raises:
            InputError: log_scale is not below 0, or no weights were given.
        """
        check_log_scale(log_scale)
        if self.corrections is None:
            raise InputError("weights must be given to incremental_learning for times at a finite alpha; got None.")
        return np.array([stage.time for stage in self.stages]) + self.corrections / -log_scale

    def near_ties(self, log_scale: float, *, efolds: float = 1.0) -> tuple[NearTie, ...]:
        """Return stages that at the initial scale alpha are separated by fewer than `efolds` e-folds.

        At a finite alpha each log w differs from xi log(1/alpha) by a correction of order 1: the initial weights, and
        the change of g during transitions. Two numbers must be large against it:

        - order: when coordinate i enters at T_{k}, each other coordinate j still has to grow by
          |g_j| (Delta_j - Delta_i) log(1/alpha) = (1 - sgn(g_j) xi_j) log(1/alpha) e-folds.
        - plateau: stage k lasts (T_{k+1} - T_k) log(1/alpha) in time t. The weights converge at the rate of the
          curvature c_k, and those that left the support decay at the rate |g_j|; the coordinate that ends the stage
          grows at the rate |g_i|. The slowest of these rates, times the duration, is the number of e-folds.

        With weights the corrections are known and are added to both, from the intersections of the lines. A number
        below 0 then means that at this alpha the order differs from that in the limit.

        Args:
            log_scale: the natural logarithm of alpha, below 0; any size, such as -9431 for alpha = 1e-4096.
            efolds: number of e-folds that count as separated; 1, the size of the correction, finds certain near-ties.

        Returns:
            Near-ties in the order of the stages. A final stage that never ends has no near-tie of kind "plateau".

        Raises:
            InputError: log_scale is not below 0, or efolds is not positive.
        """
        check_log_scale(log_scale)
        return closer_than(efolds, self._separations(-log_scale))

    def _separations(self, log_time: float) -> Iterator[NearTie]:
        for k, end in enumerate(self.ends):
            if k:
                yield self._order(k, log_time)
            if math.isfinite(end):
                yield self._plateau(k, log_time)

    def _order(self, k: int, log_time: float) -> NearTie:
        """Return the competitor of the coordinates that entered at T_k, and the number of e-folds it lacks."""
        before, stage = self.stages[k - 1], self.stages[k]
        slope = before.slope + before.gradient * (stage.time - before.time)
        efolds = (1 + self.weight_decay * stage.time - np.sign(before.gradient) * slope) * log_time
        if self.weights is not None and before.correction is not None and stage.correction is not None:
            passed = stage.correction.begins - before.correction.begins
            efolds = efolds + self.weights.lacking(before.gradient, before.correction.offset, passed)
            efolds += self.weight_decay * stage.correction.begins
        efolds[(before.beta != 0) | (np.abs(before.gradient) <= self.weight_decay)] = np.inf
        efolds[list(stage.entered)] = np.inf
        nearest = int(np.argmin(efolds))
        return NearTie(k, "order", float(efolds[nearest]), nearest)

    def _plateau(self, k: int, log_time: float) -> NearTie:
        """Return the coordinate that ends stage k, and the stage's duration in units of its slowest time."""
        stage, end = self.stages[k], self.ends[k]
        last = k + 1 == len(self.stages)
        following = (self.next if last else self.stages[k + 1].entered)[0]
        duration = (end - stage.time) * log_time
        after = None if last else self.stages[k + 1].correction
        late = self.end_correction if after is None else after.begins
        if late is not None and stage.correction is not None:
            duration += late - stage.correction.begins
        left = list(stage.left)
        falling = self.weight_decay - np.sign(stage.slope[left]) * stage.gradient[left]
        rates = [stage.convergence_rate, abs(stage.gradient[following]) - self.weight_decay, *falling]
        return NearTie(k, "plateau", float(min(rates)) * duration, following)
