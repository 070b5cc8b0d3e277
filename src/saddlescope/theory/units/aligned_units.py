"""Dormant units of degree 2 whose utility is no quadratic form, such as ReLU neurons: a basin of U each.

    u     direction of a unit; it ascends U on the sphere in a time of order 1 to a local maximum
    xi    exponent of its norm, alpha^(1 - xi), with dxi/dT = 2 U(u)
    T     time / log(1/alpha)

Units of the same kind that reach the same function with the same exponent become active together and stay equal up to
their norms: in a network of degree 2 they count as one unit. The starting directions, one per unit, decide which maxima
are found. During a transition they follow the residual along its path.

Units with kinks take explicit steps, and implicit ones along rounded kinks where these take too many. On a kink that
repels it a unit has several ways on, so copies of all units with small deviations ascend, too, and have to agree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from saddlescope._shared.compiled_functions import bound, quickly_compiled
from saddlescope.theory.units.dormant_units import SAME, Arrival, Settled
from saddlescope.theory.units.explicit_solver import next_size, relative_error, trial_step
from saddlescope.theory.units.implicit_solver import implicit_step, next_implicit_size
from saddlescope.theory.units.unit_network import WIDTH, UnitNetwork
from saddlescope.theory.units.unit_system import UnitSystem


@dataclass(frozen=True, kw_only=True)
class AscentPolicy:
    """Limits of the ascent of U on the sphere; times in units of one over its largest gradient.

    Attributes:
        tolerance: of an explicit step, relative and absolute.
        aligned: gradient along the sphere at a maximum, relative to the largest.
        longest: time of the ascent.
        steps: explicit, and implicit ones along kinks.
        others: ascents of units with kinks from deviating directions, which must agree.
        deviation: of their directions, larger than the width over which kinks are rounded.
    """

    tolerance: float = 1e-8
    aligned: float = 1e-8
    longest: float = 1e4
    steps: int = 20_000
    others: int = 3
    deviation: float = 1e-5


_POLICY = AscentPolicy()
_FIRST = 0.1  # size of its first step
_TOGETHER = 16  # directions that are followed together where there are few


class AlignedUnits:
    """Dormant units with given initial directions; see the module.

    Args:
        network: the network, of degree 2.
        weights: initial weights, shape (m, p), none of them 0; only their directions matter.
        kinds: kind of each unit, shape (m,).
        noise: rates below it count as zero.
        seed: of small deviations of the directions before each ascent; None: there are none.
    """

    def __init__(
        self, network: UnitNetwork, weights: Float[np.ndarray, "m p"], kinds: Int[np.ndarray, "m"], noise: float,
        seed: int | None = None,
    ) -> None:  # fmt: skip
        self._network, self._kinds, self._noise = network, kinds, noise
        self._directions = weights / np.linalg.norm(weights, axis=1, keepdims=True)
        self._xi = np.zeros(len(kinds))
        self._rates = np.zeros(len(kinds))
        self._dormant: Bool[np.ndarray, "m"] = np.ones(len(kinds), bool)
        kinked = network.kinks is not None
        self._deviations = None if seed is None else np.random.default_rng(seed)
        others = range(_POLICY.others if kinked and seed is None else 0)
        self._others = [AlignedUnits(network, weights, kinds, noise, other) for other in others]
        self._ambiguous = False
        system, rounded = network.system, network.rounded(WIDTH).system
        self._ascend = bound(_ascended, _explicit, system, count=6)
        self._carry = bound(_carried, _explicit, system, count=6)
        self._slide = bound(_ascended, _implicit, rounded, count=6)
        self._carry_along = bound(_carried, _implicit, rounded, count=6)
        self._entered_with: dict[int, np.ndarray] = {}

    def arrivals(self, residual: Array) -> list[Arrival]:
        """Return one arrival per maximum and exponent, soonest first."""
        for other in self._others:
            other._deviate(self)
        everyone = [self, *self._others]
        starts = np.concatenate([one._directions for one in everyone])
        _, slopes = self._network.utilities(self._directions, self._kinds, residual)
        largest = np.asarray(float(np.max(np.linalg.norm(slopes, axis=1))) + self._noise)
        ends, slid = self._followed(starts, self._ascend, self._slide, residual, largest)
        ascents = zip(everyone, *(np.split(part, len(everyone)) for part in (ends, slid)), strict=True)
        arrivals, *others = [one._arrivals(residual, *ascent) for one, *ascent in ascents]
        self._ambiguous = not all(self._agree(arrivals, other) for other in others)
        return arrivals

    def _deviate(self, first: "AlignedUnits") -> None:
        """Give the dormant units of each direction a small deviation; at the origin directions are not special."""
        assert self._deviations is not None
        if not self._xi.any():
            self._directions = first._directions.copy()
            return
        _, places = np.unique(np.round(self._directions / WIDTH), axis=0, return_inverse=True)
        shifts = _POLICY.deviation * self._deviations.standard_normal(self._directions.shape)
        near = self._directions + shifts[places.ravel()]
        near /= np.linalg.norm(near, axis=1, keepdims=True)
        self._directions = np.where(self._dormant[:, None], near, self._directions)

    def _agree(self, ours: list[Arrival], others: list[Arrival]) -> bool:
        """Return True if the next arrivals are one, or there is none."""
        if not ours or not others:
            return not ours and not others
        one, two = ours[0], others[0]
        outputs = self._network.outputs(np.stack([one.direction, two.direction]), np.array([one.kind, two.kind]))
        near = np.linalg.norm(outputs[0] - outputs[1]) < SAME * np.linalg.norm(outputs[0])
        return bool(near and abs(one.delay - two.delay) * 2 * one.utility <= 10 * _POLICY.deviation)

    def _arrivals(
        self, residual: Array, directions: Float[np.ndarray, "m p"], slid: Bool[np.ndarray, "m"]
    ) -> list[Arrival]:
        """Return the same for directions at the end of their ascents, of which some slid along kinks."""
        self._directions = directions
        utilities = self._on_kinks(slid, residual)
        outputs = self._network.outputs(self._directions, self._kinds)
        self._rates = np.where(np.abs(2 * utilities) > self._noise, 2 * utilities, 0.0)
        self._outputs = outputs
        delays = np.full(len(self._xi), np.inf)
        growing = self._dormant & (self._rates > 0)
        delays[growing] = np.maximum(1 - self._xi[growing], 0.0) / self._rates[growing]
        found: list[Arrival] = []
        taken = ~growing
        for n in np.argsort(delays, kind="stable"):
            if taken[n]:
                continue
            taken |= self._alike(int(n))
            found.append(
                Arrival(
                    delay=float(delays[n]),
                    kind=int(self._kinds[n]),
                    direction=self._directions[n].copy(),
                    utility=float(self._rates[n]) / 2,
                    slot=int(n),
                )
            )
        self._next = found[0] if found else None
        return found

    def _followed(
        self, starts: Float[np.ndarray, "c p"], explicit: Callable[..., Any], implicit: Callable[..., Any], *rest: Any
    ) -> tuple[Float[np.ndarray, "c p"], Bool[np.ndarray, "c"]]:
        """Return the directions of all copies at the end of a path, and which took implicit steps to it.

        With kinks, units that start from one direction go together.
        """
        everyone = [self, *self._others]
        kinds, dormant = np.tile(self._kinds, len(everyone)), np.concatenate([one._dormant for one in everyone])
        if self._network.kinks is None:
            ends, _ = explicit(starts, kinds, dormant, *rest, np.asarray(_POLICY.steps))
            return np.array(ends), np.zeros(len(starts), bool)
        keys = np.column_stack([np.round(starts / WIDTH), kinds, dormant])
        _, firsts, places = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        ends, left, slid = starts.copy(), firsts[dormant[firsts]], np.zeros(len(starts), bool)
        # Explicit steps of all, and more of those that need more; then implicit steps.
        rounds = (explicit, _POLICY.steps // 200), (explicit, _POLICY.steps // 20), (implicit, _POLICY.steps)
        for follow, most in rounds:
            slid[left] = follow is implicit
            together = len(self._kinds) if len(left) > len(self._kinds) // 2 else _TOGETHER
            missing = []
            for k in range(0, len(left), together):
                some = left[k : k + together]
                filled, moves = np.resize(some, together), np.arange(together) < len(some)
                found, arrived = follow(starts[filled], kinds[filled], moves, *rest, np.asarray(most))
                ends[some] = np.asarray(found)[: len(some)]
                missing.append(some[~np.asarray(arrived)[: len(some)]])
            left = np.concatenate([*missing, left[:0]])
        return ends[firsts[places.ravel()]], slid[firsts[places.ravel()]]

    def _on_kinks(self, some: Bool[np.ndarray, "m"], residual: Array) -> Float[np.ndarray, "m"]:
        """Move directions of some units from rounded kinks to the kinks; return the utilities of all."""
        utilities, _ = self._network.utilities(self._directions, self._kinds, residual)
        if not some.any():
            return utilities
        for n in np.flatnonzero(some & self._dormant & (2 * np.abs(utilities) > self._noise)):
            found = self._network.direction_on_kinks(self._directions[n], int(self._kinds[n]), residual)
            if found is not None:
                self._directions[n] = found
        return self._network.utilities(self._directions, self._kinds, residual)[0]

    def _alike(self, n: int) -> Bool[np.ndarray, "m"]:
        """Return a mask of the dormant units with the output and the exponent of unit n; theta and -theta may agree."""
        outputs = self._outputs
        near = np.linalg.norm(outputs - outputs[n], axis=1) < SAME * np.linalg.norm(outputs[n])
        return near & (np.abs(self._xi - self._xi[n]) < SAME) & (self._kinds == self._kinds[n]) & self._dormant

    def approach(self, arrival: Arrival, residual: Array) -> None:
        """Return None: a deviation takes a time of the order of the stages to grow."""
        return

    def unpredictable(self, residual: Array, settled: Settled) -> str:
        """Return a sentence if copies of an active unit separate, or a dormant one is at no maximum of U.

        Both take a time of the order of log(1/alpha) that depends on small deviations, which are not tracked.
        """
        if self._ambiguous:
            return (
                "A dormant unit is at a point from which it has several ways on, such as a ReLU neuron on a kink that "
                "now repels it, and which one it takes depends on small deviations. Simulate it by unit_flow at a "
                "moderate scale."
            )
        for theta, kind, slot in zip(settled.thetas, settled.kinds, settled.slots, strict=True):
            alone = len(self._entered_with[int(slot)]) == 1
            if not alone and self._network.fastest_deviation(theta, int(kind), residual) > self._noise:
                return (
                    "Units that became active together are at a saddle from which they separate from each other, at a "
                    "time that depends on small differences between them. Simulate it by unit_flow at a moderate scale."
                )
        if not len(settled.thetas):
            return ""
        left = self._dormant.copy()
        while left.any():
            n = int(np.argmax(left))
            left &= ~self._alike(n)
            left[n] = False
            direction, kind = self._directions[n], int(self._kinds[n])
            if self._network.near_kinks(direction[None], self._kinds[[n]]) is not None:
                on_kinks = self._network.direction_on_kinks(direction, kind, residual)
                fastest = np.inf if on_kinks is None and self._rates[n] != 0 else -np.inf
            else:
                fastest = float(np.linalg.eigvalsh(self._network.utility_hessian(direction, kind, residual))[-1])
            if fastest > self._noise and not fastest <= self._rates[n] + 1e-6 * abs(fastest):
                return (
                    "A dormant unit is at a direction that is no maximum of its utility, and leaves it at a time that "
                    "depends on small deviations. Simulate it by unit_flow at a moderate scale."
                )
        return ""

    def advance(self, arrival: Arrival) -> None:
        """Let exponents grow for a time; all units that arrive with the first become active."""
        self._pass(arrival, arrival.slot)

    def _pass(self, arrival: Arrival, slot: int) -> None:
        for other in self._others:
            assert other._next is not None, "all copies have agreed on it"
            other._pass(other._next, slot)
        alike = self._alike(arrival.slot)
        self._xi = self._xi + np.where(self._dormant, self._rates, 0.0) * arrival.delay
        self._dormant &= ~alike
        self._entered_with[slot] = np.flatnonzero(alike)

    def settle(self, settled: Settled) -> None:
        """Let dormant units follow the residual of the transition; take back those that fell dormant, with xi = 1."""
        everyone = [self, *self._others]
        if len(settled.times) > 1:
            path = _few_points(settled.times, settled.residuals)
            starts = np.concatenate([one._directions for one in everyone])
            ends, _ = self._followed(starts, self._carry, self._carry_along, *path)
            for one, directions in zip(everyone, np.split(ends, len(everyone)), strict=True):
                one._directions = directions
        for slot, direction in zip(settled.removed_slots, settled.removed, strict=True):
            for one in everyone:
                members = one._entered_with.pop(int(slot))
                one._dormant[members], one._xi[members], one._directions[members] = True, 1.0, direction

    def count(self, slot: int) -> int:
        """Return the number of units that became active together."""
        return len(self._entered_with[slot])


class _Ascent(NamedTuple):
    """State of the ascent of one unit: direction up to its norm, its velocity, time, step size and steps."""

    u: Float[Array, "p"]
    velocity: Float[Array, "p"]
    time: Array
    h: Array
    steps: Array


_Step = Callable[[Callable[[Array], Array], _Ascent], tuple[_Ascent, Array, Array]]
"""From the velocity and a state to the state after a step, its error over the allowed error, and the next step size."""


def _explicit(turning: Callable[[Array], Array], at: _Ascent) -> tuple[_Ascent, Array, Array]:
    trial = trial_step(turning, at.u, at.velocity, at.h)
    allowed = _POLICY.tolerance * (1 + jnp.maximum(jnp.abs(at.u), jnp.abs(trial.end)))
    error = relative_error(jnp.sum((trial.errors / allowed[None]) ** 2, axis=1), float(len(at.u)))
    return _Ascent(trial.end, trial.slope, at.time + at.h, at.h, at.steps), error, next_size(at.h, error)


def _implicit(turning: Callable[[Array], Array], at: _Ascent) -> tuple[_Ascent, Array, Array]:
    trial = implicit_step(turning, at.u, at.velocity, at.h)
    error = jnp.sqrt(jnp.mean((trial.errors / (100 * _POLICY.tolerance)) ** 2)) + jnp.maximum(trial.growth, 0.0)
    return _Ascent(trial.end, trial.slope, at.time + at.h, at.h, at.steps), error, next_implicit_size(at.h, error)


def _stepped(
    taken: _Step, turning: Callable[[Array], Array], first: _Ascent, going: Callable[[_Ascent], Array],
    left: Callable[[_Ascent], Array],
) -> _Ascent:  # fmt: skip
    """Return the state where it goes on no longer; no step is longer than the time that is left."""

    def step(at: _Ascent) -> _Ascent:
        at = at._replace(h=jnp.minimum(at.h, left(at)))
        after, error, h = taken(turning, at)
        chosen = jax.tree.map(lambda new, old: jnp.where(error <= 1, new, old), after, at)
        return chosen._replace(h=h, steps=at.steps + 1)

    return jax.lax.while_loop(going, step, first)


@quickly_compiled
def _carried(
    taken: _Step, system: UnitSystem, directions: Array, kinds: Array, dormant: Array, times: Array, residuals: Array,
    most: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the directions after the ascent of U during a transition, in which the residual changes.

    The last array is True for units that reached the end of the transition within `most` steps.
    """
    gradient, duration = jax.grad(system.utility), times[-1] - times[0]

    def one(start: Array, kind: Array, moves: Array) -> tuple[Array, Array]:
        def turning(y: Array) -> Array:
            """Return the velocity of u and of the share of the time that has passed."""
            unit, now = y[:-1] / jnp.linalg.norm(y[:-1]), times[0] + duration * y[-1]
            after = jnp.clip(jnp.searchsorted(times, now), 1, len(times) - 1)
            length = times[after] - times[after - 1]
            share = jnp.where(length > 0, (now - times[after - 1]) / jnp.where(length > 0, length, 1.0), 1.0)
            residual = residuals[after - 1] + jnp.clip(share, 0.0, 1.0) * (residuals[after] - residuals[after - 1])
            slope = gradient(unit, kind, residual)
            return duration * jnp.append(slope - (unit @ slope) * unit, 1 / duration)

        def going(at: _Ascent) -> Array:
            return moves & (at.u[-1] < 1 - 1e-9) & (at.steps < most)

        y = jnp.append(start, 0.0)
        first = _Ascent(y, turning(y), jnp.zeros(()), jnp.asarray(_FIRST / len(times)), jnp.asarray(0))
        found = _stepped(taken, turning, first, going, lambda at: 1 - at.u[-1])
        end = found.u[:-1]
        return jnp.where(moves, end / jnp.linalg.norm(end), start), ~moves | (found.steps < most)

    return jax.vmap(one)(directions, kinds, dormant)


def _few_points(times: Float[np.ndarray, "s"], residuals: Float[np.ndarray, "s ..."]) -> tuple[np.ndarray, np.ndarray]:
    """Return the path by a number of points that is a power of two, so that few numbers are compiled."""
    count = 1 << max(len(times) - 1, 31).bit_length()
    more = count - len(times)
    return np.append(times, np.full(more, times[-1])), np.concatenate([residuals, np.repeat(residuals[-1:], more, 0)])


@quickly_compiled
def _ascended(
    taken: _Step, system: UnitSystem, directions: Array, kinds: Array, dormant: Array, residual: Array, largest: Array,
    most: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Return the directions after an ascent of U on the sphere; active units stay.

    Each unit stops where its gradient is far below the largest, possibly at a saddle of U, or after `most` steps. The
    last array is True for units that stopped before.
    """
    gradient = jax.grad(system.utility)

    def one(start: Array, kind: Array, moves: Array) -> tuple[Array, Array]:
        def turning(u: Array) -> Array:
            unit = u / jnp.linalg.norm(u)
            slope = gradient(unit, kind, residual)
            return (slope - (unit @ slope) * unit) / largest

        def going(at: _Ascent) -> Array:
            moving = (jnp.linalg.norm(at.velocity) > _POLICY.aligned) & (at.time < _POLICY.longest) & (at.steps < most)
            return moves & moving

        first = _Ascent(start, turning(start), jnp.zeros(()), jnp.asarray(_FIRST), jnp.asarray(0))
        end = _stepped(taken, turning, first, going, lambda at: jnp.asarray(jnp.inf))
        return jnp.where(moves, end.u / jnp.linalg.norm(end.u), start), ~moves | (end.steps < most)

    return jax.vmap(one)(directions, kinds, dormant)
