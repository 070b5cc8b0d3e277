"""The heteroclinic orbit from one saddle to the next (equation 13), and with weights its shift of the plateaus' lines.

On a plateau y_i, the integral of g_i over time t, moves on a straight line of slope g_i. A transition joins two such
lines. Let t = 0 be when the entering coordinate would have |beta| = 1 if g stayed as at the saddle theta^k. Then, up to
exponentially small terms, y_i jumps there by

    J_i = int_{-inf}^0 (g_i - g_i(theta^k)) dt + int_0^inf (g_i - g_i(theta^{k+1})) dt

The orbit does not depend on the initial scale, so neither does J.

    x      |beta| on the active coordinates, with tied ones as one; (log x)' = 2 r

SciPy's BDF follows it in log x, until Newton's method finds its end with the certificate of
`saddlescope.theory.incremental.stationary_point.newton_polish`. For J both ends are truncated where the orbit is
linear, and added in closed form, and g is integrated along it.
"""

import warnings
from dataclasses import dataclass
from itertools import pairwise
from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Float
from scipy.integrate import BDF, DenseOutput
from scipy.interpolate import make_interp_spline
from scipy.linalg import LinAlgWarning

from saddlescope.numerics.step_roots import root_along
from saddlescope.theory.incremental.divergence import DivergenceTest
from saddlescope.theory.incremental.saddle_departure import OrbitStart, start_orbit, tied_face
from saddlescope.theory.incremental.stationary_point import (
    Face,
    StationaryPoint,
    newton_displacement,
    newton_polish,
    secant,
    vanishing,
)
from saddlescope.theory.incremental.transition import HORIZON, LARGEST_LOG, SaddleDeparture
from saddlescope.theory.saddle.path import NonFiniteLossError, TransitionFailure


@dataclass(frozen=True, kw_only=True)
class OrbitPolicy:
    """Limits of an orbit; times in units of 1 / |g_i|.

    Attributes:
        tolerance: error of log|beta| that a step of the integrator may make. The end does not depend on it unless the
            orbit passes a basin's boundary this close.
        reach: relative distance from the end at which the orbit is truncated.
        fraction: a coordinate may leave the support once it is this far below its peak.
        steps: largest number; orbits take about fifty.
        renewed: steps after which the Hessian is recomputed.
        shortest: step, next to where the loss is not finite.
        growth: largest rise of log x in a step; it is linear next to a saddle, and a longer step overshoots the end by
            so many orders that BDF, with the Jacobian there, finds no shorter one.
        tied: difference of the rates of tied coordinates, in units of the largest rate.
        timed: True if times are wanted: the Jacobian is then exact; for the end alone secants are enough.
    """

    tolerance: float
    reach: float
    fraction: float
    timed: bool
    steps: int = 5000
    renewed: int = 25
    shortest: float = 1e-10
    growth: float = 5.0
    tied: float = 1e-8


PATH = OrbitPolicy(tolerance=5e-3, reach=0.05, fraction=1e-2, timed=False)
TIMED = OrbitPolicy(tolerance=1e-6, reach=2e-3, fraction=1e-3, timed=True)


@dataclass(frozen=True, eq=False)
class TimedStationaryPoint(StationaryPoint):
    """End of a transition, with its times.

    Attributes:
        shift: J, in units of log w, shape (p,). For a coordinate that is active on both sides it is half the change of
            log|beta|; for one that enters, the line before has log|beta| = 2 |g| (t - delay).
        halfway: the time t at which the first of the entering coordinates passes half its |beta| at the end (half its
            peak, if it ends at 0).
    """

    shift: Float[np.ndarray, "p"]
    halfway: float


def follow_path(departure: SaddleDeparture) -> StationaryPoint | TransitionFailure:
    """Return the end of the orbit that leaves the saddle along the new coordinate.

    Raises:
        NonFiniteLossError: the loss is not finite on the orbit.
    """
    return _follow(departure, departure.face(), PATH)


def follow_timed(departure: SaddleDeparture) -> StationaryPoint | TransitionFailure:
    """Return the same with its times, along new coordinates that may be tied: a `TimedStationaryPoint`."""
    face = tied_face(departure)
    try:
        return _follow(departure, face, TIMED)
    except _NotTiedError:
        return _follow(departure, departure.face(), TIMED)


def _follow(departure: SaddleDeparture, face: Face, policy: OrbitPolicy) -> StationaryPoint | TransitionFailure:
    begin = start_orbit(departure, face)
    B = face.hessian(face.sizes(departure.saddle.beta))
    flow = _Flow(begin, B, departure.noise, policy)
    solver = BDF(
        flow.slope,
        0.0,  # since the start
        np.zeros_like(begin.x),
        HORIZON / departure.entering_rate,
        first_step=0.01 / departure.entering_rate,
        rtol=policy.tolerance,
        atol=policy.tolerance,
        jac=flow.jacobian,
    )
    orbit = _Orbit(begin) if policy.timed else None
    divergence = DivergenceTest(face, departure.entering_rate)
    x, r, peak = begin.x, flow.rates, begin.x
    near = policy.reach
    for step in range(policy.steps):
        flow.outside = None
        solver.max_step = policy.growth / max(2 * float(np.max(r)), 1e-300)
        with (  # a trial point may overshoot, and in a valley without end Newton's matrix becomes singular
            np.errstate(over="ignore", invalid="ignore"),
            warnings.catch_warnings(action="ignore", category=LinAlgWarning),
        ):
            solver.step()
        # Next to where the loss is not finite steps shrink for ever, since |t| may be tiny there.
        if solver.status == "failed" or (
            flow.outside is not None and solver.h_abs < policy.shortest / departure.entering_rate
        ):
            break
        before, x, at = x, flow.x, flow.rates
        # Secants alone can miss a direction in which the orbit no longer moves, and with it the end.
        with np.errstate(over="ignore"):
            B = flow.hessian = (
                face.hessian(x) if step % policy.renewed == policy.renewed - 1 else secant(B, x - before, r - at)
            )
        r, peak = at, np.maximum(peak, x)
        if orbit is not None:
            orbit.add(solver.t, flow.gradient, solver.dense_output())
        zero = vanishing(x, r, B, peak, policy.fraction)
        away = float(np.max(np.abs(newton_displacement(x[~zero], r[~zero], B[np.ix_(~zero, ~zero)])), initial=0.0))
        if away <= near:
            end = newton_polish(face, x, B, zero, reach=3 * policy.reach, noise=departure.noise)
            if end is not None and departure.descends(end):
                return end if orbit is None else orbit.finish(departure, end, x, peak)
            near = 0.5 * away
        if divergence.diverging(x, r, zero):
            return departure.no_stationary_point(face, x, diverging=True)
        if solver.status == "finished" or np.log(np.max(x)) > LARGEST_LOG:
            break
    return departure.no_stationary_point(face, x, flow.outside)


class _NotTiedError(Exception):
    """Coordinates that seemed tied have different rates on the orbit."""


class _Flow:
    """Right-hand side for z = log(x / x_begin), with its last evaluation.

    BDF's last evaluation in an accepted step is Newton's last iterate, which differs from the step's end by far less
    than the tolerance: so g at the steps' ends needs no further evaluation.
    """

    def __init__(self, begin: OrbitStart, hessian: Float[np.ndarray, "m m"], noise: float, policy: OrbitPolicy) -> None:
        self.hessian = hessian
        self._begin, self._face, self._noise, self._policy = begin, begin.face, noise, policy
        self._signs = np.sign(begin.face.directions.sum(axis=1))
        members = (np.flatnonzero(column) for column in begin.face.directions.T)
        self._tied = [several for several in members if several.size > 1]
        self.x, self.rates, self.gradient = begin.x, begin.face.rates(begin.gradient), begin.gradient
        self.outside: NonFiniteLossError | None = None

    @no_type_check  # the integrator calls it: checking would cost more than the work
    def at(self, z: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        return self._begin.x * np.exp(np.minimum(z, 2 * LARGEST_LOG))

    @no_type_check
    def slope(self, t: float, z: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        if not np.isfinite(z).all():  # a trial step that overshot where the loss is finite
            return np.full_like(z, np.nan)
        x = self.at(z)
        try:
            self.gradient = self._face.oracle.value_and_gradient(self._face.beta(x))[1]
        except NonFiniteLossError as error:
            self.outside = error
            return np.full_like(z, np.nan)  # makes BDF take a smaller step
        self._check_ties()
        self.x, self.rates = x, self._face.rates(self.gradient)
        return 2 * self.rates

    @no_type_check
    def jacobian(self, t: float, z: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m m"]:
        x = self.at(z)
        if not self._policy.timed:
            return -2 * self.hessian * x
        try:
            return -2 * self._face.hessian(x) * x
        except NonFiniteLossError as error:
            self.outside = error
            return np.zeros((x.size, x.size))

    def _check_ties(self) -> None:
        rates = self._signs * self.gradient[self._face.among]
        doubt = max(self._policy.tied * float(np.max(np.abs(rates))), self._noise)
        if any(np.ptp(rates[members]) > doubt for members in self._tied):
            raise _NotTiedError


class _Orbit:
    """Orbit as far as it has been followed."""

    def __init__(self, begin: OrbitStart) -> None:
        self._begin = begin
        self._times, self._gradients = [0.0], [begin.gradient]  # since the start
        self._pieces: list[DenseOutput] = []

    def add(self, time: float, gradient: Float[np.ndarray, "p"], piece: DenseOutput) -> None:
        """Add one step."""
        self._times.append(time)
        self._gradients.append(gradient)
        self._pieces.append(piece)

    def finish(
        self, departure: SaddleDeparture, end: StationaryPoint, x: Float[np.ndarray, "m"], peak: Float[np.ndarray, "m"]
    ) -> TimedStationaryPoint:
        """Return J and the half-way time, given the end of the orbit and the last point before it."""
        begin, face = self._begin, self._begin.face
        stop = begin.time + self._times[-1]
        at_end, r = face.sizes(end.beta), face.rates(end.gradient)
        zero = at_end == 0
        columns = face.oracle.hessian_columns(end.beta, face.among) @ face.directions
        remaining = _remaining(face.directions.T @ columns[face.among], x, at_end, r, zero)
        spline = make_interp_spline(self._times, np.stack(self._gradients), k=5 if len(self._times) > 5 else 1)
        shift = (
            begin.shift
            + spline.integrate(0.0, self._times[-1])
            + departure.saddle.gradient * begin.time
            - end.gradient * stop
            - columns @ remaining
        )
        # On the active coordinates the integral of g is known exactly: half the growth of log x.
        log_after = np.log(np.where(zero, x, at_end))
        log_after[zero] += -2 * r[zero] * stop - 2 * (face.directions.T @ (columns @ remaining)[face.among])[zero]
        signs = np.sign(face.directions.sum(axis=1))
        of = np.argmax(face.directions != 0, axis=1)
        shift[face.among] = signs * ((log_after - begin.before) / 2)[of]
        half = np.log(np.where(zero, peak, at_end) / 2 / begin.x)
        return TimedStationaryPoint(
            end.beta,
            end.loss,
            end.gradient,
            curvature=end.curvature,
            convergence_rate=end.convergence_rate,
            scale=end.scale,
            shift=shift,
            halfway=begin.time + min(self._passing(k, half[k]) for k in np.flatnonzero(begin.new).tolist()),
        )

    def _passing(self, k: int, z: float) -> float:
        """Return the time since the start at which coordinate k first has log(x / x_begin) = z."""
        for piece, (start, stop) in zip(self._pieces, pairwise(self._times), strict=True):
            if piece(start)[k] < z <= piece(stop)[k]:
                return root_along(lambda t, piece=piece: float(piece(t)[k]) - z, start, stop)
        return np.inf


def _remaining(
    H: Float[np.ndarray, "m m"],
    x: Float[np.ndarray, "m"],
    at_end: Float[np.ndarray, "m"],
    r: Float[np.ndarray, "m"],
    zero: Bool[np.ndarray, "m"],
) -> Float[np.ndarray, "m"]:
    """Return the integral of x - at_end from the last point on, where the flow is linear.

    A coordinate that leaves decays as e^{2 r t}. On the others the integral of r, half of the remaining growth of
    log x, is known, and r = -H (x - at_end).
    """
    integral = np.zeros_like(x)
    integral[zero] = x[zero] / (-2 * r[zero])
    kept = ~zero
    if kept.any():
        growth = np.log(at_end[kept] / x[kept]) / 2 + H[np.ix_(kept, zero)] @ integral[zero]
        integral[kept] = -at_end[kept] * newton_displacement(at_end[kept], growth, H[np.ix_(kept, kept)])
    return integral
