"""Effects of irrelevant entries, and entries of W from many starts beside the predictions."""

import numpy as np
import xarray as xr

_PHASE = 1e-3  # the largest entry of W at the end of the initial phase

LATER = 0.1  # scale of the start from which irrelevant entries are seen to act later


def concept_pairs(a: np.ndarray) -> list[tuple[int, int]]:
    """Return the minor entries as pairs, the weaker concept first."""
    return [(i, k) for i in range(len(a)) for k in range(len(a)) if a[i] < a[k]]


def irrelevant_effects(a: np.ndarray, x: np.ndarray, until: float, rng: np.random.Generator) -> tuple[float, float]:
    """Return changes of the output by other irrelevant entries: at once, and later along the flow.

    The second start has the same major and minor entries: what is added to the rows without a concept is orthogonal
    to all rows with one.
    """
    from saddlescope.flow import symmetric_path

    concepts = a > 0
    U = LATER * rng.standard_normal((len(a), len(a)))
    W = U @ U.T
    other = W + np.outer(~concepts, ~concepts) * rng.standard_normal(W.shape)
    rows = np.linalg.qr(U[concepts].T)[0]
    added = LATER * rng.standard_normal((int(np.sum(~concepts)), len(a)))
    V = U.copy()
    V[~concepts] += added - added @ rows @ rows.T
    times = np.linspace(0.0, until, 2000)
    one, two = (symmetric_path(a, start, until=until, tolerance=1e-11)(times) @ x for start in (U, V))
    return float(np.abs(W @ x - other @ x).max()), float(np.abs(one - two).max())


def follow_entries(a: np.ndarray, starts: np.ndarray, until: float) -> xr.Dataset:
    """Follow the entries of W from each start, beside the predictions of its Schur complements."""
    from saddlescope.flow import symmetric_path
    from saddlescope.measure import entry_histories
    from saddlescope.theory.concepts import concept_stages

    d = len(a)
    order = np.argsort(-a)
    pairs = concept_pairs(a)
    growth, rates, times, tops, heights, settled, suppressors = [], [], [], [], [], [], []
    predicted_times, predicted_tops, predicted_heights = [], [], []
    for start in starts:
        path = symmetric_path(a, start, until=until, tolerance=1e-11)
        histories, stages = entry_histories(path, a), concept_stages(a, start)
        leaves = min(float(path.crossings(k, k, _PHASE).min()) for k in range(d))
        W0, W = start @ start.T, path(leaves)[0]
        grown = np.exp(2 * (a[:, None] + a) * leaves)
        size = np.sqrt(np.diag(W0))
        growth.append(np.abs(W - W0 * grown) / (size[:, None] * size * grown))
        rates.append((np.log(np.abs(W / W0)) / leaves)[np.ix_(order, order)])
        times.append([histories[k, k].top for k in range(d)])
        minor = [histories[pair] for pair in pairs]
        tops.append([one.top for one in minor])
        heights.append([one.height for one in minor])
        settled.append([one.settles for one in minor])
        at = path([min(one.top, until) for one in minor])
        suppressors.append([at[n, strong, strong] for n, (_, strong) in enumerate(pairs)])
        predicted_times.append(stages.times)
        predicted_tops.append([stages.peak_times[pair] for pair in pairs])
        predicted_heights.append([stages.peaks[pair] for pair in pairs])
    return xr.Dataset(
        {
            "growth_error": (("start_of", "place", "other_place"), np.array(growth)),
            "rate": (("start_of", "place", "other_place"), np.array(rates), {"long_name": "strongest concept first"}),
            "major_time": (("start_of", "concept"), np.array(times)),
            "major_predicted": (("start_of", "concept"), np.array(predicted_times)),
            "peak_time": (("start_of", "pair"), np.array(tops)),
            "peak_predicted": (("start_of", "pair"), np.array(predicted_tops)),
            "peak_height": (("start_of", "pair"), np.array(heights)),
            "height_predicted": (("start_of", "pair"), np.array(predicted_heights)),
            "suppressed": (("start_of", "pair"), np.array(settled)),
            "suppressor": (("start_of", "pair"), np.array(suppressors), {"long_name": "w_kk at the peak of w_ik"}),
        }
    )
