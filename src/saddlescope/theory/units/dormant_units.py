"""Interface of dormant units: the order in which small units reach size one while the residual is constant.

The time unit is that of the degree: t / log(1/alpha) for kappa = 2, t alpha^(kappa - 2) for kappa > 2.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, Int

SAME = 1e-3
"""Relative distance of outputs, and distance of exponents, of units that count as one."""


@dataclass(frozen=True, eq=False)
class Arrival:
    """One way in which a dormant unit becomes active.

    Attributes:
        delay: time until it does.
        kind: the kind of the unit.
        direction: its direction then, shape (p,), of norm 1.
        utility: U of the direction.
        slot: the dormant unit or direction, as its collection numbers them.
        unit: the unit by its number among those given; None if units have no identity.
        degenerate: True if the direction is one of a manifold of equally good ones.
    """

    delay: float
    kind: int
    direction: Float[np.ndarray, "p"]
    utility: float
    slot: int
    unit: int | None = None
    degenerate: bool = False


@dataclass(frozen=True, eq=False)
class Settled:
    """State of the active units after a transition.

    Attributes:
        thetas: weights of the active units, shape (a, p).
        kinds: their kinds, shape (a,).
        slots: the slots of their arrivals, shape (a,).
        removed: directions of units that fell dormant, each of norm 1, shape (f, p).
        removed_kinds: their kinds, shape (f,).
        removed_slots: the slots of their arrivals, shape (f,).
        times: of points on the path of the transition, shape (s,).
        residuals: r there, shape (s, ...).
    """

    thetas: Float[np.ndarray, "a p"]
    kinds: Int[np.ndarray, "a"]
    slots: Int[np.ndarray, "a"]
    removed: Float[np.ndarray, "f p"]
    removed_kinds: Int[np.ndarray, "f"]
    removed_slots: Int[np.ndarray, "f"]
    times: Float[np.ndarray, "s"]
    residuals: Float[np.ndarray, "s ..."]


@runtime_checkable
class DormantUnits(Protocol):
    """All dormant units; changed in place as time passes."""

    def arrivals(self, residual: Array) -> list[Arrival]:
        """Return who becomes active with this residual, soonest first."""
        ...

    def approach(self, arrival: Arrival, residual: Array) -> Float[np.ndarray, "p"] | None:
        """Return the last deviation of an arrival's direction from a stationary one, of norm 1; None if it has none.

        It is what is left of the initial weights, and decides where a symmetry leaves the path of the active units two
        ways. None also if it takes a time of the order of the stages to grow, as for kappa = 2.
        """
        ...

    def unpredictable(self, residual: Array, settled: "Settled") -> str:
        """Return why the next stage cannot be predicted from here, in a sentence; empty if it can."""
        ...

    def advance(self, arrival: Arrival) -> None:
        """Let the delay of an arrival pass, and remove what becomes active then."""
        ...

    def settle(self, settled: Settled) -> None:
        """Take note of the active units after a transition, and take back those that fell dormant."""
        ...
