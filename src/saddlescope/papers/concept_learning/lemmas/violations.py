"""Excesses of runs over the bounds of Lemmas D.1 to D.8.

    excess  the logarithm of what a lemma bounds over its bound, the largest of a run: positive where it is violated,
            and near 0 where it is tight; in lemmas about a number near 1 the difference instead, and about a sign
            the value over omega
    phase   P beta omega, below which an entry is in the initial phase (Definition D.1)

The statements are those of `saddlescope.theory.concepts`, in the time of gradient flow.
"""

from dataclasses import dataclass

import numpy as np

_ROUNDING = 1e-14  # of sqrt(w_ii w_jj): what rounding can make of w_ij, in runs in U and in W

_LAMBDA = 0.85  # of Lemma D.4, as in the proof of D.8


@dataclass(frozen=True, eq=False, kw_only=True)
class Runs:
    """Runs from n starts, with the constants of the assumptions for each.

    Attributes:
        strengths: a, (d,).
        times: of gradient flow, (k,).
        W: at these, (n, k, d, d).
        lowest, highest, fastest: least and largest w_ii, and its largest change in one step, of every run, (n,); the
            changes are 0 for a flow.
        log_P, log_omega, log_beta: of every start, (n,).
        kappa, K: the same for all.
    """

    strengths: np.ndarray
    times: np.ndarray
    W: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    fastest: np.ndarray
    log_P: np.ndarray  # noqa: N815 - the paper's P
    log_omega: np.ndarray
    log_beta: np.ndarray
    kappa: float
    K: float

    @property
    def log_phase(self) -> np.ndarray:
        """Return log(P beta omega), (n,)."""
        return self.log_P + self.log_beta + self.log_omega


def excesses(runs: Runs) -> dict[str, np.ndarray]:
    """Return the excess of every lemma on every run, (n,); -infinity where the lemma does not apply."""
    from saddlescope.theory.concepts import lemma_d2_time, lemma_d3_time

    a, t, W = runs.strengths, runs.times[:, None, None], runs.W
    pairs, kappa, phase = a[:, None] + a, runs.kappa, runs.log_phase
    top, d = float(a.max()), len(a)
    major = np.einsum("nkii->nki", W)
    sizes = np.sqrt(np.maximum(major, 0.0))
    slack = _ROUNDING * sizes[..., :, None] * sizes[..., None, :]
    off, eye = ~np.eye(d, dtype=bool), np.arange(d)
    with np.errstate(divide="ignore"):
        above = np.log(np.maximum(np.abs(W) - slack, 0.0))  # of |w_ij|, at least
        below = np.log(np.abs(W) + slack)  # and at most
        start = np.log(np.abs(W[:, :1]))
        noise = np.log(_largest_noise(a, np.sign(W) * np.maximum(np.abs(W) - slack, 0.0)))
        log_major = np.log(np.maximum(major, 0.0) + slack[..., range(len(a)), range(len(a))])
    early = runs.times <= np.array([lemma_d2_time(top, log_P=float(one), kappa=kappa) for one in runs.log_P])[:, None]
    first = np.array(
        [
            [lemma_d3_time(float(start[n, 0, i, i]), float(a[i]), log_phase=float(phase[n]), kappa=kappa) for i in eye]
            for n in range(len(W))
        ]
    )
    log_minor = np.where(off, above, -np.inf)
    floor = start + 2 * pairs * t / kappa
    initial = runs.times[None, :, None] <= first[:, None]
    flipped = (W * W[:, :1] < 0) & (np.abs(W) > slack)
    d2 = np.maximum(np.maximum(floor - below, np.where(flipped, np.inf, -np.inf)), above - phase[:, None, None, None])
    d3 = np.maximum(floor[..., eye, eye] - log_major, above[..., eye, eye] - phase[:, None, None])
    bound = runs.log_P + np.log(2 * top * d) + 2 * (runs.log_beta + runs.log_omega)
    return {
        "Corollary D.1": noise - bound,
        "D.1": _largest(above - start - 2 * kappa * pairs * t),
        "D.2": _largest(np.where(early[:, :, None, None], d2, -np.inf)),
        "D.3": _largest(np.where(initial, d3, -np.inf)),
        "D.4": _growth_excess(runs, major, log_major),
        "D.5": np.maximum(runs.highest - 1 - 2 / runs.K, -runs.lowest * np.exp(-runs.log_omega)),
        "Corollary D.2": runs.fastest - 1 / runs.K,
        "D.6": _fall_below(major, 1 - 2 / runs.K),
        "D.7": _suppression_excess(runs, major, above),
        "D.8": _largest(log_minor) - phase,
    }


def _largest(values: np.ndarray) -> np.ndarray:
    """Return the largest value of every run; NaN, such as log(0 / 0), is ignored."""
    return np.max(np.where(np.isnan(values), -np.inf, values).reshape(len(values), -1), axis=1)


def _largest_noise(a: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return the largest |N_ij| of every run, (n,)."""
    d = len(a)
    largest = np.zeros(len(W))
    for i in range(d):
        for j in range(i, d):
            others = [k for k in range(d) if k not in (i, j)]
            weights = a[i] + a[j] + 2 * a[others]
            noise = np.sum(W[:, :, others, i] * W[:, :, others, j] * weights, axis=-1) / 2
            largest = np.maximum(largest, np.abs(noise).max(axis=1))
    return largest


def _growth_excess(runs: Runs, major: np.ndarray, log_major: np.ndarray) -> np.ndarray:
    """Return the excess of Lemma D.4, from the first mark with w_ii above the phase to the last below lambda."""
    worst = np.full(len(major), -np.inf)
    for n, i in np.ndindex(len(major), major.shape[2]):
        begun = np.flatnonzero(log_major[n, :, i] >= runs.log_phase[n])
        if len(begun) and major[n, begun[0], i] < _LAMBDA:
            reached = np.flatnonzero(major[n, begun[0] :, i] >= _LAMBDA)
            during = slice(begun[0], begun[0] + reached[0] if len(reached) else None)
            passed = runs.times[during] - runs.times[begun[0]]
            floor = log_major[n, begun[0], i] + 4 * runs.strengths[i] * (1 - _LAMBDA) * passed / runs.kappa
            worst[n] = max(worst[n], float(np.max(floor - log_major[n, during, i])))
    return worst


def _fall_below(major: np.ndarray, level: float) -> np.ndarray:
    """Return the largest fall of w_ii below the level once it was there."""
    reached = np.maximum.accumulate(major, axis=1) >= level
    return _largest(np.where(reached, level - major, -np.inf))


def _suppression_excess(runs: Runs, major: np.ndarray, log_entries: np.ndarray) -> np.ndarray:
    """Return the excess of Lemma D.7, from the first mark at which the stronger major entry is above 0.8."""
    worst = np.full(len(major), -np.inf)
    for n, i, j in np.ndindex(len(major), *log_entries.shape[2:]):
        begun = np.flatnonzero(major[n, :, i] > 0.8)
        if runs.strengths[i] > runs.strengths[j] and len(begun):
            after = log_entries[n, begun[0] :, i, j]
            if np.isfinite(after.max()):
                worst[n] = max(worst[n], float(after.max() - max(after[0], runs.log_omega[n])))
    return worst
