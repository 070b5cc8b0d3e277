"""Fast transition: follow the flow of local quadratic models, then solve for the saddle by Newton's method.

x      |beta| on the active coordinates, y = log x
r      their rates, y' = 2 r(x)                                                                   (equation 4)
B      symmetric approximation of -dr/dx, the Hessian of L on the face
model  r(x) ~ r_0 - B (x - x_0), a Lotka-Volterra system; integrating it needs no gradient of L
"""

import warnings
from dataclasses import dataclass
from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Float
from scipy.integrate import LSODA

from saddlescope._shared.arguments import validate_arguments
from saddlescope.theory.incremental.divergence import DivergenceTest
from saddlescope.theory.incremental.loss_oracle import NonFiniteLossError
from saddlescope.theory.incremental.saddle_departure import SMALL
from saddlescope.theory.incremental.stationary_point import (
    Face,
    StationaryPoint,
    newton_displacement,
    newton_polish,
    secant,
    vanishing,
)
from saddlescope.theory.incremental.transition import HORIZON, LARGEST_LOG, SaddleDeparture, check_between
from saddlescope.theory.saddle.path import TransitionFailure


@dataclass(frozen=True, kw_only=True)
class SegmentPolicy:
    """Limits of the segments of a path.

    Attributes:
        growth: of log x in one: a model is trusted over three orders of magnitude only.
        segments: largest number; paths take about ten, at ridges of the loss fifty.
        steps: of the integrator in one segment; it takes ten to fifty.
        smallest: change of rates, over that of the new coordinate, below which one holds rounding only.
    """

    growth: float = 7.0
    segments: int = 500
    steps: int = 1000
    smallest: float = 1e-13


_POLICY = SegmentPolicy()


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class NewtonTransition:
    """Transition along quadratic models of L, segment by segment, that ends with Newton's method.

    A segment is as long as the model predicts the rates correctly: they are evaluated in its middle and at its end.
    These values also improve the model, by symmetric secant updates of the exact Hessian at the saddle. So the
    followed path is that of a flow whose log|beta| is disturbed by at most `tolerance` in each segment; for a quadratic
    loss the disturbance is 0. Newton's method starts where its step would change no coordinate by more than `reach`,
    and its result is accepted only with the certificate of
    `saddlescope.theory.incremental.stationary_point.newton_polish`; otherwise the path continues.

    Attributes:
        tolerance: disturbance of log|beta| allowed in a segment, between 1e-6 and 0.5. The path only has to stay in its
            basin, so the result does not depend on it unless the path passes a basin's boundary this close.
        reach: largest relative change of a coordinate in the first Newton step, between 0 and 1.
        fraction: a coordinate may leave the support once it is this far below its peak, between 0 and 1.

    Raises:
        InputError: an attribute out of range.
    """

    tolerance: float = 0.02
    reach: float = 0.1
    fraction: float = 1e-2

    def __post_init__(self) -> None:
        check_between(1e-6, 0.5, tolerance=self.tolerance)
        check_between(0.0, 1.0, reach=self.reach, fraction=self.fraction)

    def __call__(self, departure: SaddleDeparture) -> StationaryPoint | TransitionFailure:
        """Return the end of the path that leaves the saddle along the new coordinate."""
        face = departure.face()
        model = _start(face, departure)
        peak, limit, rejected = model.x, 0.3 * departure.entering_rate, 0
        outside: NonFiniteLossError | None = None
        divergence = DivergenceTest(face, departure.entering_rate)
        for _ in range(_POLICY.segments):
            x, middle, weight = self._follow(model, limit, peak, departure.entering_rate)
            if np.log(np.max(x)) > LARGEST_LOG or limit < _POLICY.smallest * departure.entering_rate:
                break
            try:
                between, outside = face.rate(middle), None
                r = face.rate(x)  # last, because Newton's method may ask for it again
            except NonFiniteLossError as error:
                limit, outside = 0.1 * limit, error
                continue
            changed = float(np.max(np.abs(r - model.r)))
            wrong = max(np.max(np.abs(r - model.rate(x))), np.max(np.abs(between - model.rate(middle))))
            disturbance = 2 * float(wrong) * weight
            factor = float(np.clip(0.8 * np.sqrt(self.tolerance / max(disturbance, 1e-300)), 0.1, 2.0))
            B = secant(model.B, x - model.x, model.r - r)
            if disturbance > self.tolerance:
                rejected += 1
                limit = factor * min(limit, changed)
                if rejected % 2 == 0:  # secants alone do not improve the model here
                    B = face.hessian(model.x)
                model = _Model(model.x, model.r, B)
                continue
            if changed > 0.5 * limit:
                limit = factor * limit
            model, peak = _Model(x, r, B), np.maximum(peak, x)
            end = self._try_newton(departure, face, model, peak)
            if end is not None:
                return end
            if divergence.diverging(x, r, vanishing(x, r, B, peak, self.fraction)):
                return departure.no_stationary_point(face, x, diverging=True)
        return departure.no_stationary_point(face, model.x, outside)

    def _try_newton(
        self, departure: SaddleDeparture, face: Face, model: "_Model", peak: Float[np.ndarray, "m"]
    ) -> StationaryPoint | None:
        if self._distance(model, peak) > self.reach:
            return None
        zero = vanishing(model.x, model.r, model.B, peak, self.fraction)
        end = newton_polish(face, model.x, model.B, zero, reach=self.reach, noise=departure.noise)
        return end if end is not None and departure.descends(end) else None

    def _follow(
        self, model: "_Model", limit: float, peak: Float[np.ndarray, "m"], entering_rate: float
    ) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"], float]:
        """Return the end and middle of a segment, and the time in which an error of the model's rates at the end acts.

        That error is assumed to grow like the change of the rates. The segment ends where the model has changed the
        rates by `limit`, or where it is stationary, or at its longest.
        """
        y_0 = np.log(np.maximum(model.x, np.finfo(float).tiny))  # a product that fell below the least number
        solver = LSODA(
            model.slope,
            0.0,
            y_0,
            HORIZON / entering_rate,
            first_step=0.01 / max(float(np.max(np.abs(model.r))), entering_rate / HORIZON),
            rtol=1e-3 * self.tolerance,
            atol=1e-3 * self.tolerance,
            jac=model.jacobian,
        )

        near = 0.1 * min(self.reach, self._distance(model, peak))
        t, y, area, last, fastest = 0.0, y_0, 0.0, 0.0, 0.0
        path = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a failed step ends the segment
            for _ in range(_POLICY.steps):
                since, before = t, y
                solver.step()
                y, t = solver.y, solver.t
                over = model.excess(y, limit) > 0
                if over:
                    t, y = _crossing(solver, model, limit)
                x = _exp(y)
                change = model.change(x)
                area, last = area + 0.5 * (last + change) * (t - since), change
                path.append((change, x))
                speed = float(np.max(x * np.abs(y - before))) / max(t - since, 1e-300)
                fastest = max(fastest, speed)
                slowing = speed < 0.5 * fastest or len(path) == 1
                if over or solver.status != "running" or (slowing and self._distance(model.at(x), peak) <= near):
                    break
        middle = min(path, key=lambda point: abs(point[0] - 0.5 * last))[1]
        return _exp(y), middle, area / last if last > 0 else float(t)

    def _distance(self, model: "_Model", peak: Float[np.ndarray, "m"]) -> float:
        """Return the model's distance to a stationary point: the largest relative change in its Newton step."""
        zero = vanishing(model.x, model.r, model.B, peak, self.fraction)
        return float(np.max(np.abs(model.newton_displacement(~zero)), initial=0.0))


@dataclass(frozen=True, eq=False)
class _Model:
    """Quadratic model of L around a point of the path.

    Methods that the integrator calls are not type-checked at run time in tests, which would cost more than the work.
    """

    x: Float[np.ndarray, "m"]
    r: Float[np.ndarray, "m"]
    B: Float[np.ndarray, "m m"]

    @no_type_check
    def rate(self, x: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        return self.r - self.B @ (x - self.x)

    def at(self, x: Float[np.ndarray, "m"]) -> "_Model":
        """Return the same model around another point."""
        return _Model(x, self.rate(x), self.B)

    @no_type_check
    def change(self, x: Float[np.ndarray, "m"]) -> float:
        """Return the change of the model's rates from its point to x."""
        return float(np.max(np.abs(self.B @ (x - self.x))))

    @no_type_check
    def excess(self, y: Float[np.ndarray, "m"], limit: float) -> float:
        """Return a positive number where log x is beyond a segment, by the change of the rates or by growth."""
        growth = float(np.max(y - np.log(self.x)))
        return max(self.change(_exp(y)) / limit, growth / _POLICY.growth) - 1

    @no_type_check
    def slope(self, t: float, y: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
        return 2 * self.rate(_exp(y))

    @no_type_check
    def jacobian(self, t: float, y: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m m"]:
        return -2 * self.B * _exp(y)

    def newton_displacement(self, kept: Bool[np.ndarray, "m"]) -> Float[np.ndarray, "k"]:
        return newton_displacement(self.x[kept], self.r[kept], self.B[np.ix_(kept, kept)])


def _start(face: Face, departure: SaddleDeparture) -> _Model:
    """Return the saddle with the new coordinate so small that it changes the rates by at most a fraction `SMALL`."""
    x = face.sizes(departure.saddle.beta)
    saddle = _Model(x, face.rates(departure.saddle.gradient), face.hessian(x))
    new = departure.new(face)
    size = (
        SMALL * departure.entering_rate / max(float(np.max(np.abs(saddle.B[:, new]))), 1e-3 * departure.entering_rate)
    )
    for _ in range(100):
        x = np.where(new, size, x)
        try:
            r = face.rate(x)
        except NonFiniteLossError:
            size *= 1e-2
            continue
        if np.max(np.abs(r - saddle.r)) <= 2 * SMALL * departure.entering_rate:
            return _Model(x, r, saddle.B)
        size *= 1e-2
    raise departure.jump()


def _crossing(solver: LSODA, model: _Model, limit: float) -> tuple[float, Float[np.ndarray, "m"]]:
    """Locate the end of the segment in the solver's last step, to a hundredth of the step."""
    interpolant = solver.dense_output()
    low, high = solver.t_old, solver.t
    for _ in range(7):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if model.excess(interpolant(middle), limit) > 0 else (middle, high)
    return high, interpolant(high)


@no_type_check
def _exp(y: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    return np.exp(np.minimum(y, 2 * LARGEST_LOG))  # a trial point may overshoot
