"""Dormant units of degree kappa > 2: the first to blow up, from given initial weights.

    v      theta / alpha, followed in the time T = t alpha^(kappa-2): dv/dT = grad U(v)
    u, l   its direction v / |v| and log norm log |v|
    s      common time, ds = R^(kappa-2) dT with R the largest norm:
               dl/ds = (|v|/R)^(kappa-2) kappa U(u),   du/ds = (|v|/R)^(kappa-2) (grad U - <u, grad U> u)

A norm reaches infinity at a finite T, when the unit is of size one as alpha goes to 0. In s that takes for ever, while
all other units stop: one integration gives the time, the direction and the state of all others.
"""

import math
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from saddlescope._shared.compiled_functions import compiled, inlined
from saddlescope.theory.units.dormant_units import Arrival, Settled
from saddlescope.theory.units.unit_network import UnitNetwork
from saddlescope.theory.units.unit_system import UnitSystem

_TOLERANCE = 1e-10  # of a step, relative and absolute
_REMAINING = 1e-13  # of T, the time left to the blow-up at the end
_ALIGNED = 1e-8  # relative gradient along the sphere of the unit that blows up, at the end
_GROWN = 700.0  # log norm, times kappa - 2, at which drifting directions count as aligned: alpha is above 1e-304
_LONGEST = 3e4  # s, in units of one over the largest gradient of U: nothing that takes longer is found
_RETURNED = 60.0  # log norm, times kappa - 2, of units that were active
_MAX_STEPS = 100_000


class SuperlinearUnits:
    """Dormant units with given initial weights; see the module.

    Args:
        network: the network, of degree above 2.
        weights: initial weights before they are scaled by alpha, shape (m, p), none of them 0.
        kinds: kind of each unit, shape (m,).
        noise: utilities below it count as zero.
    """

    def __init__(
        self, network: UnitNetwork, weights: Float[np.ndarray, "m p"], kinds: Int[np.ndarray, "m"], noise: float
    ) -> None:
        norms = np.linalg.norm(weights, axis=1)
        self._network, self._kinds, self._noise = network, kinds, noise
        self._log_norms, self._directions = np.log(norms), weights / norms[:, None]
        self._dormant: Bool[np.ndarray, "m"] = np.ones(len(kinds), bool)
        self._after: tuple[np.ndarray, np.ndarray] | None = None

    def arrivals(self, residual: Array) -> list[Arrival]:
        """Return the first unit to blow up, and an estimate of the delay of every other one behind it."""
        if not self._dormant.any():
            return []
        power = self._network.degree - 2
        duration, log_norms, directions = _blow_up(
            self._network.system, self._network.degree, self._log_norms, self._directions, self._kinds, self._dormant,
            residual, self._noise,
        )  # fmt: skip
        if not math.isfinite(duration):
            return []
        self._after = log_norms, directions
        utilities, _ = self._network.utilities(directions, self._kinds, residual)
        left = np.full(len(utilities), np.inf)
        growing = self._dormant & (utilities > self._noise)
        left[growing] = np.exp(-power * log_norms[growing]) / (self._network.degree * power * utilities[growing])
        order = [int(n) for n in np.argsort(left, kind="stable") if np.isfinite(left[n])]
        return [
            Arrival(
                delay=duration + (0.0 if place == 0 else float(left[n])),
                kind=int(self._kinds[n]),
                direction=directions[n],
                utility=float(utilities[n]),
                slot=n,
                unit=n,
            )
            for place, n in enumerate(order)
        ]

    def unpredictable(self, residual: Array, settled: Settled) -> str:
        """Return the empty string: nothing here is left out."""
        return ""

    def advance(self, arrival: Arrival) -> None:
        """Let all units move until the blow-up; the unit that arrives is no longer dormant."""
        assert self._after is not None
        self._log_norms, self._directions = self._after
        self._dormant[arrival.slot] = False

    def settle(self, settled: Settled) -> None:
        """Take back the units that fell dormant, larger than any other."""
        for slot, direction in zip(settled.removed_slots, settled.removed, strict=True):
            self._dormant[slot], self._directions[slot] = True, direction
            self._log_norms[slot] = _RETURNED / (self._network.degree - 2)


def _blow_up(
    system: UnitSystem,
    degree: float,
    log_norms: Float[np.ndarray, "m"],
    directions: Float[np.ndarray, "m p"],
    kinds: Int[np.ndarray, "m"],
    dormant: Bool[np.ndarray, "m"],
    residual: Array,
    noise: float,
) -> tuple[float, Float[np.ndarray, "m"], Float[np.ndarray, "m p"]]:
    """Return the time of the first blow-up, and all log norms and directions then; infinity if there is none."""
    shift = float(np.max(log_norms[dormant]))
    with np.errstate(over="ignore"):
        (grown, u, T), ended = _solve(
            system, degree, jnp.asarray(log_norms - shift), jnp.asarray(directions), jnp.asarray(kinds),
            jnp.asarray(dormant), residual, jnp.asarray(noise),
        )  # fmt: skip
    if not ended:
        return math.inf, log_norms, directions
    u = np.array(u)
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    return float(T) * math.exp(-(degree - 2) * shift), np.array(grown) + shift, u


@compiled
def _solve(
    system: UnitSystem,
    degree: float,
    log_norms: Array,
    directions: Array,
    kinds: Array,
    dormant: Array,
    residual: Array,
    noise: Array,
) -> tuple[tuple[Array, Array, Array], Array]:
    """Return (l, u, T) at the end, and whether a unit blew up."""
    power = degree - 2
    value_and_grad = jax.vmap(jax.value_and_grad(system.utility), (0, 0, None))
    _, slopes = value_and_grad(directions, kinds, residual)
    scale = jnp.max(jnp.where(dormant, jnp.linalg.norm(slopes, axis=1), 0.0)) + noise

    def relative(size: Array) -> tuple[Array, Array]:
        fastest = jnp.max(jnp.where(dormant, size, -jnp.inf))
        return fastest, jnp.where(dormant, jnp.exp(power * (size - fastest)), 0.0)

    def slope(s: Any, state: tuple[Array, Array, Array], args: Any) -> tuple[Array, Array, Array]:
        size, u, _ = state
        unit = u / jnp.linalg.norm(u, axis=1, keepdims=True)
        values, slopes = value_and_grad(unit, kinds, residual)
        fastest, speed = relative(size)
        along = jnp.sum(unit * slopes, axis=1)
        turning = slopes - along[:, None] * unit
        return speed * degree * values / scale, speed[:, None] * turning / scale, jnp.exp(-power * fastest) / scale

    def blown_up(s: Array, state: tuple[Array, Array, Array], args: None, **_: object) -> Array:
        size, u, T = state
        first = jnp.argmax(jnp.where(dormant, size, -jnp.inf))
        unit = u[first] / jnp.linalg.norm(u[first])
        value, gradient = jax.value_and_grad(system.utility)(unit, kinds[first], residual)
        turning = jnp.linalg.norm(gradient - (unit @ gradient) * unit)
        remaining = jnp.exp(-power * size[first]) / (degree * power * jnp.maximum(value, noise))
        aligned = (turning <= _ALIGNED * scale) | (power * size[first] >= _GROWN)
        return (value > noise) & (remaining <= _REMAINING * T) & aligned

    solution = inlined(diffrax.diffeqsolve)(
        diffrax.ODETerm(slope),
        diffrax.Tsit5(),
        t0=0.0,
        t1=_LONGEST,
        dt0=None,
        y0=(log_norms, directions, jnp.zeros(())),
        stepsize_controller=diffrax.PIDController(rtol=_TOLERANCE, atol=_TOLERANCE),
        event=diffrax.Event(blown_up),
        adjoint=diffrax.ForwardMode(),
        max_steps=_MAX_STEPS,
        throw=False,
    )
    assert solution.ys is not None
    size, u, T = (each[0] for each in solution.ys)
    return (size, u, T), solution.result == diffrax.RESULTS.event_occurred
