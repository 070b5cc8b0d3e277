"""Two discrete maps of the symmetric two-layer model, for many starts at once: gradient steps in U and equation D.2.

gradient step   U ← U − η g(U), g(U) = (A E + E A) U, E = W − 1, the gradient of equation 4.1. W = U Uᵀ stays positive
                semidefinite for every step size; n steps are the time t = η n
equation D.2    W ← W + η [W A + A W − (A W² + W² A + 2 W A W) / 2]: half of the first order of D.1, so that n steps
                are the time t = η n / 2, without the term η² g gᵀ of a gradient step in U
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

LOST = -1e-12  # an eigenvalue of W below this is negative, not by rounding alone

_BLOW_UP = 1e3  # entry of W beyond which a run has blown up


@dataclass(frozen=True, eq=False)
class MapRuns:
    """Recorded runs of a map.

    Attributes:
        times: recorded times, in the time t of gradient flow, (k,).
        W: W at these times, (n, k, d, d); NaN once a run has blown up.
        lowest: smallest eigenvalue of W at these times, (n, k).
    """

    times: np.ndarray
    W: np.ndarray
    lowest: np.ndarray

    def losses(self, x: np.ndarray) -> np.ndarray:
        """Return the loss out of distribution at the recorded times, (n, k)."""
        return ((self.W @ x - x) ** 2).sum(axis=-1) / 2


def gradient_runs(a: np.ndarray, starts: np.ndarray, *, step: float, steps: int, keep: int) -> MapRuns:
    """Take gradient steps in U from starts (n, d, d'), recorded `keep` times at equal distances besides the start."""

    def once(U: np.ndarray) -> np.ndarray:
        E = U @ U.mT - np.eye(len(a))
        return U - step * ((a[:, None] * E + E * a) @ U)

    return _iterate(once, lambda U: U @ U.mT, starts, step, steps, keep)


def printed_runs(a: np.ndarray, starts: np.ndarray, *, step: float, steps: int, keep: int) -> MapRuns:
    """Iterate equation D.2 from W = U U^T of starts (n, d, d'), recorded `keep` times besides the start."""

    def once(W: np.ndarray) -> np.ndarray:
        square, left = W @ W, a[:, None] * W
        half = left - (a[:, None] * square + W @ left) / 2
        return W + step * (half + half.mT)

    return _iterate(once, lambda W: W, starts @ starts.mT, step / 2, steps, keep)


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
    known = ~np.isnan(W[:, :, 0, 0])
    lowest[known] = np.linalg.eigvalsh(W[known])[:, 0]
    return MapRuns(time * recorded, W, lowest)
