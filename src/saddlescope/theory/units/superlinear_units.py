"""Dormant units of degree kappa > 2: the first to blow up, from given initial weights.

    v      theta / alpha, followed in the time T = t alpha^(kappa-2): dv/dT = grad U(v)
    u, l   its direction v / |v| and log norm log |v|
    s      common time, ds = R^(kappa-2) dT with R the largest norm:
               dl/ds = (|v|/R)^(kappa-2) kappa U(u),   du/ds = (|v|/R)^(kappa-2) (grad U - <u, grad U> u)

A norm reaches infinity at a finite T, when the unit is of size one as alpha goes to 0. In s that takes for ever, while
all other units stop: one integration gives the time, the direction and the state of all others.

A unit that was active comes back from infinity along a direction u with U(u) < 0 from which it deviates more and more,
as far as y / |v|, a power of alpha while it was active. What becomes of it is known if these deviations are those of
quadratic forms of v that are conserved all the time (`numerics.conserved_forms`), to which directions are kept.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.linalg import null_space

from saddlescope._shared.compiled_functions import inlined, quickly_compiled
from saddlescope.numerics.conserved_forms import ConservedForms
from saddlescope.theory.units.dormant_units import Arrival, Settled
from saddlescope.theory.units.unit_network import UnitNetwork
from saddlescope.theory.units.unit_system import UnitSystem
from saddlescope.theory.units.utility_orders import gains_lower_order


@dataclass(frozen=True, kw_only=True)
class BlowUpPolicy:
    """Limits of the flow of dormant units until one blows up.

    Attributes:
        tolerance: of a step, relative and absolute.
        remaining: time left to the blow-up at the end, in units of T.
        aligned: relative gradient along the sphere of the unit that blows up, at the end.
        near: distance from its last direction at which the approach of a unit is looked at.
        longest: s, in units of one over the largest gradient of U: what takes longer is not found.
        steps: largest number of steps.
    """

    tolerance: float = 1e-10
    remaining: float = 1e-13
    aligned: float = 1e-8
    near: float = 1e-5
    longest: float = 3e4
    steps: int = 100_000


_POLICY = BlowUpPolicy()
_GROWN = 700.0  # log norm, times kappa - 2, at which drifting directions count as aligned: alpha is above 1e-304
_PARALLEL = 1e-7  # singular values, relative to the largest, of normals that depend on each other
_RETURNED = 60.0  # log norm, times kappa - 2, of units that were active


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
        self._conserved = ConservedForms.of(network.moments[0], self._log_norms, self._directions)
        self._dormant: Bool[np.ndarray, "m"] = np.ones(len(kinds), bool)
        self._after: tuple[np.ndarray, np.ndarray] | None = None

    def arrivals(self, residual: Array) -> list[Arrival]:
        """Return the first unit to blow up, and an estimate of the delay of every other one behind it."""
        if not self._dormant.any():
            return []
        power = self._network.degree - 2
        with np.errstate(over="ignore"):
            (grown, u, T), ended = _blow_up(self._network.system, self._network.degree, self._state(residual))
        if not ended:
            return []
        directions = np.array(u)
        log_norms = np.array(grown) + self._shift
        duration = float(T) * math.exp(-power * self._shift)
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

    def approach(self, arrival: Arrival, residual: Array) -> Float[np.ndarray, "p"] | None:
        """Return the last deviation of the direction from a stationary one, of norm 1; None if it has none."""
        still = self._network.stationary_direction(arrival.direction, arrival.kind, residual)
        if still is None:  # its error is far below the deviation that is looked at
            still = arrival.direction
        u, arrived = _approached(
            self._network.system,
            self._network.degree,
            self._state(residual),
            jnp.asarray(arrival.slot),
            jnp.asarray(still),
        )
        deviation = np.asarray(u) / np.linalg.norm(u) - still
        size = np.linalg.norm(deviation)
        return deviation / size if arrived and size > 1e-2 * _POLICY.near else None

    def unpredictable(self, residual: Array, settled: Settled) -> str:
        """Return a sentence if deviations that are not conserved, or terms of a lower degree, decide what follows."""
        if len(settled.thetas) and self._dormant.any() and gains_lower_order(self._network, residual):
            return (
                f"Terms of a degree below {self._network.degree:g}, which had no utility at the origin, have one now: "
                "dormant units grow by them at once in the unit of these times. Follow them with unit_flow."
            )
        forms, degree = np.asarray(self._conserved.forms), self._network.degree
        for direction, kind in zip(settled.removed, settled.removed_kinds, strict=True):
            others = null_space(np.vstack([direction, forms @ direction]), rcond=_PARALLEL)
            H = self._network.utility_hessian(direction, int(kind), residual)
            fastest = float(np.max(np.linalg.eigvalsh(others.T @ H @ others), initial=-np.inf))
            utility = float(self._network.utilities(direction[None], np.array([kind]), residual)[0][0])
            if fastest > degree * utility + self._noise:
                return (
                    "A unit falls dormant along a direction that it leaves by small deviations on its way, and no "
                    "conserved quantity decides on which side. Simulate it with unit_flow at a moderate scale."
                )
        return ""

    @property
    def _shift(self) -> float:
        return float(np.max(self._log_norms[self._dormant]))

    def _state(self, residual: Array) -> "_Flow":
        entries = self._log_norms - self._shift, self._directions, self._kinds, self._dormant, residual, self._noise
        known_at = self._conserved.log_norms - self._shift
        conserved = dataclasses.replace(self._conserved, log_norms=known_at)
        return _Flow(*map(jnp.asarray, entries), conserved=conserved)

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


_State = tuple[Array, Array, Array]


class _Flow(NamedTuple):
    """Directions and log norms of all units in the time s, and what they depend on.

    Attributes:
        log_norms: at the start, over the largest of a dormant unit.
        directions: at the start.
        kinds: kind of each unit.
        dormant: True for the units that move.
        residual: r.
        noise: utilities below it count as zero.
        conserved: forms of each unit.
    """

    log_norms: Array
    directions: Array
    kinds: Array
    dormant: Array
    residual: Array
    noise: Array
    conserved: ConservedForms

    def solve(self, system: UnitSystem, degree: float, ended: Callable[[_State, Array], Array]) -> tuple[_State, Array]:
        """Return (l, u, T) when `ended` holds of them and of the largest gradient of U, and whether it ever does."""
        power = degree - 2
        value_and_grad = jax.vmap(jax.value_and_grad(system.utility), (0, 0, None))
        _, slopes = value_and_grad(self.directions, self.kinds, self.residual)
        scale = jnp.max(jnp.where(self.dormant, jnp.linalg.norm(slopes, axis=1), 0.0)) + self.noise

        def kept(state: _State) -> _State:
            """Return log norms and directions of norm 1 with the conserved values, and T in its own unit."""
            size, u, T = state
            return *self.conserved.nearest(size, u / jnp.linalg.norm(u, axis=1, keepdims=True)), T / scale

        def slope(s: Any, state: _State, args: Any) -> _State:
            size, unit, _ = kept(state)
            values, slopes = value_and_grad(unit, self.kinds, self.residual)
            fastest = jnp.max(jnp.where(self.dormant, size, -jnp.inf))
            speed = jnp.where(self.dormant, jnp.exp(power * (size - fastest)), 0.0)
            along = jnp.sum(unit * slopes, axis=1)
            turning = slopes - along[:, None] * unit
            return speed * degree * values / scale, speed[:, None] * turning / scale, jnp.exp(-power * fastest)

        solution = inlined(diffrax.diffeqsolve)(
            diffrax.ODETerm(slope),
            diffrax.Tsit5(),
            t0=0.0,
            t1=_POLICY.longest,
            dt0=None,
            y0=(self.log_norms, self.directions, jnp.zeros(())),
            stepsize_controller=diffrax.PIDController(rtol=_POLICY.tolerance, atol=_POLICY.tolerance),
            event=diffrax.Event(lambda s, state, args, **_: ended(kept(state), scale)),
            adjoint=diffrax.ForwardMode(),
            max_steps=_POLICY.steps,
            throw=False,
        )
        assert solution.ys is not None
        size, u, T = (each[0] for each in solution.ys)
        return kept((size, u, T)), solution.result == diffrax.RESULTS.event_occurred


@quickly_compiled
def _blow_up(system: UnitSystem, degree: float, flow: _Flow) -> tuple[_State, Array]:
    """Return (l, u, T) at the first blow-up, and whether there is one."""
    power = degree - 2

    def blown_up(state: _State, scale: Array) -> Array:
        size, u, T = state
        first = jnp.argmax(jnp.where(flow.dormant, size, -jnp.inf))
        unit = u[first]
        value, gradient = jax.value_and_grad(system.utility)(unit, flow.kinds[first], flow.residual)
        turning = jnp.linalg.norm(gradient - (unit @ gradient) * unit)
        remaining = jnp.exp(-power * size[first]) / (degree * power * jnp.maximum(value, flow.noise))
        aligned = (turning <= _POLICY.aligned * scale) | (power * size[first] >= _GROWN)
        return (value > flow.noise) & (remaining <= _POLICY.remaining * T) & aligned

    return flow.solve(system, degree, blown_up)


@quickly_compiled
def _approached(
    system: UnitSystem, degree: float, flow: _Flow, slot: Array, end: Array
) -> tuple[Float[Array, "p"], Array]:
    """Return the direction of a unit when it is next to where it ends, and whether it arrives there.

    Args:
        system: the network.
        degree: kappa.
        flow: of all units.
        slot: number of the unit.
        end: direction in which it ends.
    """

    def next_to_it(state: _State, scale: Array) -> Array:
        u = state[1][slot]
        return jnp.linalg.norm(u - end) <= _POLICY.near

    (_, u, _), arrived = flow.solve(system, degree, next_to_it)
    return u[slot], arrived
