"""Units held at a kink, where the slope on either side points to the other, and their motion along it.

    f      slope of a unit's direction; it jumps at a kink, as where a ReLU neuron begins to see a sample
    n      (f beyond - f before) / |.|, across a kink that a step, or a stage of it, has passed

The loss is continuous, so its gradient jumps along the normal of the kink, and n is that normal. If f . n < 0 before
and f . n > 0 beyond, both sides push the unit to the kink: it is held there, and moves by the part of f along the kink
(Filippov's solution), until f on one side no longer points to the other. A unit is held at one kink at a time: where
several meet, as where all inner weights of a neuron vanish, steps are short and pass them again and again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int


@dataclass(frozen=True)
class KinkPolicy:
    """Policy of holding units at kinks.

    Attributes:
        jump: times the change that a smooth slope could have in a step.
        certain: times the change that a smooth slope could have near a kink.
        push: part of a jump that pushes to the kink from the weaker side, for a unit to be held there.
        leave: that part below which a unit leaves.
        reach: times the longest way of a step that passed a kink: as far on either side of it, slopes are taken.
        halvings: of the distance in which a kink lies.
        near: distance from a kink in which only the jump matters.
    """

    jump: float = 2.0
    certain: float = 100.0
    push: float = 1e-5
    leave: float = 1e-6
    reach: float = 4.0
    halvings: int = 40
    near: float = 1e-8


_POLICY = KinkPolicy()

SEARCH = _POLICY.halvings + 2
"""Evaluations by which the place of a kink and its normal are found."""


Given = Any  # array of NumPy, or of JAX in compiled code


class HeldUnits(NamedTuple):
    """Kinks of all units.

    Attributes:
        normals: n, (m, p); 0 of a unit that is not held.
        reaches: distance from the kink at which slopes on its sides are taken, (m,).
        sizes: of the jumps of the slope, (m,).
    """

    normals: Float[Given, "m p"]
    reaches: Float[Given, "m"]
    sizes: Float[Given, "m"]

    @classmethod
    def none(cls, count: int, weights: int) -> "HeldUnits":
        """Return no kinks."""
        return cls(np.zeros((count, weights)), np.zeros(count), np.zeros(count))

    def along(self, slope: Float[Array, "s"]) -> Float[Array, "s"]:
        """Return the slope of a state, log norms first, without its part across the kinks."""
        m, p = self.normals.shape
        turning = slope[m:].reshape(m, p)
        across = jnp.sum(turning * self.normals, axis=1, keepdims=True) * self.normals
        return jnp.concatenate([slope[:m], (turning - across).ravel()])

    def sides(self, state: Float[Array, "s"]) -> Float[Array, "2 s"]:
        """Return the states on the side of n and on the other one."""
        m = len(self.reaches)
        across = jnp.concatenate([jnp.zeros(m), (self.reaches[:, None] * self.normals).ravel()])
        return jnp.stack([state + across, state - across])

    def after(
        self,
        slopes: Float[Array, "k s"],
        step: Float[Array, ""],
        on_sides: Float[Array, "2 s"],
        smooth: Float[Array, ""],
    ) -> tuple["HeldUnits", Bool[Array, "m"], Bool[Array, "m"]]:
        """Return the kinks after a step, units that are held since, and units that are held no longer.

        Args:
            slopes: `along` the kinks in the stages of the step, the first one at its start.
            step: its size.
            on_sides: slopes at the states `sides`, at the end of the step.
            smooth: relative change that a smooth slope could have in the step; infinite where no kink is near.
        """
        m, p = self.normals.shape
        turning = slopes[:, m:].reshape(-1, m, p)
        jumps = turning - turning[:1]
        sizes = jnp.linalg.norm(jumps, axis=2)
        there = jnp.argmax(sizes, axis=0)
        units = jnp.arange(m)
        jump, size, beyond = jumps[there, units], sizes[there, units], turning[there, units]
        normals = jump / jnp.where(size > 0, size, 1.0)[:, None]
        first, last = (jnp.sum(each * normals, axis=1) for each in (turning[0], beyond))
        largest = jnp.maximum(*(jnp.linalg.norm(each, axis=1) for each in (turning[0], beyond)))
        is_held = jnp.any(self.normals != 0, axis=1)
        pushed = jnp.minimum(-first, last) > _POLICY.push * size
        taken = ~is_held & pushed & (size > _POLICY.jump * smooth * largest)

        upper, lower = (jnp.sum(slope[m:].reshape(m, p) * self.normals, axis=1) for slope in on_sides)
        released = is_held & (jnp.minimum(-upper, lower) < _POLICY.leave * self.sizes)
        kept = jnp.where(released[:, None], 0.0, self.normals)
        reaches = _POLICY.reach * step * largest
        held = HeldUnits(
            jnp.where(taken[:, None], normals, kept),
            jnp.where(taken, reaches, self.reaches),
            jnp.where(taken, size, self.sizes),
        )
        return held, taken, released

    def at_kinks(
        self,
        slope: Callable[[Array], Array],
        state: Float[Array, "s"],
        taken: Bool[Array, "m"],
        rate: Float[Array, ""],
    ) -> tuple["HeldUnits", Float[Array, "s"]]:
        """Return the exact normals of units that are newly held, and the change of the state that takes them there.

        Where the slope changes, and does not jump, no unit is held.
        """
        m, p = self.normals.shape

        def moved(ways: Float[Array, "m"]) -> Float[Array, "s"]:
            return jnp.concatenate([jnp.zeros(m), (ways[:, None] * self.normals).ravel()])

        def turning(ways: Float[Array, "m"]) -> Float[Array, "m p"]:
            return slope(state + moved(ways))[m:].reshape(m, p)

        def halved(_: Int[Array, ""], bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            middle = (low + high) / 2
            back = jnp.sum(turning(middle) * self.normals, axis=1) > 0
            return jnp.where(back, middle, low), jnp.where(back, high, middle)

        ends = jnp.where(taken, self.reaches, 0.0)
        low, high = lax.fori_loop(0, _POLICY.halvings, halved, (-ends, ends))
        sides = jax.vmap(turning)(jnp.stack([low - _POLICY.near, high + _POLICY.near]))
        jump = sides[0] - sides[1]
        size = jnp.linalg.norm(jump, axis=1)
        exact = jump / jnp.where(size > 0, size, 1.0)[:, None]
        jumps = taken & (size > _POLICY.certain * rate * _POLICY.near)
        normals = jnp.where(taken[:, None], jnp.where(jumps[:, None], exact, 0.0), self.normals)
        sizes = jnp.where(jumps, size, self.sizes)
        return HeldUnits(normals, self.reaches, sizes), moved(jnp.where(jumps, (low + high) / 2, 0.0))
