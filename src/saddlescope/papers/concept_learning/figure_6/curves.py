"""Numbers of the trajectory of the unseen class, for each curve and without smoothing.

    C           position of the generated images in concept coordinates: (0, 0) and (1, 1) are the class means of (red,
                big) and of (blue, small), the unseen class. Mean over the images that are not blank
    learned     a concept is learned at the step from which its coordinate stays above 3/4
    error       concept space MSE, |C - (1, 1)|^2 / 2
    lead        largest lead of colour over size once one of them is learned, negative where size leads: the bend of C
                toward the class with the new value of one concept alone
    rise        of the error, from a dip to a later peak. A largest rise is above 0 on any noisy curve, so it is chosen
                on one curve and read from another: other seeds, or the other half of images and records

Curves are arrays (record, ...) over the steps of the records; NaN where half of the images or more are blank, and
before the first record at which samples are more than noise.
"""

from itertools import product
from typing import Literal, NamedTuple, get_args

import numpy as np
import xarray as xr
from jaxtyping import Float

LEVEL = 0.75
"""1/3 is the mean of the trained classes, 1 the goal."""

HALVES = slice(None, None, 2), slice(1, None, 2)
"""Two halves of the generated images."""

_HALF = 0.5  # of the coordinate of the slower concept: from there on its approach to the end is fitted

_OCTAVE = 1.25  # a speed is computed between records whose steps differ by this factor or more

_RATES = 400  # rates and powers tried in a fit

_FEWEST = 5  # records of a fit of three numbers

Law = Literal["exponential", "power"]

LAWS: tuple[Law, ...] = get_args(Law)

Curve = Float[np.ndarray, " record"]

Path = Float[np.ndarray, "record concept"]


def unseen_positions(run: xr.Dataset, estimate: str = "position", images: slice = slice(None)) -> xr.DataArray:
    """Return C of the unseen class, (signal, seed, step, concept), over some of the images.

    Args:
        run: the stored run.
        estimate: position, by the direct estimator; raw_position, the same for raw weights, without averaging; or
            probability, by the classifier.
        images: slice of the generated images.
    """
    found = mean_positions(run, estimate, images)
    found = found.isel(unseen=0) if estimate == "raw_position" else found.isel({"class": -1})
    return found.transpose("signal", "seed", "step", "concept")


def mean_positions(run: xr.Dataset, estimate: str = "position", images: slice = slice(None)) -> xr.DataArray:
    """Return C of all classes, (signal, seed, step, class, concept)."""
    found = run[estimate].isel(image=images)
    shown = found.notnull().all("concept") if estimate == "raw_position" else ~run.blank.isel(image=images)
    known = (shown.mean("image") > _HALF) & (run.step >= run.attrs["first_record"])
    return found.where(shown).mean("image").where(known)


def error(paths: Float[np.ndarray, "*runs record concept"]) -> Float[np.ndarray, "*runs record"]:
    """Return the concept space MSE."""
    return np.mean((paths - 1) ** 2, axis=-1)


def learned_at(path: Path, steps: Curve, level: float = LEVEL) -> Float[np.ndarray, " concept"]:
    """Return the step at which each coordinate last passes a level, linear in the logarithm of steps.

    Infinite where it ends below it; the first record's step where it is above it always.
    """
    known = np.isfinite(path).all(axis=1)
    at, x = np.log(steps[known]), path[known]
    times = np.full(path.shape[1], np.inf)
    for k, j in enumerate(_final_passings(x, level)):
        if j < len(x):
            i = max(j - 1, 0)
            share = (level - x[i, k]) / (x[j, k] - x[i, k]) if j else 0.0
            times[k] = np.exp(at[i] + share * (at[j] - at[i]))
    return times


def lead(path: Path) -> float:
    """Return the largest lead since one concept is learned: positive where colour is ahead, negative where size is.

    NaN where none is learned. Before, both coordinates come from images that show neither concept.
    """
    x = path[np.isfinite(path).all(axis=1)]
    start = min(_final_passings(x, LEVEL))
    ahead = x[start:, 0] - x[start:, 1]
    return float(ahead[np.argmax(np.abs(ahead))]) if len(ahead) else np.nan


def _final_passings(x: Path, level: float) -> list[int]:
    """Return the first record from which each coordinate stays at a level or above, else the number of records."""
    return [int(below[-1]) + 1 if len(below := np.flatnonzero(values < level)) else 0 for values in x.T]


class Rise(NamedTuple):
    """Rise of a curve between two of its records, dip and peak, before it has fallen for good."""

    dip: int
    peak: int


def largest_rise(curve: Curve) -> Rise:
    """Return the largest rise of a curve above its lowest value before; without a rise, the least fall."""
    known = np.where(np.isfinite(curve), curve, np.inf)
    lowest = np.minimum.accumulate(known)[:-1]
    with np.errstate(invalid="ignore"):
        heights = np.where(np.isfinite(curve[1:]) & np.isfinite(lowest), curve[1:] - lowest, -np.inf)
    peak = int(np.argmax(heights)) + 1
    return Rise(int(np.argmin(known[:peak])), peak)


def speeds(path: Path, steps: Curve) -> tuple[Float[np.ndarray, " speed"], Float[np.ndarray, " speed"]]:
    """Return steps and |dC/dstep| by finite differences, between records a factor of 1.25 apart or more.

    Noise of C adds to every speed; over a longer time it adds less. The step is the geometric mean of the two.
    """
    chosen = [0] if np.isfinite(path[0]).all() else []
    for k in range(len(steps)):
        if np.isfinite(path[k]).all() and (not chosen or steps[k] >= _OCTAVE * steps[chosen[-1]]):
            chosen.append(k)
    at, x = steps[chosen], path[chosen]
    moved = np.sqrt(np.sum(np.diff(x, axis=0) ** 2, axis=1))
    return np.sqrt(at[1:] * at[:-1]), moved / np.diff(at)


class Approach(NamedTuple):
    """Fitted curve end - b g(step), g = exp(-rate step) or step^-rate: its slope falls as g' does.

    Attributes:
        law: the kind of g.
        rate: in 1/step, or the power.
        end: limit of the curve.
        gap: b.
        resolved: the best rate is not at an end of those tried, from one e-fold over all records on; the curve rises.
    """

    law: Law
    rate: float
    end: float
    gap: float
    resolved: bool

    def at(self, steps: Curve) -> Curve:
        """Return the fitted curve."""
        return self.end - self.gap * _decay(self.law, self.rate, steps)


def fit_approach(curve: Curve, steps: Curve, law: Law) -> Approach:
    """Fit a curve by least squares, end and gap exactly and the rate on a fine grid."""
    span = steps[-1] - steps[0]
    rates = np.geomspace(1 / span, 30 / span, _RATES) if law == "exponential" else np.geomspace(0.1, 10.0, _RATES)
    decays = _decay(law, rates[:, None], steps)
    x, y = decays - decays.mean(axis=1, keepdims=True), curve - curve.mean()
    slopes = (x @ y) / np.sum(x**2, axis=1)
    best = int(np.argmin(np.sum((slopes[:, None] * x - y) ** 2, axis=1)))
    gap = -float(slopes[best])
    end = float(curve.mean()) + gap * float(decays[best].mean())
    return Approach(law, float(rates[best]), end, gap, 0 < best < _RATES - 1 and gap > 0)


def _decay(law: str, rate: float | np.ndarray, steps: Curve) -> np.ndarray:
    return np.exp(-rate * (steps - steps[0])) if law == "exponential" else (steps / steps[0]) ** -rate


class Terminal(NamedTuple):
    """Terminal phase of a trajectory: the slower concept, and the records from its 1/2 on."""

    concept: int
    records: slice


def terminal_phase(path: Path, steps: Curve) -> Terminal | None:
    """Return the records from the slower concept's last passing of 1/2 to the end; None where they are too few."""
    times = learned_at(path, steps, _HALF)
    slower = int(np.argmax(times))
    if not np.isfinite(times[slower]):
        return None
    records = slice(int(np.searchsorted(steps, times[slower])), len(steps))
    curve = path[records, slower]
    return Terminal(slower, records) if len(curve) >= _FEWEST and np.isfinite(curve).all() else None


def paths(run: xr.Dataset, estimate: str = "position", images: slice = slice(None)) -> np.ndarray:
    """Return C of the unseen class, (signal, seed, step, concept)."""
    return unseen_positions(run, estimate, images).values


def step_numbers(run: xr.Dataset) -> np.ndarray:
    """Return the steps of the records, (step,)."""
    return run.step.values.astype(float)


def learned(run: xr.Dataset, estimate: str = "position") -> np.ndarray:
    """Return the steps at which the concepts are learned, (signal, seed, concept); infinite if never."""
    return np.array([[learned_at(path, step_numbers(run)) for path in signal] for signal in paths(run, estimate)])


def leads(run: xr.Dataset) -> np.ndarray:
    """Return the largest lead of colour over size, (signal, seed)."""
    return np.array([[lead(path) for path in signal] for signal in paths(run)])


def rises(run: xr.Dataset) -> np.ndarray:
    """Return the rise of each model's error, (signal, seed), averaged over four splits.

    Dip and peak are found on half of the images and every other record; the rise is read from the other images and
    records, linearly in the logarithm of steps. So neither noise of the images nor jitter of the weights from record to
    record counts.
    """
    at, number = np.log(step_numbers(run)), np.arange(run.sizes["step"])
    halves = [error(paths(run, images=half)) for half in HALVES]
    found = np.full(halves[0].shape[:2], np.nan)
    for model in np.ndindex(found.shape):
        heights = []
        for parity, (one, other) in product((0, 1), (halves, halves[::-1])):
            known = np.isfinite(one[model]) & np.isfinite(other[model])
            mine, theirs = known & (number % 2 == parity), known & (number % 2 != parity)
            if mine.sum() > 1 and theirs.any():
                dip, peak = largest_rise(one[model][mine])
                heights.append(np.diff(np.interp(at[mine][[dip, peak]], at[theirs], other[model][theirs]))[0])
        found[model] = np.mean(heights) if heights else np.nan
    return found
