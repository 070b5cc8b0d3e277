"""Incremental learning of networks with diagonal weights: the limit of vanishing initial scale.   (Algorithm 1)

Boix-Adsera, Littwin, Abbe, Bengio, Susskind (2023), "Transformers learn through gradual rank increase", Section 4.

    alpha   initial scale of the weights u and v
    T       time / log(1/alpha), the rescaled time; T_k: when stage k begins
    w       u + v; under gradient flow w' = w * g while |u(0)| > |v(0)| (equation 6; else swap u and v)
    b       log_alpha w, at the start 1                                             (the paper's line 1 has 0 by mistake)
    xi      1 - b, the slope: log w in units of log(1/alpha), from its start at 0. dxi/dT = g            (equation 12)
    Delta   time until a coordinate is active                                                           (equation 10)

By the conservation law w (u - v) = u(0)^2 - v(0)^2 ~ alpha^2, so beta = u v = (w^2 - (u - v)^2) / 4 is
(alpha^{2 - 2 xi} - alpha^{2 + 2 xi}) / 4 up to constant factors. Hence:

- |xi| < 1: beta vanishes with alpha. A coordinate that g pushes reaches xi = sgn(g) after (sgn(g) - xi) / g.
- xi = +1 with beta > 0, xi = -1 with beta < 0: the coordinate is in the support. A transition lasts O(1) in time and
  changes log w by O(1), which is nothing on the scale of log(1/alpha): xi stays at sgn(beta) as long as beta is not 0.
- A coordinate that leaves the support starts from that same xi = +-1, with g of the opposite sign (Lemma D.4). It moves
  inward and may come back at the other end, after 2 / |g|, with the other sign.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from jaxtyping import Array, Float

from saddlescope.errors import InputError
from saddlescope.measure.stages import Stage, Staircase
from saddlescope.theory.following import FlowThenNewton
from saddlescope.theory.landscape import Landscape
from saddlescope.theory.stationary import Rest
from saddlescope.theory.transition import Departure, Transition

TIME_UNIT = "t / log(1/alpha)"


class Status(StrEnum):
    """Why `incremental_learning` stopped."""

    CONVERGED = "converged"
    MAX_STAGES = "max_stages"
    TIE = "tie"
    NO_MINIMUM = "no_minimum"


@dataclass(frozen=True, eq=False)
class GreedyStage:
    """One stage k of incremental learning: a plateau at the saddle theta^k.

    Attributes:
        time: T_k, when the stage begins, in units of log(1/alpha).
        entered: the coordinate i_{k-1} whose activation began the stage; None for stage 0.
        sign: the sign it took, +1 or -1; 0 for stage 0.
        left: coordinates that left the support in the transition, ascending.
        beta: u * v at the saddle, shape (p,); exactly 0 outside the support.
        loss: L(beta), the level of the plateau.
        gradient: g(beta) = -dL/dbeta, shape (p,).
        slope: xi when the stage begins, shape (p,); sgn(beta) on the support.
        curvature: the largest constant c_k of Assumption 4.4 (the smallest eigenvalue of the Hessian of L(u, s u) on
            the support, halved), which is also the rate at which gradient flow, in time t, approaches the saddle within
            it; infinite for stage 0.
        runner_up: the coordinate that would have been active next, had `entered` not come before; None if there is none.
        margin: how much later, in units of log(1/alpha); infinite if there is none.
    """

    time: float
    entered: int | None
    sign: int
    left: tuple[int, ...]
    beta: Float[np.ndarray, "p"]
    loss: float
    gradient: Float[np.ndarray, "p"]
    slope: Float[np.ndarray, "p"]
    curvature: float
    runner_up: int | None
    margin: float

    @property
    def support(self) -> tuple[int, ...]:
        """The coordinates where beta is not 0, ascending."""
        return tuple(np.flatnonzero(self.beta).tolist())

    @property
    def theta(self) -> Float[np.ndarray, "2*p"]:
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
    kind: str
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
            separations = (self._order(k), self._plateau(k))
            for kind, (coordinate, separation) in zip(("order", "plateau"), separations, strict=True):
                if separation * -log_alpha < efolds:
                    found.append(NearTie(k, kind, coordinate, separation * -log_alpha))
        return tuple(found)

    def _order(self, k: int) -> tuple[int, float]:
        """The competitor of the coordinate that entered at T_k, and its distance from activity in xi."""
        if k == 0:
            return -1, math.inf
        before, stage = self.stages[k - 1], self.stages[k]
        slope = before.slope + before.gradient * (stage.time - before.time)
        distance = 1 - np.sign(before.gradient) * slope
        distance[(before.beta != 0) | (np.arange(slope.size) == stage.entered)] = np.inf
        nearest = int(np.argmin(distance))
        return nearest, float(distance[nearest])

    def _plateau(self, k: int) -> tuple[int, float]:
        """The coordinate that ends stage k, and the stage's duration in units of its slowest time."""
        stage, end = self.stages[k], self.ends[k]
        if math.isinf(end):
            return -1, math.inf
        following = self.next[0] if k + 1 == len(self.stages) else self.stages[k + 1].entered
        assert following is not None
        rates = [stage.curvature, *np.abs(stage.gradient[[following, *stage.left]])]
        return following, float(min(rates)) * (end - stage.time)


def incremental_learning(
    loss: Callable[[Array], Array],
    size: int,
    *,
    transition: Transition = FlowThenNewton(),
    tolerance: float = 1e-11,
    max_stages: int | None = None,
    report: Callable[[float, str], None] | None = None,
) -> IncrementalLearning:
    """The stages in which gradient flow learns as the initial scale alpha goes to 0.   (Algorithm 1, Theorem 4.1)

    At the saddle theta^k every coordinate outside the support grows, on the scale of log(1/alpha), at the rate g_i. The
    first to arrive, after Delta, becomes active (equations 10 to 12), and gradient flow takes the active coordinates to
    the next saddle (equation 13). The algorithm stops by itself when no coordinate will ever arrive. It starts from
    b^0 = 1 (appendix C.5); the paper's line 1 has b^0 = 0 by mistake.

    The answer is returned with all stages found whatever the status:

    - converged: outside the support every g_i is 0, so the last plateau lasts for ever on this time scale. That need not
      be a minimum of the loss: where g(0) = 0 altogether, it is the origin.
    - max_stages: as many stages were found as were asked for.
    - tie: two or more coordinates arrive at the same time, up to rounding. Assumption 4.3 fails, and where learning
      goes depends on the ratio of their initial weights. Heads of one layer tie at the origin, always.
    - no_minimum: a transition ends at no strict local minimum (Assumption 4.4 fails), as with exponential tails.

    Args:
        loss: L(beta), a twice continuously differentiable JAX function of an array of shape (size,), such as a
            `DiagonalNetwork`. Its own `value_and_gradient(beta)` and `hessian(beta)` are used where it has them.
        size: p, the length of beta; at least 1.
        transition: how a transition's end is found: `FlowThenNewton`, or its specification `FlowToRest`.
        tolerance: rounding error attributed to g, relative to the size of the terms that cancel in it, the larger of
            max |g(0)| and max (|H| |beta|): smaller entries count as zero, and times closer than this error makes them
            are a tie. The default is about a thousand roundings of a float64 sum over a data set.
        max_stages: stop after so many transitions, at least 1; None: go on to the end.
        report: called after each stage with the finished fraction and a note.

    Returns:
        The stages, from the origin on, with the reason for stopping.

    Raises:
        InputError: an argument out of range, JAX not in float64 mode, or a loss that is not finite and smooth at 0, or
            not finite where learning takes it.

    >>> import jax, jax.numpy as jnp
    >>> with jax.enable_x64(True):  # two orthogonal features: T = 1 / |g_i(0)|
    ...     learned = incremental_learning(lambda beta: jnp.sum((beta - jnp.array([2.0, -0.5])) ** 2), 2)
    >>> [(stage.time, stage.entered, stage.sign) for stage in learned.stages]
    [(0.0, None, 0), (0.25, 0, 1), (1.0, 1, -1)]
    >>> learned.status.value, learned.staircase.ranks
    ('converged', (0, 1, 2))
    """
    if not (isinstance(tolerance, float) and 0 < tolerance < 1e-3):
        raise InputError(f"tolerance must be a number between 0 and 1e-3; got {tolerance!r}.")
    if max_stages is not None and not (isinstance(max_stages, int | np.integer) and max_stages >= 1):
        raise InputError(f"max_stages must be an integer of at least 1, or None; got {max_stages!r}.")
    landscape = Landscape(loss, size)
    origin = np.zeros(landscape.size)
    rest = Rest(origin, *landscape.value_and_gradient(origin), curvature=math.inf, scale=0.0)
    scale = float(np.max(np.abs(rest.gradient)))
    stages = [_stage(rest, time=0.0, slope=origin)]
    while True:
        stage, noise = stages[-1], tolerance * max(scale, rest.scale)
        arrivals = _Arrivals(stage, noise)
        status, message = arrivals.obstacle()
        if status is None and max_stages is not None and len(stages) > max_stages:
            status, message = Status.MAX_STAGES, f"Stopped after max_stages={max_stages} transitions, as asked."
        if status is None:
            found = transition(Departure(landscape, rest, arrivals.order[0], noise))
            if isinstance(found, Rest):
                rest = found
                stages.append(arrivals.next_stage(found))
                _tell(report, stages, max_stages)
                continue
            status, message = Status.NO_MINIMUM, f"At T = {arrivals.time:.6g}: {found.reason}"
        return IncrementalLearning(tuple(stages), arrivals.time, arrivals.tied, status, message)


class _Arrivals:
    """Part (A) of Algorithm 1: which coordinates become active after a stage, and when.   (equations 10 to 12)

    Attributes:
        delta: time until each coordinate is active, shape (p,); infinite on the support and where g is 0.
        order: the coordinates, earliest first.
        time: T_{k+1}; infinite if none arrives.
        tied: the coordinates that arrive then; more than one if their times agree up to rounding.
    """

    def __init__(self, stage: GreedyStage, noise: float) -> None:
        self._stage = stage
        g = stage.gradient
        moving = (stage.beta == 0) & (np.abs(g) > noise)
        self.delta = np.full(g.size, np.inf)
        self.delta[moving] = (np.sign(g[moving]) - stage.slope[moving]) / g[moving]
        self.order = np.argsort(self.delta, kind="stable").tolist()
        first = self.order[0]
        self.time = stage.time + float(self.delta[first])
        self.tied: tuple[int, ...] = ()
        if moving.any():
            # noise in g moves xi by noise * T over all stages, and so the arrival by noise * T / |g|.
            doubt = noise * self.time / np.where(moving, np.abs(g), np.inf)
            late = np.where(moving, self.delta, np.inf) - self.delta[first]
            self.tied = tuple(np.flatnonzero(late <= doubt + doubt[first]).tolist())

    def obstacle(self) -> tuple[Status | None, str]:
        """Why no next stage can be told, if so."""
        if not self.tied:
            unlearned = "" if self._stage.support else " g(0) = 0: the origin is no saddle that small weights leave."
            return Status.CONVERGED, f"No coordinate outside the support has a gradient.{unlearned}"
        if len(self.tied) == 1:
            return None, ""
        named = ", ".join(map(str, self.tied))
        return Status.TIE, (
            f"Coordinates {named} become active at the same time, T = {self.time:.6g} (Assumption 4.3 fails): where "
            "learning goes next depends on the ratio of their initial weights. Break the symmetry of the loss, or "
            "simulate the weights you have with flow.gradient_flow."
        )

    def next_stage(self, rest: Rest) -> GreedyStage:
        """The stage that the first arrival begins, given where its transition ends."""
        stage, first = self._stage, self.order[0]
        second = self.order[1] if len(self.order) > 1 and math.isfinite(self.delta[self.order[1]]) else None
        slope = np.where(stage.beta != 0, stage.slope, stage.slope + stage.gradient * self.delta[first])
        slope[first] = np.sign(stage.gradient[first])
        return _stage(
            rest,
            time=self.time,
            slope=slope,
            entered=first,
            sign=int(slope[first]),
            left=tuple(np.flatnonzero((stage.beta != 0) & (rest.beta == 0)).tolist()),
            runner_up=second,
            margin=math.inf if second is None else float(self.delta[second] - self.delta[first]),
        )


def _stage(
    rest: Rest,
    *,
    time: float,
    slope: Float[np.ndarray, "p"],
    entered: int | None = None,
    sign: int = 0,
    left: tuple[int, ...] = (),
    runner_up: int | None = None,
    margin: float = math.inf,
) -> GreedyStage:
    for array in (rest.beta, rest.gradient, slope):
        array.setflags(write=False)
    return GreedyStage(
        time=time,
        entered=entered,
        sign=sign,
        left=left,
        beta=rest.beta,
        loss=rest.loss,
        gradient=rest.gradient,
        slope=slope,
        curvature=rest.curvature,
        runner_up=runner_up,
        margin=margin,
    )


def _tell(report: Callable[[float, str], None] | None, stages: list[GreedyStage], max_stages: int | None) -> None:
    if report is None:
        return
    stage, k = stages[-1], len(stages) - 1
    rank = len(stage.support)
    done = rank / stage.beta.size if max_stages is None else k / max_stages
    report(min(done, 1.0), f"stage {k}: rank {rank}, T = {stage.time:.4g}, loss {stage.loss:.3g}")
