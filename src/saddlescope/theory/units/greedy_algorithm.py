"""Greedy prediction of learning stages for any sum of homogeneous units, as the initial scale alpha goes to 0.

Gradient flow of L(theta_1, ..., theta_m) with all units at alpha times generic weights alternates between two phases
(alternating gradient flows, Kunin et al. 2025, arXiv 2506.06489; Zhang, Saxe and Latham 2025, arXiv 2512.20607):

    (A)  Dormant units do not change the residual r, so each follows the gradient of its utility U(theta; r):
             d log|theta| / dt = kappa |theta|^(kappa-2) U(u),   du/dt = |theta|^(kappa-2) (grad U - <u, grad U> u)
         with u = theta / |theta|. For kappa = 2 directions align in a time of order 1 and norms take log(1/alpha); for
         kappa > 2 both take alpha^(2-kappa).
    (B)  The first unit to reach a norm of order 1 is active, and the active units descend the loss to the next
         stationary point, which takes no time on this scale.
"""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.progress import Report, silent
from saddlescope.theory.prediction import AlgorithmStatus, check_limits, report_stage
from saddlescope.theory.saddle.path import TransitionFailure
from saddlescope.theory.units.aligned_units import AlignedUnits
from saddlescope.theory.units.dormant_units import SAME, Arrival, DormantUnits, Settled
from saddlescope.theory.units.initial_weights import initial_weights
from saddlescope.theory.units.quadratic_units import QuadraticUnits
from saddlescope.theory.units.results import UnitLearning, UnitStage
from saddlescope.theory.units.superlinear_units import SuperlinearUnits
from saddlescope.theory.units.transition import StationaryUnits, Transition
from saddlescope.theory.units.unit_network import UnitNetwork
from saddlescope.theory.units.utility_orders import at_first_order, rounding, why_nothing_grows


@in_float64
@validate_arguments
def unit_learning(
    unit: Callable[..., Array],
    data: tuple[PyTree, PyTree],
    loss: Callable[[Any, Any], Array],
    *,
    parameters: PyTree,
    kinds: int = 1,
    width: int | None = None,
    weights: PyTree | None = None,
    tolerance: float = 1e-9,
    max_stages: int | None = None,
    until: float | None = None,
    seed: int = 0,
    report: Report = silent,
) -> UnitLearning:
    """Predict the stages in which gradient flow learns a network that is a sum of units f(x) = sum_i unit(theta_i, x).

    A unit is a hidden neuron with its outgoing weights, a convolution kernel, an attention head. Its degree kappa at
    the origin is measured and checked; where its leading terms have no utility, as those of GELU neurons on XOR, kappa
    is the degree of the first ones that have. A smooth function of the sum belongs to the loss, which may be any.

    Args:
        unit: unit(theta, x), a JAX function of the weights of one unit and one sample; unit(theta, x, kind) if there
            are several kinds, with a whole number `kind`.
        data: (inputs, targets), arrays or pytrees of arrays with a leading axis of samples.
        loss: loss(output, target) of one sample, whose mean over the samples is minimised.
        parameters: an array or a pytree of arrays of the shapes of theta; its values do not matter.
        kinds: number of kinds of unit; the coordinates of a diagonal network, for example.
        width: number of units of each kind. None: as many as can be of use where the utility is a quadratic form
            (linear networks), else 64.
        weights: initial weights before they are scaled by alpha, like `parameters` with a leading axis of units, kind
            by kind, `width` of each. None: normal. Where the utility is a quadratic form the limit depends on none.
            For kappa = 2 otherwise only directions matter; for kappa > 2 times depend on all of them.
        tolerance: rates below this share of the largest at the origin count as zero, and times with a smaller relative
            difference are a tie.
        max_stages: largest number of transitions, at least 1; None: no limit.
        until: stages that begin later are not computed, in the time unit of the result; None: no limit.
        seed: of random weights, at which the degree is measured, and of those drawn for None.
        report: called after each stage with the finished fraction and a note.

    Returns:
        The stages found, from the origin on, with the termination status:

        - converged: no dormant unit has a positive utility, or all units are active.
        - no_utility: this holds at the origin, so nothing will ever be learned; or the utility is 0 there but for
          rounding, and what is learned later is decided by terms that are not predicted.
        - max_stages: the requested number of stages was found.
        - until: the next stage begins after the requested time.
        - tie: two units become active at the same time, as theta and -theta of a GELU or swish unit always do: their
          leading parts are the same; or, after a valley without end, at times that differ by less than its residual
          still moves them.
        - degenerate: the first to become active is one of a manifold of equally good directions.
        - unstable: what ends the stage depends on small deviations between units: copies of an active unit that
          separate (of tanh neurons, say), a direction that is no maximum of its utility any more, a dormant unit on a
          kink (of ReLU) that repels it, or a unit that returns to its initial scale in an unstable direction, unless
          conserved differences of its weights, as |b_i|^2 - |b_j|^2 in products of blocks, decide where it goes. Also
          if leading terms without a utility at the origin have one now: units grow by them at once; or if parts of
          active units, such as blocks of W_3 W_2 W_1, are still at the initial scale and grow.
        - saddle: a transition comes so close to a saddle among the active units that rounding decides how it goes on.
        - no_minimum: a transition ends at no minimum of the active units. For kappa > 2 active units go past saddles
          among them and into valleys without end; see `UnitStage.passed` and `UnitStage.fall`.
        - not_finite: the loss is NaN or infinite on a transition.

    Raises:
        InputError: an argument out of range, arguments that do not fit each other, a unit
            that is not homogeneous of a degree of at least 2 at the origin, or a loss that is not smooth at output 0.

    >>> import jax.numpy as jnp
    >>> X, Y = jnp.eye(3), jnp.array([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> # a two-layer linear network on whitened data: T = 3 / singular value
    >>> learned = unit_learning(
    ...     lambda theta, x: theta["out"] * (theta["in"] @ x), (X, Y), lambda f, y: 0.5 * jnp.sum((f - y) ** 2),
    ...     parameters={"in": jnp.zeros(3), "out": jnp.zeros(2)},
    ... )
    >>> [(round(stage.time, 9), stage.active) for stage in learned.stages]
    [(0.0, 0), (1.0, 1), (3.0, 2)]
    """
    if kinds < 1:
        raise InputError(f"kinds must be at least 1; got {kinds!r}.")
    if width is not None and width < 1:
        raise InputError(f"width must be at least 1, or None; got {width!r}.")
    check_limits(tolerance, max_stages)
    if until is not None and not until > 0:
        raise InputError(f"until must be positive, or None; got {until!r}.")
    network = UnitNetwork.of(unit, data, loss, parameters, kinds, seed)
    network = at_first_order(network)
    dormant = _dormant_units(network, width, weights, tolerance, seed)
    return _Run(network, dormant, tolerance, max_stages, until, report).run()


def _dormant_units(
    network: UnitNetwork, width: int | None, weights: PyTree | None, tolerance: float, seed: int
) -> DormantUnits:
    _, residual = network.origin
    if network.quadratic:
        if weights is not None:
            width = len(initial_weights(network, width, weights, seed)[0]) // network.kinds  # of which alone it depends
        origin = np.zeros(network.size)
        M = (network.utility_hessian(origin, kind, residual) for kind in range(network.kinds))
        largest = max(float(np.max(np.abs(of_kind))) for of_kind in M)
        return QuadraticUnits(network, width, max(tolerance * largest, 2 * rounding(network, residual)))
    start, kinds = initial_weights(network, width, weights, seed)
    directions = start / np.linalg.norm(start, axis=1, keepdims=True)
    _, slopes = network.utilities(directions, kinds, residual)
    noise = max(tolerance * float(np.max(np.linalg.norm(slopes, axis=1))), rounding(network, residual))
    return (AlignedUnits if network.degree == 2 else SuperlinearUnits)(network, start, kinds, noise)


class _Run:
    """State of the algorithm: the active units and the stages so far."""

    def __init__(
        self,
        network: UnitNetwork,
        dormant: DormantUnits,
        tolerance: float,
        max_stages: int | None,
        until: float | None,
        report: Report,
    ) -> None:
        self._network, self._dormant = network, dormant
        self._tolerance, self._max_stages, self._until, self._report = tolerance, max_stages, until, report
        self._thetas = np.zeros((0, network.size))
        self._kinds = np.zeros(0, int)
        self._slots = np.zeros(0, int)
        self._units: tuple[int | None, ...] = ()
        none = np.zeros(0)
        self._settled = Settled(
            self._thetas, self._kinds, self._slots, self._thetas, self._kinds, self._slots, none, none
        )

    def run(self) -> UnitLearning:
        """Alternate between (A) and (B) until nothing more is learned."""
        loss, residual = self._network.origin
        time, stages = (
            0.0,
            [self._stage(0.0, None, StationaryUnits.origin(self._network.size, loss), 0, [], passed=False)],
        )
        while True:
            arrivals = self._dormant.arrivals(residual)
            end = time + arrivals[0].delay if arrivals else math.inf
            ended = self._obstacle(arrivals, stages, end, residual)
            if ended is None:
                found, passed = self._transition(arrivals[0], residual)
                if isinstance(found, StationaryUnits):
                    left = self._settle(arrivals[0], found)
                    residual = self._network.residual_of(self._thetas, self._kinds)[1]
                    stages.append(self._stage(end, arrivals[0], found, left, arrivals, passed=passed))
                    time = end
                    k, active = len(stages) - 1, f"{stages[-1].active} active units"
                    report_stage(self._report, stages, self._max_stages, active=active, share=k / (k + 1))
                    continue
                ended = AlgorithmStatus(found.status), f"At T = {self._network.time_in_units(end):.6g}: {found.reason}"
            return UnitLearning(
                stages=tuple(stages),
                end=self._network.time_in_units(end),
                end_rate=self._network.in_units(self._network.degree * arrivals[0].utility) if arrivals else 0.0,
                degree=self._network.degree,
                status=ended[0],
                message=ended[1],
            )

    def _obstacle(
        self, arrivals: list[Arrival], stages: list[UnitStage], end: float, residual: Array
    ) -> tuple[AlgorithmStatus, str] | None:
        """Return the status and message that end the algorithm before the next transition, if any."""
        if self._max_stages is not None and len(stages) > self._max_stages:
            return AlgorithmStatus.MAX_STAGES, f"Stopped after max_stages={self._max_stages} transitions."
        if reason := self._dormant.unpredictable(residual, self._settled):
            return AlgorithmStatus.UNSTABLE, reason
        at_rest = self._network.degree > 2 and stages[-1].flat and not stages[-1].fall
        if at_rest and self._network.parts_grow(self._thetas, self._kinds):
            return AlgorithmStatus.UNSTABLE, (
                "Parts of active units are still at the initial scale, and grow by terms of the third or fourth order, "
                "in times that depend on all initial weights and are not predicted. Follow the units with unit_flow."
            )
        if not arrivals:
            if len(stages) == 1:
                return AlgorithmStatus.NO_UTILITY, why_nothing_grows(self._network)
            return AlgorithmStatus.CONVERGED, "No dormant unit has a positive utility, or all units are active."
        first, at = arrivals[0], self._network.time_in_units(end)
        if self._until is not None and at > self._until:
            return AlgorithmStatus.UNTIL, f"The next stage begins at T = {at:.6g}, after until={self._until:g}."
        if first.degenerate:
            return AlgorithmStatus.DEGENERATE, (
                f"The direction that becomes active at T = {at:.6g} is one of a manifold of equally good ones, so the "
                "next stage depends on the initial weights. Break the symmetry of the data."
            )
        error = self._tolerance * max(end, first.delay)
        if stages[-1].fall > 0:
            error += self._moved_in_valley(arrivals[:2])
        if len(arrivals) > 1 and arrivals[1].delay - first.delay <= error:
            if self._same_leading_part(first, arrivals[1]):
                return AlgorithmStatus.TIE, (
                    f"Two directions with the same leading part, such as theta and -theta of a GELU or swish unit, "
                    f"become active at the same time, T = {at:.6g}, whatever the data are: the next stage depends on "
                    "the initial weights. Follow one unit by width=1, or all of them by unit_flow from their weights."
                )
            return AlgorithmStatus.TIE, (
                f"Two units become active at the same time, T = {at:.6g}: the next stage depends on their initial "
                "weights. Break the symmetry of the data."
            )
        return None

    def _moved_in_valley(self, arrivals: list[Arrival]) -> float:
        """Return by how much delays differ for the residuals at the end of a valley and an e-fold of time before."""
        times, residuals = self._settled.times, self._settled.residuals
        moved = jnp.asarray(residuals[-1] - residuals[np.searchsorted(times, times[-1] / math.e)])
        directions, kinds = np.array([one.direction for one in arrivals]), np.array([one.kind for one in arrivals])
        changes = np.abs(self._network.utilities(directions, kinds, moved)[0])
        return float(sum(one.delay * c / one.utility for one, c in zip(arrivals, changes, strict=True)))

    def _same_leading_part(self, one: Arrival, other: Arrival) -> bool:
        """Return True if two directions are the same to leading order, though they are two units."""
        system = self._network.system
        if system.taylor is None or one.kind != other.kind:
            return False
        first, second = (
            np.asarray(system.leading(jnp.asarray(each.direction), jnp.asarray(each.kind))) for each in (one, other)
        )
        return bool(np.linalg.norm(first - second) <= SAME * np.linalg.norm(first))

    def _transition(self, arrival: Arrival, residual: Array) -> tuple[StationaryUnits | TransitionFailure, bool]:
        """Return the end of a transition, and whether it went past a saddle of the active units."""
        kinds, direction = np.append(self._kinds, arrival.kind), arrival.direction
        if self._network.degree == 2:  # deviations from the maximum vanish with alpha, and may not decide the path
            still = self._network.stationary_direction(direction, arrival.kind, residual)
            direction = direction if still is None else still
        thetas = self._network.off_loose_kinks(self._thetas, self._kinds)
        start = self._network, thetas, kinds, direction, arrival.utility
        path = Transition.with_new_unit(*start, rotate=self._network.quadratic)
        found = path.follow()
        if path.saddle is None:
            return found, False
        approach = self._dormant.approach(arrival, residual)
        past = None if approach is None else path.past_saddle(approach)
        return (found, False) if past is None else (past, True)

    def _settle(self, arrival: Arrival, found: StationaryUnits) -> int:
        """Update the active and the dormant units after a transition; return the number of units that left."""
        self._dormant.advance(arrival)
        kinds, slots = np.append(self._kinds, arrival.kind), np.append(self._slots, arrival.slot)
        units = (*self._units, arrival.unit)
        gone = np.setdiff1d(np.arange(len(kinds)), found.kept)
        self._thetas, self._kinds, self._slots = found.thetas, kinds[found.kept], slots[found.kept]
        self._units = tuple(units[n] for n in found.kept)
        self._settled = Settled(
            found.thetas, self._kinds, self._slots, found.removed, kinds[gone], slots[gone],
            found.times, found.residuals,
        )  # fmt: skip
        self._dormant.settle(self._settled)
        return len(gone)

    def _stage(
        self, time: float, arrival: Arrival | None, found: StationaryUnits, left: int, arrivals: list[Arrival],
        *, passed: bool,
    ) -> UnitStage:  # fmt: skip
        units = tuple(n for n in self._units if n is not None)
        after = arrivals[1] if len(arrivals) > 1 else None
        found.thetas.setflags(write=False)
        in_units, time_in_units = self._network.in_units, self._network.time_in_units
        return UnitStage(
            time=time_in_units(time),
            entered=None if arrival is None else arrival.kind,
            unit=None if arrival is None else arrival.unit,
            direction=None if arrival is None else arrival.direction,
            utility=0.0 if arrival is None else in_units(arrival.utility),
            left=left,
            thetas=found.thetas,
            kinds=tuple(self._kinds.tolist()),
            units=units if len(units) == len(self._units) else None,
            loss=in_units(found.loss),
            curvature=in_units(found.curvature),
            flat=found.flat,
            passed=passed,
            fall=in_units(found.fall),
            runner_up=None if after is None else after.kind,
            margin=math.inf if after is None or arrival is None else time_in_units(after.delay - arrival.delay),
            runner_up_rate=0.0 if after is None else in_units(self._network.degree * after.utility),
        )
