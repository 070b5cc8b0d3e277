"""Reference implementation of a transition: integrate gradient flow of the weights from the saddle to the next one.

    u, v   the weights on the active coordinates; they start with |u| = |v|, and the conservation law preserves that
           (equation 5): v = s u, with s the signs of beta
    x      u^2 = |beta|
    r      the rates, s g: u' = v g = u r (equation 4)

Only u is integrated. With v as well, rounding would break the law once a coordinate is tiny, and let beta change its
sign during a transition, which it cannot do.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.integrate import BDF

from saddlescope.theory.incremental.divergence import DivergenceTest
from saddlescope.theory.incremental.loss_oracle import NonFiniteLossError
from saddlescope.theory.incremental.stationary_point import Face, StationaryPoint, newton_polish
from saddlescope.theory.incremental.transition import HORIZON, LARGEST_LOG, SaddleDeparture
from saddlescope.theory.saddle.path import TransitionFailure

_STEPS = 20_000  # paths take hundreds


@dataclass(frozen=True, kw_only=True)
class OdeTransition:
    """Integration of gradient flow of the weights to a stationary point; the reference of `orbit`.

    This is equation 13 literally, with a small eps, by SciPy's BDF. Newton's method adds the last digits only.

    Attributes:
        tolerance: relative error that a step of the integrator may make, between 1e-13 and 0.1; the absolute one is
            this times eps.
        speed_tolerance: the flow has reached a stationary point when no entry of beta moves faster than this times the
            transition's peak speed; also the part of its peak below which a coordinate may leave the support; between
            0 and 1.
    """

    tolerance: float = 1e-8
    speed_tolerance: float = 1e-8

    def __call__(self, departure: SaddleDeparture) -> StationaryPoint | TransitionFailure:
        """Return the end of the path that leaves the saddle along the new coordinate."""
        face = departure.face()
        x = peak = _start(face, departure)
        fastest, outside, divergence = 0.0, None, DivergenceTest(face, departure.entering_rate)

        # NaN makes BDF take a smaller step, and so does a poor Jacobian. The loss is to blame only if that ends at 0.
        def slope(t: float, u: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
            nonlocal outside
            try:
                return u * face.rate(u**2)
            except NonFiniteLossError as error:
                outside = error
                return np.full_like(u, np.nan)

        def jacobian(t: float, u: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m m"]:
            nonlocal outside
            try:
                return np.diag(face.rate(u**2)) - 2 * u[:, None] * face.hessian(u**2) * u
            except NonFiniteLossError as error:
                outside = error
                return np.zeros((u.size, u.size))

        solver = BDF(
            slope,
            0.0,
            np.sqrt(x),
            HORIZON / departure.entering_rate,
            first_step=0.1 / departure.entering_rate,
            rtol=self.tolerance,
            atol=self.tolerance * float(np.min(np.sqrt(x))),
            jac=jacobian,
        )
        for _ in range(_STEPS):
            with np.errstate(over="ignore", invalid="ignore"):  # the path may diverge
                solver.step()
            if solver.status == "failed":
                break
            outside = None
            x = solver.y**2
            peak = np.maximum(peak, x)
            r = face.rate(x)
            speed = float(np.max(np.abs(x * r)))
            fastest = max(fastest, speed)
            if speed <= self.speed_tolerance * fastest:
                zero = (r < 0) & (x <= self.speed_tolerance * peak)
                end = newton_polish(face, x, face.hessian(x), zero, reach=1e-2, noise=departure.noise)
                if end is not None:
                    return end
            if divergence.diverging(x, r, (r < 0) & (x <= self.speed_tolerance * peak)):
                return departure.no_stationary_point(face, x, diverging=True)
            if solver.status == "finished" or np.log(np.max(x)) > LARGEST_LOG:
                break
        return departure.no_stationary_point(face, x, outside)


def _start(face: Face, departure: SaddleDeparture) -> Float[np.ndarray, "m"]:
    """Return |beta| with the new coordinate so small that g equals the saddle's to a relative 1e-5 or so."""
    x, new = face.sizes(departure.saddle.beta), departure.new(face)
    at_saddle = face.rates(departure.saddle.gradient)
    for size in np.logspace(0, -100, 51):
        x[new] = size
        try:
            change = float(np.max(np.abs(face.rate(x) - at_saddle)))
        except NonFiniteLossError:
            continue
        if change <= 1e-2 * departure.entering_rate:
            x[new] = 1e-3 * size
            return x
    raise departure.jump()
