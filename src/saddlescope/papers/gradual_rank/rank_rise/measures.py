"""Measures of a rising rank, and of a rise above accumulated gradient noise; fixed before the runs.

    R(t)            rank of the update of one product of one head after t steps: stable rank, or energy rank (90 %,
                    interpolated)
    T               last step
    rise            R(T) - R(b), from one of three baselines b:
                    warm-up     end of the warm-up of the learning rate
                    transient   750/4680 of training, where the transient of shorter runs of this network had ended
                    minimum     the smallest R of the run itself. This rise is never negative; its bias is the rise
                                that the null has
    null            draws of gradient noise accumulated at the same initial weights; see `train.gradient_noise`

A rise is the median over all heads of all seeds, with its 95 % interval from the order. Each draw of the null
gives one such median. A rise counts if its interval is above zero, and above the 95 % prediction interval of the draws.

    departure       the first step at which a singular value has grown by 5 % of σ₁ (the largest of the whole run)
                    within the last tenth of training, and is above the 95 % prediction interval of the largest singular
                    value of the null at that step. Before training all are 0
    distinct rises  number of departures of one head that are more than a tenth of training after the last one counted
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from saddlescope.reproduction import Estimate
from saddlescope.reproduction.claim import inside

BASELINES = ("warm-up", "transient", "minimum")
RANKS = {"stable": "stable rank", "energy": "energy rank (90 %)"}
TRANSIENT = 750 / 4680
ENERGY = 0.9
LEAST_GROWTH = 0.05  # of sigma_1
WINDOW = 0.1  # of training


def ranks_of(spectra: xr.DataArray) -> xr.DataArray:
    """Return stable and energy rank of spectra along `index`, with the dimension `measure` first."""
    from saddlescope.measure import stable_rank

    values = spectra.transpose(..., "index")
    ranks = np.stack([stable_rank(values.values).astype(float), energy_rank(values.values.astype(float))])
    coords = {name: values[name] for name in values.dims[:-1] if name in values.coords}
    return xr.DataArray(ranks, coords | {"measure": list(RANKS)}, ("measure", *values.dims[:-1]))


def energy_rank(values: Float[np.ndarray, "... index"]) -> Float[np.ndarray, "..."]:
    """Return the number of singular values with 90 % of the energy, interpolated: 0.9 r for r equal ones.

    Whole numbers would tie in most heads, and a median of ties has no interval.
    """
    squares = values**2
    held = np.cumsum(squares, axis=-1)
    wanted = ENERGY * held[..., -1:]
    at = np.argmax(held >= wanted, axis=-1)[..., None]
    last = np.take_along_axis(squares, at, -1)
    before = np.take_along_axis(held, at, -1) - last
    part = np.divide(wanted - before, last, out=np.zeros_like(last), where=last > 0)
    return np.asarray((at + part)[..., 0])


def upper_level(draws: Float[np.ndarray, "draws ..."]) -> Float[np.ndarray, "..."]:
    """Return the upper end of the 95 % prediction interval of one more draw."""
    from scipy.stats import t

    n = len(draws)
    return np.asarray(draws.mean(axis=0) + t.ppf(0.975, n - 1) * (1 + 1 / n) ** 0.5 * draws.std(axis=0, ddof=1))


def departures(
    steps: Float[np.ndarray, " records"],
    values: Float[np.ndarray, "records ... index"],
    level: Float[np.ndarray, "records ..."],
) -> Float[np.ndarray, "... index"]:
    """Return the step of departure of each singular value, NaN for those that stay in the noise.

    Args:
        steps: numbers of steps of the records.
        values: singular values of updates.
        level: of the null, below which singular values are noise.
    """
    steps, values = np.concatenate([[0], steps]), np.concatenate([np.zeros_like(values[:1]), values])
    least = LEAST_GROWTH * values[..., :1].max(axis=0)
    found = np.full(values.shape[1:], np.nan)
    for now in range(1, len(steps)):
        since = np.searchsorted(steps, steps[now] - WINDOW * steps[-1])
        grown = values[now] - values[since : now + 1].min(axis=0)
        leaves = np.isnan(found) & (grown >= least) & (values[now] > level[now - 1, ..., None]) & (least > 0)
        found[leaves] = steps[now]
    return found


def distinct_rises(found: Float[np.ndarray, "... index"], last_step: float) -> Float[np.ndarray, "..."]:
    """Return the number of departures that are more than a tenth of training after the last one counted."""
    counts, last = np.zeros(found.shape[:-1]), np.full(found.shape[:-1], -np.inf)
    for k in range(found.shape[-1]):
        step = np.sort(found, axis=-1)[..., k]  # NaN last
        new = step > last + WINDOW * last_step
        counts, last = counts + new, np.where(new, step, last)
    return np.asarray(counts)


def rises(rank: xr.DataArray, baseline: str, warmup: int) -> xr.DataArray:
    """Return the last rank minus that of a baseline."""
    if baseline == "minimum":
        return rank.isel(step=-1) - rank.min("step")
    at = warmup if baseline == "warm-up" else TRANSIENT * float(rank.step[-1])
    return rank.isel(step=-1) - rank.sel(step=at, method="nearest")


def median_above_noise(rise: xr.DataArray, null: xr.DataArray) -> Estimate:
    """Return the median rise minus the level that it must exceed: 0, and the null's prediction interval.

    Args:
        rise: of all heads of all seeds.
        null: the same with the dimension draw.
    """
    median = Estimate.median(rise.values)
    of_draws = np.median(null.transpose("draw", ...).values.reshape(null.sizes["draw"], -1), axis=1)
    excess = median.value - max(0.0, float(upper_level(of_draws)))
    return Estimate(excess, median.uncertainty if excess else np.inf, n=median.n)  # a tie at the bound decides nothing


def cases_left_out(rank: xr.DataArray) -> Iterator[tuple[str, dict[str, Bool[np.ndarray, " kept"]]]]:
    """Yield the names and selections of all cases: all seeds and layers, and each seed and each layer left out."""
    yield "nothing", {}
    for dim in ("seed", "layer"):
        for value in rank[dim].values if rank.sizes[dim] > 1 else ():
            yield f"{dim} {value}", {dim: rank[dim].values != value}


def rise_above_noise(rank: xr.DataArray, null: xr.DataArray, warmup: int) -> dict[tuple[str, str], Estimate]:
    """Return the rise above noise for each baseline and each case of `cases_left_out`.

    Args:
        rank: of one measure and product, with the dimensions seed, step, layer and head.
        null: the same with the dimension draw.
        warmup: steps of the warm-up.
    """
    found = {}
    for baseline in BASELINES:
        rise, of_null = rises(rank, baseline, warmup), rises(null, baseline, warmup)
        for name, kept in cases_left_out(rank):
            found[baseline, name] = median_above_noise(rise.isel(kept), of_null.isel(kept))
    return found


def agreed(found: dict[tuple[str, str], Estimate]) -> Estimate:
    """Return the estimate of the case nearest to the bound; undecided unless all cases have the same outcome."""
    words = {True: "above", False: "not above", None: "undecided"}
    sides = {case: words[inside(one, 0.0, np.inf)] for case, one in found.items()}
    nearest = min(found, key=lambda case: abs(found[case].value) - found[case].uncertainty)
    if len(set(sides.values())) == 1 and "undecided" not in sides.values():
        remark = f"The case nearest to the bound: baseline {nearest[0]}, {nearest[1]} left out."
        return replace(found[nearest], remark=remark)
    counts = ", ".join(
        f"{word} in {len(cases)} (such as baseline {cases[0][0]}, {cases[0][1]} left out)"
        for word in ("above", "not above", "undecided")
        if (cases := [case for case, side in sides.items() if side == word])
    )
    first = next(iter(found.values()))
    return Estimate(first.value, np.inf, f"Of {len(found)} cases, {counts}.", first.n)
