"""What Algorithm 1 predicts: stages, why they end, and how far they can be trusted at a finite initial scale."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
from jaxtyping import Float

from saddlescope.errors import InputError
from saddlescope.measure.stages import Stage, Staircase
from saddlescope.theory.stationary import Rest

TIME_UNIT = "t / log(1/alpha)"


class Status(StrEnum):
    """Why `incremental_learning` stopped."""

    CONVERGED = "converged"
    MAX_STAGES = "max_stages"
    TIE = "tie"
    NO_MINIMUM = "no_minimum"
    NOT_FINITE = "not_finite"


@dataclass(frozen=True, eq=False)
class GreedyStage:
    """One stage k of incremental learning: a plateau at the saddle theta^k.

    Attributes:
        time: T_k, when the stage begins, in units of log(1/alpha).
        entered: the coordinates whose activation began the stage, ascending: one, i_{k-1}, unless several are tied;
            none for stage 0.
        signs: the sign each of them took, +1 or -1.
        left: coordinates that left the support in the transition, ascending.
        beta: u * v at the saddle, shape (p,); exactly 0 outside the support.
        loss: L(beta), the level of the plateau.
        gradient: g(beta) = -dL/dbeta, shape (p,).
        slope: xi when the stage begins, shape (p,); sgn(beta) on the support.
        curvature: the largest constant c_k of Assumption 4.4 (half the smallest eigenvalue of the Hessian of L(u, s u)
            on the support), which is also the rate at which gradient flow, in time t, approaches the saddle within it;
            infinite for stage 0.
        runner_up: the coordinate that would have been active next, had those not come first; None if there is none.
        margin: how much later, in units of log(1/alpha); infinite if there is none.
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
    runner_up: int | None
    margin: float

    @classmethod
    def at(
        cls,
        rest: Rest,
        *,
        time: float,
        slope: Float[np.ndarray, "p"],
        entered: tuple[int, ...] = (),
        signs: tuple[int, ...] = (),
        left: tuple[int, ...] = (),
        runner_up: int | None = None,
        margin: float = math.inf,
    ) -> "GreedyStage":
        """The stage at a stationary point; its arrays are made read-only."""
        for array in (rest.beta, rest.gradient, slope):
            array.setflags(write=False)
        return cls(
            time=time,
            entered=entered,
            signs=signs,
            left=left,
            beta=rest.beta,
            loss=rest.loss,
            gradient=rest.gradient,
            slope=slope,
            curvature=rest.curvature,
            runner_up=runner_up,
            margin=margin,
        )

    @property
    def support(self) -> tuple[int, ...]:
        """The coordinates where beta is not 0, ascending."""
        return tuple(np.flatnonzero(self.beta).tolist())

    @property
    def theta(self) -> Float[np.ndarray, " weights"]:
        """The weights theta^k = (u, v) with u = sqrt|beta| and v = sgn(beta) u, shape (2p,)."""
        u = np.sqrt(np.abs(self.beta))
        return np.concatenate([u, np.sign(self.beta) * u])


@dataclass(frozen=True)
class NearTie:
    """Something about a stage that a given initial scale does not resolve.

    Attributes:
        stage: the index k.
        kind: "order" if another coordinate is active at the same time, so that which enters first is open; "plateau" if
            the stage is over before its plateau is reached.
        coordinate: the coordinate that is too close: the competitor, or the one that ends the plateau.
        efolds: the separation, in factors of e of a weight.
    """

    stage: int
    kind: Literal["order", "plateau"]
    coordinate: int
    efolds: float


@dataclass(frozen=True, eq=False, repr=False)
class IncrementalLearning:
    """The stages that Algorithm 1 predicts, and why it stopped.

    Attributes:
        stages: stage 0, at the origin, and all that follow.
        end: when the last stage ends, in units of log(1/alpha); infinite when learning has converged.
        next: the coordinates that end it: none when converged, two or more for a tie.
        status: why the algorithm stopped.
        message: the same in a sentence, with the cure where something went wrong.
    """

    stages: tuple[GreedyStage, ...]
    end: float
    next: tuple[int, ...]
    status: Status
    message: str

    def __repr__(self) -> str:
        last = self.stages[-1]
        return (
            f"IncrementalLearning({len(self.stages)} stages to T = {last.time:.6g}, loss {self.stages[0].loss:.3g} to "
            f"{last.loss:.3g}, {self.status.value})"
        )

    @property
    def ends(self) -> tuple[float, ...]:
        """When each stage ends."""
        return (*(stage.time for stage in self.stages[1:]), self.end)

    @property
    def staircase(self) -> Staircase:
        """The prediction as a `Staircase` in the unit t / log(1/alpha), to be compared with what a run shows."""
        return Staircase(
            tuple(
                Stage(stage.time, end, stage.loss, len(stage.support), stage.support)
                for stage, end in zip(self.stages, self.ends, strict=True)
            ),
            TIME_UNIT,
        )

    def near_ties(self, log_alpha: float, *, efolds: float = 1.0) -> tuple[NearTie, ...]:
        """What cannot be trusted at the initial scale alpha, because it is separated by fewer than `efolds` e-folds.

        At a finite alpha each log w differs from xi log(1/alpha) by a correction of order 1: the initial weights, and
        what g does during transitions. Two things must be large against it:

        - order: when coordinate i enters at T_{k}, each other coordinate j still has to grow by
          |g_j| (Delta_j - Delta_i) log(1/alpha) = (1 - sgn(g_j) xi_j) log(1/alpha) e-folds.
        - plateau: stage k lasts (T_{k+1} - T_k) log(1/alpha) in time t. The weights settle at the rate of the curvature
          c_k, and those that left the support decay at the rate |g_j|; the coordinate that ends the stage grows at the
          rate |g_i|. The slowest of these rates, times the duration, is the number of e-folds.

        Args:
            log_alpha: the natural logarithm of alpha, below 0; any size, such as -9431 for alpha = 1e-4096.
            efolds: how many count as separated; 1, the size of the correction, finds what is lost for certain.

        Returns:
            Near-ties in the order of the stages. A final stage that never ends has none of kind "plateau".

        Raises:
            InputError: log_alpha is not below 0, or efolds is not positive.
        """
        if not (log_alpha < 0 and math.isfinite(log_alpha)):
            raise InputError(
                f"log_alpha must be the natural logarithm of an initial scale below 1; got {log_alpha!r}. "
                "Use math.log(alpha)."
            )
        if not efolds > 0:
            raise InputError(f"efolds must be positive; got {efolds!r}.")
        found = []
        for k in range(len(self.stages)):
            coordinate, separation = self._order(k)
            if separation * -log_alpha < efolds:
                found.append(NearTie(k, "order", coordinate, separation * -log_alpha))
            coordinate, separation = self._plateau(k)
            if separation * -log_alpha < efolds:
                found.append(NearTie(k, "plateau", coordinate, separation * -log_alpha))
        return tuple(found)

    def _order(self, k: int) -> tuple[int, float]:
        """The competitor of the coordinate that entered at T_k, and its distance from activity in xi."""
        if k == 0:
            return -1, math.inf
        before, stage = self.stages[k - 1], self.stages[k]
        slope = before.slope + before.gradient * (stage.time - before.time)
        distance = 1 - np.sign(before.gradient) * slope
        distance[before.beta != 0] = np.inf
        distance[list(stage.entered)] = np.inf
        nearest = int(np.argmin(distance))
        return nearest, float(distance[nearest])

    def _plateau(self, k: int) -> tuple[int, float]:
        """The coordinate that ends stage k, and the stage's duration in units of its slowest time."""
        stage, end = self.stages[k], self.ends[k]
        if math.isinf(end):
            return -1, math.inf
        following = (self.next if k + 1 == len(self.stages) else self.stages[k + 1].entered)[0]
        rates = [stage.curvature, *np.abs(stage.gradient[[following, *stage.left]])]
        return following, float(min(rates)) * (end - stage.time)
