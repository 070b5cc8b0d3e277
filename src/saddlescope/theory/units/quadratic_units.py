"""Dormant units of degree 2 whose utility is a quadratic form: exponents of directions, as alpha goes to 0.

    M      Hessian of U, so that dtheta/dt = M theta while theta is small
    e, s   its eigenvectors and eigenvalues: components along e grow at the rate s
    xi     exponents: small units of a kind span directions q of sizes alpha^(1 - xi)
    T      time / log(1/alpha), so that dxi/dT = s, each exponent paired with its rate

All units of a kind together are a matrix Theta with one column per unit, Theta' = M Theta, and the network is a
function of Theta Theta^T alone: any factor of it follows the same flow, so what becomes active is a direction.
Exponents and rates are paired in sorted order within components of directions that overlap, as in
`saddlescope.theory.low_rank.growth_exponents`; a single unit (width 1) is one vector, whose component along e starts at
the largest exponent that overlaps with e. Active directions have no force, so M acts on the others.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Float

from saddlescope.theory.low_rank.growth_exponents import OVERLAP, components
from saddlescope.theory.units.dormant_units import Arrival, Settled
from saddlescope.theory.units.unit_network import UnitNetwork

_EQUAL = 1e-9  # relative difference of eigenvalues that count as one


@dataclass(eq=False)
class _Frame:
    """Dormant directions of a kind, orthonormal columns of Q, with exponents, descending, and the number active."""

    Q: Float[np.ndarray, "p d"]
    xi: Float[np.ndarray, "d"]
    active: int = 0


@dataclass(frozen=True, eq=False)
class _Growth:
    """Eigenvectors of M on a frame, their rates, and the exponents paired with them."""

    E: Float[np.ndarray, "p d"]
    rate: Float[np.ndarray, "d"]
    start: Float[np.ndarray, "d"]


class QuadraticUnits:
    """Dormant directions of units with a quadratic utility; see the module.

    Args:
        network: the network.
        width: number of units of each kind; None: at least as many as a unit has weights.
        noise: rates below it count as zero.
    """

    def __init__(self, network: UnitNetwork, width: int | None, noise: float) -> None:
        self._network, self._width, self._noise = network, width or network.size, noise
        self._frames = [_Frame(np.eye(network.size), np.zeros(network.size)) for _ in range(network.kinds)]
        self._grown: list[_Growth] = []

    def arrivals(self, residual: Array) -> list[Arrival]:
        """Return the directions that become active, soonest first."""
        self._grown, found = [], []
        for kind, frame in enumerate(self._frames):
            M = self._network.utility_hessian(np.zeros(self._network.size), kind, residual)
            grown = _growth(frame, M, self._noise, single=self._width == 1)
            self._grown.append(grown)
            if frame.active >= self._width:
                continue
            for j in np.flatnonzero(grown.rate > self._noise):
                rate = float(grown.rate[j])
                alike = np.abs(grown.rate - rate) <= self._noise
                found.append(
                    Arrival(
                        delay=max(1.0 - float(grown.start[j]), 0.0) / rate,
                        kind=kind,
                        direction=grown.E[:, j],
                        utility=rate / 2,
                        slot=kind,
                        unit=kind if self._width == 1 else None,
                        degenerate=int(np.sum(alike & (grown.start == grown.start[j]))) > 1,
                    )
                )
        return sorted(found, key=lambda arrival: arrival.delay)

    def approach(self, arrival: Arrival, residual: Array) -> None:
        """Return None: a deviation takes a time of the order of the stages to grow."""
        return

    def unpredictable(self, residual: Array, settled: Settled) -> str:
        """Return the empty string: nothing here is left out."""
        return ""

    def advance(self, arrival: Arrival) -> None:
        """Let exponents grow for a time; the direction that arrives is removed from its frame."""
        for kind, (frame, grown) in enumerate(zip(self._frames, self._grown, strict=True)):
            xi = grown.start + grown.rate * arrival.delay
            order = np.argsort(-xi, kind="stable")
            if kind == arrival.kind:
                entered = np.abs(grown.E.T @ arrival.direction) > 0.5
                order = order[~entered[order]]
            frame.Q, frame.xi = grown.E[:, order], xi[order]

    def settle(self, settled: Settled) -> None:
        """Make the frames orthogonal to the active directions; directions that left have xi = 1."""
        for kind, frame in enumerate(self._frames):
            active = settled.thetas[settled.kinds == kind]
            left = settled.removed[settled.removed_kinds == kind]
            if not (len(active) or len(left)) and len(frame.xi) == self._network.size:
                continue
            basis = np.linalg.qr(active.T)[0] if len(active) else np.zeros((self._network.size, 0))
            candidates = np.concatenate([left.T, frame.Q], axis=1)
            exponents = np.concatenate([np.ones(len(left)), frame.xi])
            Q, kept = _orthonormal(basis, candidates, self._network.size - basis.shape[1])
            frame.Q, frame.xi, frame.active = Q, exponents[kept], len(active)


def _orthonormal(
    basis: Float[np.ndarray, "p a"], candidates: Float[np.ndarray, "p c"], count: int
) -> tuple[Float[np.ndarray, "p d"], list[int]]:
    """Return at most `count` candidates made orthonormal to the basis and in turn to each other, and their numbers."""
    found, kept = basis, []
    for number in range(candidates.shape[1]):
        if len(kept) == count:
            break
        column = candidates[:, number]
        for _ in range(2):
            column = column - found @ (found.T @ column)
        size = np.linalg.norm(column)
        if size > OVERLAP:
            found, kept = np.column_stack([found, column / size]), [*kept, number]
    return found[:, basis.shape[1] :], kept


def _growth(frame: _Frame, M: Float[np.ndarray, "p p"], noise: float, *, single: bool) -> _Growth:
    """Pair exponents and rates on a plateau."""
    rate, E = np.linalg.eigh(frame.Q.T @ M @ frame.Q)
    rate, E = np.where(np.abs(rate) <= noise, 0.0, rate)[::-1], E[:, ::-1]
    E = _adapted(rate, E)
    touching = np.abs(E.T) > OVERLAP  # (rate, exponent)
    if single:
        start = np.array([np.max(frame.xi[row], initial=-np.inf) for row in touching])
        return _Growth(frame.Q @ E, rate, start)
    start = np.zeros(len(rate))
    for fast, large in components(touching):
        start[fast[np.argsort(-rate[fast], kind="stable")]] = np.sort(frame.xi[large])[::-1]
    return _Growth(frame.Q @ E, rate, start)


def _adapted(rate: Float[np.ndarray, "d"], E: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    """Return eigenvectors that within each eigenspace follow the frame's columns, from the largest exponent on."""
    adapted, first, size = E.copy(), 0, len(rate)
    scale = float(np.max(np.abs(rate), initial=0.0))
    for last in range(1, size + 1):
        if last < size and abs(rate[last] - rate[first]) <= _EQUAL * scale:
            continue
        space = E[:, first:last]
        if last == first + 1:  # the sign is all there is to choose
            leading = space[np.argmax(np.abs(space) > OVERLAP)]
            adapted[:, first] *= np.sign(leading)
        else:
            adapted[:, first:last] = _orthonormal(np.zeros((size, 0)), space @ space.T, last - first)[0]
        first = last
    return adapted
