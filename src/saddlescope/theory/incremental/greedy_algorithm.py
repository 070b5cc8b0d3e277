"""Incremental learning of networks with diagonal weights: the limit of vanishing initial scale (Algorithm 1).

Boix-Adsera, Littwin, Abbe, Bengio and Susskind (2023), "Transformers learn through gradual rank increase", Section 4.

    alpha   initial scale of the weights u and v
    T       time / log(1/alpha), the rescaled time; T_k: when stage k begins
    w       u + v; under gradient flow w' = w * g while |u(0)| > |v(0)| (equation 6; else swap u and v)
    b       log_scale w, at the start 1 (appendix C.5; line 1 of the algorithm has 0 by mistake)
    xi      1 - b, the slope: log(w / w(0)) in units of log(1/alpha), so that dxi/dT = g (equation 12)
    Delta   time until a coordinate is active (equation 10)

By the conservation law w (u - v) = u(0)^2 - v(0)^2 ~ alpha^2, so beta = u v = (w^2 - (u - v)^2) / 4 is
(alpha^{2 - 2 xi} - alpha^{2 + 2 xi}) / 4 up to constant factors. Hence:

- |xi| < 1: beta vanishes with alpha. A coordinate that g pushes reaches xi = sgn(g) after (sgn(g) - xi) / g.
- xi = +1 with beta > 0, xi = -1 with beta < 0: the coordinate is in the support. A transition lasts O(1) in time and
  changes log w by O(1), which is nothing on the scale of log(1/alpha): xi = sgn(beta) as long as beta is not 0.
- A coordinate that leaves the support starts from that same xi = +-1, with g of the opposite sign (Lemma D.4). It
  moves inward, and arrives at the other end, with the other sign, after 2 / |g| if g stays as it is.
"""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.progress import Report, silent
from saddlescope.theory.incremental.finite_scale import Correction, FirstOrderInit
from saddlescope.theory.incremental.loss_oracle import LossOracle
from saddlescope.theory.incremental.orbit import TimedStationaryPoint, follow_path, follow_timed
from saddlescope.theory.incremental.prediction import GreedyStage, IncrementalLearning
from saddlescope.theory.incremental.stationary_point import StationaryPoint
from saddlescope.theory.incremental.transition import SaddleDeparture
from saddlescope.theory.prediction import AlgorithmStatus, check_limits, report_stage, rounding_of_slope
from saddlescope.theory.saddle.path import NonFiniteLossError, TransitionFailure


@in_float64
@validate_arguments
def incremental_learning(
    loss: Callable[[Array], Array],
    size: int,
    *,
    weights: tuple[ArrayLike, ArrayLike] | None = None,
    weight_decay: float = 0.0,
    tolerance: float = 1e-11,
    max_stages: int | None = None,
    report: Report = silent,
) -> IncrementalLearning:
    """Predict the stages in which gradient flow learns as the initial scale alpha goes to 0 (Algorithm 1, Theorem 4.1).

    At the saddle theta^k every coordinate outside the support grows, on the scale of log(1/alpha), at the rate g_i. The
    first to arrive, after Delta, becomes active (equations 10 to 12), and gradient flow takes the active coordinates to
    the next saddle (equation 13). The algorithm stops when no coordinate will ever arrive. It starts from b^0 = 1
    (appendix C.5); the paper's line 1 has b^0 = 0 by mistake.

    With the initial weights it also predicts the next order: at the initial scale alpha stage k begins at
    T_k + C_k / log(1/alpha), up to exponentially small terms, if stages are well separated. And it continues through
    ties: the tied coordinates enter together, in proportions that follow from their weights
    (`saddlescope.theory.incremental.finite_scale`). Transitions then take a few times longer to compute.

    All stages found are returned, whatever the status:

    - converged: outside the support every g_i is 0, so the last plateau lasts for ever on this time scale. That need
      not be a minimum of the loss: where g(0) = 0 altogether, it is the origin.
    - max_stages: the requested number of stages was found.
    - tie: two or more coordinates arrive at the same time, up to rounding, and no weights are given. Assumption 4.3
      fails, and the next stage depends on the ratio of their initial weights. Heads of one layer always tie at the
      origin.
    - no_minimum: a transition ends at no strict local minimum (Assumption 4.4 fails), as with exponential tails.
    - not_finite: the loss or its derivatives become NaN or infinite on the path of a transition.

    Args:
        loss: L(beta), a twice continuously differentiable JAX function of an array of shape (size,), such as a
            `DiagonalNetwork`; an `AbstractLoss` computes its derivatives itself.
        size: p, the length of beta; at least 1.
        weights: (u0, v0), each of shape (p,): the initial weights before they are scaled by alpha.
        weight_decay: lambda of a penalty lambda/2 (|u|^2 + |v|^2), not negative. At the stages it is lambda |beta|_1,
            part of their losses. Weights shrink meanwhile: coordinates are active at xi = +-(1 + lambda T).
        tolerance: rounding error attributed to g, relative to the size of the terms that cancel in it, the larger of
            max |g(0)| and max (|H| |beta|): smaller entries count as zero, and times that agree within this error are a
            tie. The default is about a thousand roundings of a float64 sum over a data set. At least 1e-12 of
            sqrt(2 L(0) H_ii(0)), where |g_i(0)| is largest, counts as rounding: X^T y = 0 of least squares.
        max_stages: largest number of transitions, at least 1; None: no limit.
        report: called after each stage with the finished fraction and a note.

    Returns:
        The stages, from the origin on, with the reason for stopping.

    Raises:
        InputError: an argument out of range, a loss that holds arrays of another type or
            is not finite and smooth at 0, or |u0_i| = |v0_i| for some i.

    >>> import jax.numpy as jnp
    >>> # two orthogonal features: T = 1 / |g_i(0)|
    >>> learned = incremental_learning(lambda beta: jnp.sum((beta - jnp.array([2.0, -0.5])) ** 2), 2)
    >>> [(stage.time, stage.entered, stage.signs) for stage in learned.stages]
    [(0.0, (), ()), (0.25, (0,), (1,)), (1.0, (1,), (-1,))]
    >>> learned.status.value, learned.staircase.ranks
    ('converged', (0, 1, 2))
    """
    check_limits(tolerance, max_stages, weight_decay)
    oracle = LossOracle(loss, size, weight_decay)
    start = None if weights is None else FirstOrderInit.of(weights, oracle.size)
    follow = follow_path if start is None else follow_timed
    return _learn(oracle, start, follow, tolerance, max_stages, report)


def _learn(
    oracle: LossOracle,
    start: FirstOrderInit | None,
    follow: Callable[[SaddleDeparture], StationaryPoint | TransitionFailure],
    tolerance: float,
    max_stages: int | None,
    report: Report,
) -> IncrementalLearning:
    """Predict the stages, as `incremental_learning` does, by transitions that a function follows to their end."""
    weight_decay = oracle.decay
    origin = np.zeros(oracle.size)
    saddle = StationaryPoint(
        origin, *oracle.value_and_gradient(origin), curvature=math.inf, convergence_rate=math.inf, scale=0.0
    )
    scale, first = float(np.max(np.abs(saddle.gradient))), np.array([np.argmax(np.abs(saddle.gradient))])
    rounding = rounding_of_slope(saddle.loss, float(oracle.hessian_columns(origin, first, first)[0, 0]))
    correction = None if start is None else Correction(0.0, 0.0, origin)
    stages = [GreedyStage.at(saddle, time=0.0, slope=origin, correction=correction)]
    while True:
        stage, noise = stages[-1], max(rounding, tolerance * max(scale, saddle.scale))
        arrivals = _Arrivals(stage, noise, start, weight_decay)
        status, message = arrivals.obstacle()
        if status is None and max_stages is not None and len(stages) > max_stages:
            status, message = (
                AlgorithmStatus.MAX_STAGES,
                f"Stopped after max_stages={max_stages} transitions.",
            )
        if status is None:
            departure = SaddleDeparture(oracle, saddle, arrivals.tied, noise, arrivals.delays)
            try:
                found = follow(departure)
            except NonFiniteLossError as error:
                status, message = (
                    AlgorithmStatus.NOT_FINITE,
                    f"At T = {arrivals.time:.6g}: {departure.not_finite(error)}",
                )
            else:
                if isinstance(found, StationaryPoint):
                    saddle = found
                    stages.append(arrivals.next_stage(found))
                    rank = len(stages[-1].support)
                    report_stage(report, stages, max_stages, active=f"rank {rank}", share=rank / oracle.size)
                    continue
                status, message = AlgorithmStatus.NO_MINIMUM, f"At T = {arrivals.time:.6g}: {found.reason}"
        return IncrementalLearning(
            tuple(stages),
            arrivals.time,
            arrivals.tied,
            status,
            message,
            weights=start,
            end_correction=arrivals.late,
            weight_decay=weight_decay,
        )


class _Arrivals:
    """Part (A) of Algorithm 1: the coordinates that become active after a stage, and their times (equations 10 to 12).

    Attributes:
        delta: time until each coordinate is active, shape (p,); infinite on the support and where g is 0.
        order: the coordinates, earliest first.
        time: T_{k+1}; infinite if none arrives.
        tied: the coordinates that arrive then, ascending; more than one if their times agree up to rounding.
        late: c_{k+1}, the part of order 1 of the time at which the first of them arrives; None without weights.
        delays: time t of each of them after the first; all 0 without weights.
    """

    def __init__(self, stage: GreedyStage, noise: float, weights: FirstOrderInit | None, decay: float) -> None:
        self._stage, self._weights, self._decay, self._noise = stage, weights, decay, noise
        g = stage.gradient
        net = np.abs(g) - decay
        moving = (stage.beta == 0) & (net > noise)
        self.delta = np.full(g.size, np.inf)
        lacking = 1 + decay * stage.time - np.sign(g) * stage.slope
        self.delta[moving] = lacking[moving] / net[moving]
        self.order = np.argsort(self.delta, kind="stable").tolist()
        first = self.order[0]
        self.time = stage.time + float(self.delta[first])
        self.tied: tuple[int, ...] = ()
        if moving.any():
            # noise in g moves xi by noise * T over all stages, and so the arrival by noise * T / (|g| - lambda).
            doubt = noise * self.time / np.where(moving, net, np.inf)
            late = np.where(moving, self.delta, np.inf) - self.delta[first]
            self.tied = tuple(np.flatnonzero(late <= doubt + doubt[first]).tolist())
        self.late: float | None = None
        self.delays = (0.0,) * len(self.tied)
        if weights is not None and stage.correction is not None and self.tied:
            tied = list(self.tied)
            lacking = weights.lacking(g, stage.correction.offset)[tied] + decay * stage.correction.begins
            late = stage.correction.begins + lacking / net[tied]
            self.late = float(np.min(late))
            self.delays = tuple((late - self.late).tolist())

    def obstacle(self) -> tuple[AlgorithmStatus | None, str]:
        """Return the status and message that end the algorithm here, if any."""
        if not self.tied:
            unlearned = "" if self._stage.support else ". g(0) = 0: small weights do not leave the origin"
            if np.max(np.abs(self._stage.gradient), initial=0.0, where=self._stage.beta == 0) > self._decay:
                unlearned = f" above {self._noise:.2g}, which counts as rounding at this tolerance"
            return AlgorithmStatus.CONVERGED, f"No coordinate outside the support has a gradient{unlearned}."
        if len(self.tied) == 1 or self._weights is not None:
            return None, ""
        named = ", ".join(map(str, self.tied))
        return AlgorithmStatus.TIE, (
            f"Coordinates {named} become active at the same time, T = {self.time:.6g} (Assumption 4.3 fails): the next "
            "stage depends on the ratio of their initial weights. Pass weights=(u0, v0)."
        )

    def next_stage(self, saddle: StationaryPoint) -> GreedyStage:
        """Return the stage that the first arrivals begin, given the end of their transition."""
        stage, first, entered = self._stage, self.order[0], list(self.tied)
        later = [i for i in self.order if i not in self.tied and math.isfinite(self.delta[i])]
        second = later[0] if later else None
        slope, level = stage.slope + stage.gradient * self.delta[first], 1 + self._decay * self.time
        slope[stage.beta != 0] = level * np.sign(stage.beta[stage.beta != 0])
        slope[entered] = level * np.sign(stage.gradient[entered])
        return GreedyStage.at(
            saddle,
            time=self.time,
            slope=slope,
            entered=self.tied,
            signs=tuple(np.sign(slope[entered]).astype(int).tolist()),
            left=tuple(np.flatnonzero((stage.beta != 0) & (saddle.beta == 0)).tolist()),
            runner_up=second,
            margin=math.inf if second is None else float(self.delta[second] - self.delta[first]),
            correction=self._correction(saddle),
        )

    def _correction(self, saddle: StationaryPoint) -> Correction | None:
        before = self._stage.correction
        if before is None or self.late is None or not isinstance(saddle, TimedStationaryPoint):
            return None
        offset = before.offset + self._stage.gradient * (self.late - before.begins) + saddle.shift
        offset.setflags(write=False)
        return Correction(self.late, self.late + saddle.halfway, offset)
