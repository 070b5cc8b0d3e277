"""The specification of a transition: integrate gradient flow of (u, v) from the saddle until nothing moves.

u, v   the weights on the active coordinates
s      the signs of beta = u v there, and w = s v > 0
x      u w = |beta|
r      the rates, s g: u' = w r, w' = u r                                                         (equation 4)
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.integrate import Radau

from saddlescope.theory.landscape import NotFinite
from saddlescope.theory.stationary import Face, NoRest, Rest, settle
from saddlescope.theory.transition import HORIZON, LARGEST_LOG, Departure, check_between

_STEPS = 20_000  # paths take hundreds


@dataclass(frozen=True, kw_only=True)
class FlowToRest:
    """Integrates gradient flow of (u, v) by SciPy's Radau until nothing moves; the specification of `FlowThenNewton`.

    This is equation 13 as it stands, with a small eps. Newton polishes the last digits only.

    Attributes:
        tolerance: relative error that a step of the integrator may make, between 1e-13 and 0.1; the absolute one is
            this times eps.
        rest: the flow is at rest when no entry of beta moves faster than this times the transition's peak speed; also
            how far below its peak a coordinate must be to leave the support; between 0 and 1.

    Raises:
        InputError: an attribute out of range.
    """

    tolerance: float = 1e-8
    rest: float = 1e-8

    def __post_init__(self) -> None:
        check_between(1e-13, 0.1, tolerance=self.tolerance)
        check_between(0.0, 1.0, rest=self.rest)

    def __call__(self, departure: Departure) -> Rest | NoRest:
        """The end of the path that leaves the saddle along the new coordinate."""
        face = departure.face()
        x = peak = _start(face, departure)
        m, fastest = x.size, 0.0
        outside: NotFinite | None = None

        # NaN makes Radau take a smaller step, and so does a poor Jacobian. The loss is to blame only if that ends at 0.
        def slope(t: float, z: Float[np.ndarray, "2*m"]) -> Float[np.ndarray, "2*m"]:
            nonlocal outside
            u, w = z[:m], z[m:]
            try:
                r = face.rate(u * w)
            except NotFinite as error:
                outside, r = error, np.full(m, np.nan)
            return np.concatenate([w * r, u * r])

        def jacobian(t: float, z: Float[np.ndarray, "2*m"]) -> Float[np.ndarray, "2*m 2*m"]:
            nonlocal outside
            u, w = z[:m], z[m:]
            try:
                r, H = np.diag(face.rate(u * w)), face.hessian(u * w)
            except NotFinite as error:
                outside, r, H = error, np.zeros((m, m)), np.zeros((m, m))
            du = np.hstack([-w[:, None] * H * w, r - w[:, None] * H * u])
            dw = np.hstack([r - u[:, None] * H * w, -u[:, None] * H * u])
            return np.vstack([du, dw])

        eps = float(np.min(np.sqrt(x)))
        solver = Radau(
            slope,
            0.0,
            np.tile(np.sqrt(x), 2),
            HORIZON / departure.pull,
            first_step=0.1 / departure.pull,
            rtol=self.tolerance,
            atol=self.tolerance * eps,
            jac=jacobian,
        )
        for _ in range(_STEPS):
            solver.step()
            if solver.status == "failed":
                break
            outside = None
            x = solver.y[:m] * solver.y[m:]
            peak = np.maximum(peak, x)
            r = face.rate(x)
            speed = float(np.max(np.abs(x * r)))
            fastest = max(fastest, speed)
            if speed <= self.rest * fastest:
                zero = (r < 0) & (x <= self.rest * peak)
                end = settle(face, x, face.hessian(x), zero, reach=1e-2, noise=departure.noise)
                if end is not None:
                    return end
            if solver.status == "finished" or np.log(np.max(x)) > LARGEST_LOG:
                break
        return departure.no_rest(float(np.max(x)), outside)


def _start(face: Face, departure: Departure) -> Float[np.ndarray, "m"]:
    """|beta| with the new coordinate so small that g is the saddle's own to a relative 1e-5 or so."""
    x = np.abs(departure.rest.beta[face.among])
    new = face.among == departure.entering
    at_saddle = face.signs * departure.rest.gradient[face.among]
    for size in np.logspace(0, -100, 51):
        x[new] = size
        try:
            change = float(np.max(np.abs(face.rate(x) - at_saddle)))
        except NotFinite:
            continue
        if change <= 1e-2 * departure.pull:
            x[new] = 1e-3 * size
            return x
    raise departure.jump()
