"""Two discrete maps of the symmetric two-layer model, for many starts at once: Euler's steps in U and the printed D.2.

Euler's step    U <- U - eta g(U), g(U) = (A E + E A) U the gradient of equation 4.1: W = U U^T stays positive
                semidefinite whatever the step, and n steps are the time t = eta n
equation D.2    W <- W + eta [W A + A W - (A W^2 + W^2 A + 2 W A W) / 2]: half of what D.1 has in first order, so
                that n steps are t = eta n / 2, without the term eta^2 g g^T of a gradient step in U
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

LOST = -1e-12  # an eigenvalue of W below which it is not positive semidefinite any more, not by rounding alone

_BLOW_UP = 1e3  # entry of W beyond which a run has blown up


@dataclass(frozen=True, eq=False)
class MapRuns:
    """Recorded runs of a map.

    Attributes:
        times: at which W was recorded, in the time t of gradient flow, (k,).
        W: there, (n, k, d, d); NaN once a run has blown up.
        lowest: the smallest eigenvalue of W there, (n, k).
    """

    times: np.ndarray
    W: np.ndarray
    lowest: np.ndarray

    @property
    def blown_up(self) -> np.ndarray:
        """Return True for runs that have left all bounds by their end, (n,)."""
        return np.isnan(self.W[:, -1, 0, 0])

    @property
    def indefinite(self) -> np.ndarray:
        """Return True for runs that blow up, or whose W is not positive semidefinite at some recorded time, (n,)."""
        return np.any(self.lowest < LOST, axis=1) | self.blown_up

    def losses(self, x: np.ndarray) -> np.ndarray:
        """Return the loss out of distribution at the recorded times, (n, k)."""
        return ((self.W @ x - x) ** 2).sum(axis=-1) / 2


def euler_runs(a: np.ndarray, starts: np.ndarray, *, step: float, steps: int, keep: int) -> MapRuns:
    """Take Euler's steps in U from starts (n, d, d'), recorded `keep` times at equal distances besides the start."""

    def once(U: np.ndarray) -> np.ndarray:
        E = _minus_one(U @ U.mT)
        return U - step * ((a[:, None] * E + E * a) @ U)

    return _iterate(once, lambda U: U @ U.mT, starts, step, steps, keep)


def printed_runs(a: np.ndarray, starts: np.ndarray, *, step: float, steps: int, keep: int) -> MapRuns:
    """Iterate equation D.2 from W = U U^T of starts (n, d, d'), recorded `keep` times besides the start."""

    def once(W: np.ndarray) -> np.ndarray:
        square, left = W @ W, a[:, None] * W
        half = left - (a[:, None] * square + W @ left) / 2
        return W + step * (half + half.mT)

    return _iterate(once, lambda W: W, starts @ starts.mT, step / 2, steps, keep)


def _minus_one(W: np.ndarray) -> np.ndarray:
    return W - np.eye(W.shape[-1])


def _iterate(
    once: Callable[[np.ndarray], np.ndarray],
    map_of: Callable[[np.ndarray], np.ndarray],
    states: np.ndarray,
    time: float,
    steps: int,
    keep: int,
) -> MapRuns:
    recorded = np.unique(np.linspace(0, steps, keep + 1).astype(int))
    first = map_of(states)
    W = np.full((len(first), len(recorded), *first.shape[1:]), np.nan)
    W[:, 0] = first
    alive, state = np.arange(len(states)), states
    for n in range(1, steps + 1):
        state = once(state)
        if len(alive) and np.abs(state).max() >= _BLOW_UP:
            bounded = np.abs(state).max(axis=(1, 2)) < _BLOW_UP
            alive, state = alive[bounded], state[bounded]
        place = np.searchsorted(recorded, n)
        if recorded[place] == n:
            W[alive, place] = map_of(state)
    lowest = np.full(W.shape[:2], np.nan)
    there = ~np.isnan(W[:, :, 0, 0])
    lowest[there] = np.linalg.eigvalsh(W[there])[:, 0]
    return MapRuns(time * recorded, W, lowest)
