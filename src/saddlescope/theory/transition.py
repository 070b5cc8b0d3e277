"""Part (B) of Algorithm 1: where gradient flow takes the weights once a new coordinate is active.   (equation 13)

    theta^{k+1} = lim_{eps -> 0} lim_{t -> infinity} psi(t, eps),  psi(0, eps) = theta^k + eps (e_i, sgn(g_i) e_i)

The loss need not be convex, so the limit is not "the minimum" over the active coordinates: it is the end of one path.
Both policies below follow that path from the saddle. `FlowThenNewton` follows it loosely, in log|beta|, and lets Newton
finish once the end is certain; `FlowToRest`, its specification, integrates (u, v) tightly until nothing moves.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float
from scipy.integrate import BDF, OdeSolver, Radau

from saddlescope.errors import InputError
from saddlescope.theory.landscape import Landscape, NotFinite
from saddlescope.theory.stationary import Face, NoRest, Rest, newton_displacement, settle, vanishing

_LARGEST_LOG = 300.0  # log|beta| beyond it is divergence; e^300 and its square are still finite
_HORIZON = 1e12  # in units of 1 / |g_i|: a transition that lasts this long ends at no strict minimum
_STEPS = 20_000  # paths take tens to hundreds of steps


@dataclass(frozen=True, eq=False)
class Departure:
    """A saddle and the coordinate that has become active at it.

    Attributes:
        landscape: the loss.
        rest: the stationary point theta^k.
        entering: i_k; the sign it takes is that of g there.
        noise: rounding error of an entry of g: smaller entries count as zero.
    """

    landscape: Landscape
    rest: Rest
    entering: int
    noise: float

    @property
    def pull(self) -> float:
        """|g_i| of the entering coordinate at the saddle: its log|beta| starts to grow at the rate 2 |g_i|."""
        return abs(float(self.rest.gradient[self.entering]))

    def face(self) -> Face:
        """The support of theta^k with the new coordinate, whose sign is that of g."""
        signs = np.sign(self.rest.beta)
        signs[self.entering] = np.sign(self.rest.gradient[self.entering])
        among = np.flatnonzero(signs)
        return Face(self.landscape, among, signs[among])

    def start(self, face: Face) -> Float[np.ndarray, "m"]:
        """|beta| with the new coordinate so small that g differs from the saddle's by about a relative 1e-5 at most."""
        x = np.abs(self.rest.beta[face.among])
        new = face.among == self.entering
        at_saddle = face.signs * self.rest.gradient[face.among]
        for size in np.logspace(0, -150, 76):
            x[new] = size
            try:
                change = float(np.max(np.abs(face.rate(x) - at_saddle)))
            except NotFinite:
                continue
            if change <= 1e-2 * self.pull:
                x[new] = 1e-3 * size
                return x
        raise InputError(
            "loss must be twice continuously differentiable; got a gradient that jumps as coordinate "
            f"{self.entering} leaves 0. Replace ReLU or |beta| by something smooth, such as GeLU."
        )


class Transition(Protocol):
    """Finds theta^{k+1} of equation 13, or says why there is none."""

    def __call__(self, departure: Departure) -> Rest | NoRest:
        """The end of the path that leaves the saddle along the new coordinate."""
        ...


@dataclass(frozen=True, kw_only=True)
class FlowThenNewton:
    """Follows the path in log|beta| by SciPy's BDF, to a loose tolerance, then Newton from the end's own basin.

    In log|beta| the slow parts of a transition, growth of the new coordinate and decay of one that leaves, are straight
    lines and cost few steps. Newton takes over where a Newton step changes no coordinate by more than `reach`, and its
    answer is kept only with the certificate of `saddlescope.theory.stationary.settle`; else the path is followed on.

    Attributes:
        tolerance: error in log|beta| that a step of the integrator may make, absolute, between 1e-13 and 0.1. The path
            only has to stay in its basin, so the answer does not depend on it unless a boundary lies this near.
        reach: largest relative change of a coordinate that is left to Newton, between 0 and 1.
        fraction: a coordinate may leave the support once it is this far below its peak, between 0 and 1.

    Raises:
        InputError: an attribute out of range.
    """

    tolerance: float = 1e-3
    reach: float = 0.3
    fraction: float = 1e-2

    def __post_init__(self) -> None:
        _check_between(1e-13, 0.1, tolerance=self.tolerance)
        _check_between(0.0, 1.0, reach=self.reach, fraction=self.fraction)

    def __call__(self, departure: Departure) -> Rest | NoRest:
        """The end of the path that leaves the saddle along the new coordinate."""
        face, rest = departure.face(), departure.rest
        x = departure.start(face)
        peak = x.copy()
        H = face.hessian(np.abs(rest.beta[face.among]))  # at the saddle: close enough to the start, and known

        def slope(t: float, y: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
            return 2 * face.rate(_exp(y))

        def jacobian(t: float, y: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m m"]:
            nonlocal H
            if t > 0.0:
                H = face.hessian(_exp(y))
            return -2 * H * _exp(y)

        path = _Path(BDF, slope, jacobian, np.log(x), departure.pull, rtol=1e-12, atol=self.tolerance)
        for duration, y_before, y in path:
            x = _exp(y)
            peak = np.maximum(peak, x)
            r = (y - y_before) / (2 * duration)
            zero = vanishing(x, r, H, peak, self.fraction)
            kept = ~zero
            estimate = newton_displacement(x[kept], r[kept], H[np.ix_(kept, kept)])
            if np.all(np.abs(estimate) <= self.reach):
                H = face.hessian(x)
                end = settle(face, x, H, zero, reach=self.reach, noise=departure.noise)
                if end is not None and end.loss < rest.loss:
                    return end
            if np.max(y) > _LARGEST_LOG:
                break
        return path.no_rest(float(np.max(x)), departure.entering)


@dataclass(frozen=True, kw_only=True)
class FlowToRest:
    """Integrates gradient flow of (u, v) by SciPy's Radau until nothing moves; the specification of `FlowThenNewton`.

    This is equation 13 as it stands, with a small eps. Newton polishes the last digits only.

    Attributes:
        tolerance: relative error that a step of the integrator may make, between 1e-13 and 0.1; the absolute one is
            this times eps.
        rest: the flow is at rest when no entry of beta moves faster than this times the transition's peak speed; also
            how far a coordinate that leaves must be below its peak; between 0 and 1.

    Raises:
        InputError: an attribute out of range.
    """

    tolerance: float = 1e-8
    rest: float = 1e-8

    def __post_init__(self) -> None:
        _check_between(1e-13, 0.1, tolerance=self.tolerance)
        _check_between(0.0, 1.0, rest=self.rest)

    def __call__(self, departure: Departure) -> Rest | NoRest:
        """The end of the path that leaves the saddle along the new coordinate."""
        face = departure.face()
        x = peak = departure.start(face)
        fastest = 0.0

        def split(z: Float[np.ndarray, "2*m"]) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m"]]:
            return z[: face.among.size], face.signs * z[face.among.size :]  # u and s * v, both positive

        def slope(t: float, z: Float[np.ndarray, "2*m"]) -> Float[np.ndarray, "2*m"]:
            u, v = split(z)
            r = face.rate(u * v)
            return np.concatenate([v * r, face.signs * u * r])

        def jacobian(t: float, z: Float[np.ndarray, "2*m"]) -> Float[np.ndarray, "2*m 2*m"]:
            u, v = split(z)
            r, H = np.diag(face.rate(u * v)), face.hessian(u * v)
            s = face.signs
            du = np.hstack([-v[:, None] * H * v, s * (r - v[:, None] * H * u)])
            dv = np.hstack([r - u[:, None] * H * v, s * (-u[:, None] * H * u)])
            return np.vstack([du, s[:, None] * dv])

        u = np.sqrt(x)
        path = _Path(
            Radau,
            slope,
            jacobian,
            np.concatenate([u, face.signs * u]),
            departure.pull,
            rtol=self.tolerance,
            atol=self.tolerance * float(np.min(u)),
        )
        for _, _, z in path:
            u, v = split(z)
            x = u * v
            peak = np.maximum(peak, x)
            r = face.rate(x)
            speed = float(np.max(np.abs(x * r)))
            fastest = max(fastest, speed)
            if speed <= self.rest * fastest:
                zero = (r < 0) & (x <= self.rest * peak)
                end = settle(face, x, face.hessian(x), zero, reach=1e-2, noise=departure.noise)
                if end is not None:
                    return end
            if np.log(np.max(x)) > _LARGEST_LOG:
                break
        return path.no_rest(float(np.max(x)), departure.entering)


class _Path:
    """A solver's accepted steps, as (duration, point before, point after), until it gives up or the horizon is reached.

    Trial points may lie where the loss is not finite. NaN makes SciPy's implicit solvers take a smaller step; a stale
    Jacobian does the same. Only if the solver gives up because of it is the loss to blame.
    """

    def __init__(
        self,
        method: type[OdeSolver],
        slope: Callable[[float, Float[np.ndarray, "n"]], Float[np.ndarray, "n"]],
        jacobian: Callable[[float, Float[np.ndarray, "n"]], Float[np.ndarray, "n n"]],
        start: Float[np.ndarray, "n"],
        pull: float,
        *,
        rtol: float,
        atol: float,
    ) -> None:
        self._outside: NotFinite | None = None
        latest = np.zeros((start.size, start.size))

        def guarded_slope(t: float, y: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
            try:
                return slope(t, y)
            except NotFinite as error:
                self._outside = error
                return np.full_like(y, np.nan)

        def guarded_jacobian(t: float, y: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n n"]:
            nonlocal latest
            try:
                latest = jacobian(t, y)
            except NotFinite as error:
                self._outside = error
            return latest

        self._solver = method(
            guarded_slope,
            0.0,
            start,
            _HORIZON / pull,
            first_step=0.1 / pull,
            rtol=rtol,
            atol=atol,
            jac=guarded_jacobian,
        )

    def __iter__(self) -> Iterator[tuple[float, Float[np.ndarray, "n"], Float[np.ndarray, "n"]]]:
        for _ in range(_STEPS):
            before, since = self._solver.y, self._solver.t
            self._solver.step()
            if self._solver.status == "failed":
                return
            self._outside = None
            yield self._solver.t - since, before, self._solver.y
            if self._solver.status == "finished":
                return

    def no_rest(self, largest: float, entering: int) -> NoRest:
        """Why the path was left without an end; raises InputError if the loss stopped being finite on it."""
        if self._outside is not None and largest < np.exp(_LARGEST_LOG / 2):
            raise InputError(
                "loss must be finite, with finite derivatives, wherever learning takes beta; got NaN or infinity beyond "
                f"max |beta| = {largest:.6g}, on the path that starts with coordinate {entering}. "
                "Look for a division, root or logarithm of beta."
            )
        return NoRest(
            f"The transition that coordinate {entering} starts finds no strict local minimum: it was followed to "
            f"max |beta| = {largest:.3g} (Assumption 4.4 fails; losses with exponential tails have no minimum, and "
            "more weights than samples make it flat). Add a small penalty on beta to the loss."
        )


def _exp(y: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    return np.exp(np.minimum(y, 2 * _LARGEST_LOG))  # a trial point may overshoot


def _check_between(low: float, high: float, **values: float) -> None:
    for name, value in values.items():
        if not low < value < high:
            raise InputError(f"{name} must be a number between {low:g} and {high:g}; got {value!r}.")
