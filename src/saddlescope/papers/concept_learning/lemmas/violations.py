"""Excesses of runs over the bounds of Lemmas D.1 to D.8.

    excess  the logarithm of what a lemma bounds over its bound, the largest of a run: positive where it is violated,
            and near 0 where it is tight; in lemmas about a number near 1 the difference instead, and about a sign
            the value over omega
    phase   P beta omega, below which an entry is in the initial phase (Definition D.1)

The statements are those of `saddlescope.theory.concepts`, in the time of gradient flow.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

K, KAPPA = 20.0, 1.11  # of D.2 and D.4: about the least that they allow

_ROUNDING = 1e-14  # of sqrt(w_ii w_jj): what rounding can make of w_ij, in runs in U and in W

_LAMBDA = 0.85  # of Lemma D.4, as in the proof of D.8


class Starts(NamedTuple):
    """Starts with the constants of the assumptions; C of D.5 is free."""

    strengths: np.ndarray
    factors: np.ndarray
    log_P: np.ndarray  # noqa: N815 - the paper's P
    log_omega: np.ndarray
    log_beta: np.ndarray
    hold: np.ndarray

    @property
    def until(self) -> float:
        """Return a time by which all is learned, from nearly singular starts too."""
        return float(1.3 * (30 - self.log_omega.min()) / (4 * self.strengths.min()))

    @property
    def log_phase(self) -> np.ndarray:
        """Return log(P beta omega), (n,)."""
        return self.log_P + self.log_beta + self.log_omega


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs from n starts.

    Attributes:
        starts: with the constants of the assumptions for each.
        times: of gradient flow, (k,).
        W: at these, (n, k, d, d).
        lowest: least w_ii of every run, (n,).
        highest: largest w_ii, (n,).
        fastest: largest change of a w_ii in one step, (n,); 0 for a flow.
    """

    starts: Starts
    times: np.ndarray
    W: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    fastest: np.ndarray


def excesses(runs: Runs) -> dict[str, np.ndarray]:
    """Return the excess of every lemma on every run, (n,); -infinity where the lemma does not apply."""
    from saddlescope.theory.concepts import lemma_d2_time, lemma_d3_time

    a, t, W, of = runs.starts.strengths, runs.times[:, None, None], runs.W, runs.starts
    pairs, phase, d, off = a[:, None] + a, of.log_phase, len(a), ~np.eye(len(a), dtype=bool)
    major = np.einsum("nkii->nki", W)
    sizes = np.sqrt(np.maximum(major, 0.0))
    slack = _ROUNDING * sizes[..., :, None] * sizes[..., None, :]
    with np.errstate(divide="ignore"):
        above = np.log(np.maximum(np.abs(W) - slack, 0.0))  # of |w_ij|, at least
        below = np.log(np.abs(W) + slack)  # and at most
        start = np.log(np.abs(W[:, :1]))
        noise = np.log(_largest_noise(a, np.sign(W) * np.maximum(np.abs(W) - slack, 0.0)))
        log_major = np.log(np.maximum(major, 0.0) + np.einsum("nkii->nki", slack))
    d2_times = [lemma_d2_time(float(a.max()), log_P=float(one), kappa=KAPPA) for one in of.log_P]
    early = runs.times <= np.array(d2_times)[:, None]
    first = np.zeros((len(W), d))
    for n, i in np.ndindex(first.shape):
        first[n, i] = lemma_d3_time(float(start[n, 0, i, i]), float(a[i]), log_phase=float(phase[n]), kappa=KAPPA)
    floor = start + 2 * pairs * t / KAPPA
    flipped = (W * W[:, :1] < 0) & (np.abs(W) > slack)
    d2 = np.maximum(np.maximum(floor - below, np.where(flipped, np.inf, -np.inf)), above - phase[:, None, None, None])
    d3 = np.maximum(np.einsum("nkii->nki", floor) - log_major, np.einsum("nkii->nki", above) - phase[:, None, None])
    bound = of.log_P + np.log(2 * float(a.max()) * d) + 2 * (of.log_beta + of.log_omega)
    return {
        "Corollary D.1": noise - bound,
        "D.1": _largest(above - start - 2 * KAPPA * pairs * t),
        "D.2": _largest(np.where(early[:, :, None, None], d2, -np.inf)),
        "D.3": _largest(np.where(runs.times[None, :, None] <= first[:, None], d3, -np.inf)),
        "D.4": _growth_excess(runs, major, log_major),
        "D.5": np.maximum(runs.highest - 1 - 2 / K, -runs.lowest * np.exp(-of.log_omega)),
        "Corollary D.2": runs.fastest - 1 / K,
        "D.6": _fall_below(major, 1 - 2 / K),
        "D.7": _suppression_excess(of, major, above),
        "D.8": _largest(np.where(off, above, -np.inf)) - phase,
    }


def _largest(values: np.ndarray) -> np.ndarray:
    """Return the largest value of every run; NaN, such as log(0 / 0), is ignored."""
    return np.max(np.where(np.isnan(values), -np.inf, values).reshape(len(values), -1), axis=1)


def _largest_noise(a: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return the largest |N_ij| of every run, (n,)."""
    off = ~np.eye(len(a), dtype=bool)
    weights = np.where(off[:, :, None] & off[:, None, :], a[:, None] + a + 2 * a[:, None, None], 0.0)
    return np.abs(np.einsum("ntki,ntkj,kij->ntij", W, W, weights)).max(axis=(1, 2, 3)) / 2


def _growth_excess(runs: Runs, major: np.ndarray, log_major: np.ndarray) -> np.ndarray:
    """Return the excess of Lemma D.4, from the first mark with w_ii above the phase to the last below lambda."""
    worst, of = np.full(len(major), -np.inf), runs.starts
    for n, i in np.ndindex(len(major), major.shape[2]):
        begun = np.flatnonzero(log_major[n, :, i] >= of.log_phase[n])
        if len(begun) and major[n, begun[0], i] < _LAMBDA:
            reached = np.flatnonzero(major[n, begun[0] :, i] >= _LAMBDA)
            during = slice(begun[0], begun[0] + reached[0] if len(reached) else None)
            passed = runs.times[during] - runs.times[begun[0]]
            floor = log_major[n, begun[0], i] + 4 * of.strengths[i] * (1 - _LAMBDA) * passed / KAPPA
            worst[n] = max(worst[n], float(np.max(floor - log_major[n, during, i])))
    return worst


def _fall_below(major: np.ndarray, level: float) -> np.ndarray:
    """Return the largest fall of w_ii below the level once it was there."""
    reached = np.maximum.accumulate(major, axis=1) >= level
    return _largest(np.where(reached, level - major, -np.inf))


def _suppression_excess(of: Starts, major: np.ndarray, log_entries: np.ndarray) -> np.ndarray:
    """Return the excess of Lemma D.7, from the first mark at which the stronger major entry is above 0.8."""
    worst = np.full(len(major), -np.inf)
    for n, i, j in np.ndindex(len(major), *log_entries.shape[2:]):
        begun = np.flatnonzero(major[n, :, i] > 0.8)
        if of.strengths[i] > of.strengths[j] and len(begun):
            after = log_entries[n, begun[0] :, i, j]
            if np.isfinite(after.max()):
                worst[n] = max(worst[n], float(after.max() - max(after[0], of.log_omega[n])))
    return worst
