"""Statistics behind the claims of the entry `figure_6`, with their uncertainties.

Terms are those of `training`, `curves` and `theory`. Means are over the models of all signals and
seeds, or over the seeds at one signal, with Student's interval.
"""

from collections.abc import Iterable

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.figure_6 import curves
from saddlescope.papers.concept_learning.figure_6.predictions import RESCALED
from saddlescope.reproduction.claim import Estimate

_STEP = ("signal", "seed", "step", "concept")
STRONG, WEAK = 0, -1  # the strongest colour signal and the weakest
_HALVES = slice(None, None, 2), slice(1, None, 2)  # of the images
_CORNERS = np.array([[0, 0], [0, 1], [1, 0]])  # of the classes trained on
_MIDDLE = 0.5
_GRAINY = 3  # times the step of the first record: until then samples show more noise than circle


def paths(run: xr.Dataset, estimate: str = "position", images: slice = slice(None)) -> np.ndarray:
    """Return C of the unseen class, (signal, seed, step, concept)."""
    return curves.unseen_positions(run, estimate, images).transpose(*_STEP).values


def step_numbers(run: xr.Dataset) -> np.ndarray:
    """Return the steps of the records, (step,)."""
    return run.step.values.astype(float)


def learned(run: xr.Dataset, estimate: str = "position") -> np.ndarray:
    """Return the steps at which the concepts are learned, (signal, seed, concept); infinite if never."""
    steps = step_numbers(run)
    return np.array([[curves.learned_at(path, steps) for path in signal] for signal in paths(run, estimate)])


def _learned_first(run: xr.Dataset, signal: int, concept: int, estimate: str = "position") -> np.ndarray:
    """Return for each seed if a concept is learned, and before the other."""
    times = learned(run, estimate)[signal]
    return times[:, concept] < times[:, 1 - concept]


def _resolved(values: Iterable[float], what: str, remark: str = "") -> Estimate:
    """Return the mean of the resolved values; unresolved where half or more are not."""
    given = np.array(list(values), float)
    known = given[np.isfinite(given)]
    if 2 * len(known) <= len(given):
        return Estimate.unresolved(f"Only {len(known)} of {len(given)} {what}.")
    resolved = f"{len(known)} of {len(given)} {what}" if len(known) < len(given) else ""
    return Estimate.mean(known, "; ".join(filter(None, (remark, resolved))))


def _average(values: np.ndarray) -> str:
    """Return the mean of the finite values as a string."""
    known = values[np.isfinite(values)]
    return f"{known.mean():.2g}" if len(known) else "nothing"


# Conditions: the models have learned, and the estimators can be believed.
def blank(run: xr.Dataset) -> Estimate:
    """Return the share of blank images at the end, all classes."""
    return Estimate.mean(run.blank.isel(step=-1).mean(("class", "image")).values.ravel())


def blank_unseen(run: xr.Dataset) -> Estimate:
    """Return the share of blank images of the unseen class, whose positions all else is about."""
    shares = run.blank.isel({"step": -1, "class": -1}).mean("image")
    return Estimate.mean(shares.values.ravel(), f"the largest of a model {float(shares.max()):.2g}")


def trained_classes(run: xr.Dataset) -> Estimate:
    """Return the distance from their corner, at the end, of the classes trained on."""
    found = curves.mean_positions(run).isel({"step": -1, "class": slice(0, 3)}).transpose(..., "class", "concept")
    distance = np.sqrt(((found.values - _CORNERS) ** 2).sum(axis=-1)).mean(axis=-1)
    return _resolved(distance.ravel(), "models show all three classes")


def classifier(run: xr.Dataset) -> Estimate:
    """Return the lowest accuracy of the classifier on true images held out."""
    return Estimate(float(run.accuracy.min()), remark="the lowest of the signals and concepts, an exact count")


def estimators(run: xr.Dataset) -> Estimate:
    """Return the share of coordinates that both put on the same side of 1/2, in the second half of training.

    Those between 1/4 and 3/4 are left out.
    """
    late = run.isel(step=run.step >= run.step[-1] / 2)
    clear = (abs(late.position - _MIDDLE) > 0.25) & ~late.blank
    same = ((late.position > _MIDDLE) == (late.probability > _MIDDLE)) & clear
    axes = ("step", "class", "image", "concept")
    shown = clear.sum(axes)
    return _resolved((same.sum(axes) / shown.where(shown > 0)).values.ravel(), "models show clear images")


# (a)
def count_first(run: xr.Dataset, *, signal: int, concept: int) -> Estimate:
    """Return the share of seeds that learn a concept first."""
    first = _learned_first(run, signal, concept)
    return Estimate(float(first.mean()), remark=f"{first.sum()} of {len(first)}, an exact count")


def reversal(run: xr.Dataset) -> Estimate:
    """Return the share of seeds whose order the signal reverses."""
    both = _learned_first(run, STRONG, 0) & _learned_first(run, WEAK, 1)
    return Estimate.share(int(both.sum()), len(both))


def classifier_order(run: xr.Dataset) -> Estimate:
    """Return the share of models with these orders by the classifier."""
    both = np.concatenate([_learned_first(run, STRONG, 0, "probability"), _learned_first(run, WEAK, 1, "probability")])
    return Estimate(float(both.mean()), remark=f"{both.sum()} of {len(both)} models, an exact count")


def speed(run: xr.Dataset) -> Estimate:
    """Return log2 of the steps until colour is learned, the weakest signal over the strongest."""
    times = np.minimum(learned(run)[..., 0], step_numbers(run)[-1])
    remark = "never learned counts as learned at the end"
    return _resolved(np.log2(times[WEAK] / times[STRONG]), "seeds", remark)


# (b)
def leads(run: xr.Dataset) -> np.ndarray:
    """Return the largest lead of colour over size, (signal, seed)."""
    return np.array([[curves.lead(path) for path in signal] for signal in paths(run)])


def lead(run: xr.Dataset, *, signal: int) -> Estimate:
    """Return the largest lead at one signal."""
    return _resolved(leads(run)[signal], "models learn a concept")


def rise_by_seeds(run: xr.Dataset, *, signal: int) -> Estimate:
    """Return the rise of each seed where the mean error of the other seeds rises most."""
    errors = curves.error(paths(run)[signal])
    if len(errors) < 2 or not np.isfinite(errors).all(axis=0).any():
        return Estimate.unresolved("Two seeds or more are needed, with records that all of them tell.")
    others = (errors.sum(axis=0) - errors) / (len(errors) - 1)
    return _resolved([curves.largest_rise(o).height(e) for o, e in zip(others, errors, strict=True)], "seeds")


def rises(run: xr.Dataset, start: float = 0.0) -> np.ndarray:
    """Return the rise of each model's error, (signal, seed), found on half of the images, read off the other half.

    Records of steps before `start` are left out.
    """
    later = step_numbers(run) >= start
    halves = [np.where(later, curves.error(paths(run, images=half)), np.nan) for half in _HALVES]
    found = np.full(halves[0].shape[:2], np.nan)
    for at in np.ndindex(found.shape):
        if all(np.isfinite(half[at]).any() for half in halves):
            both = zip(halves, halves[::-1], strict=True)
            found[at] = np.mean([curves.largest_rise(chosen[at]).height(judged[at]) for chosen, judged in both])
    return found


def rise_by_images(run: xr.Dataset) -> Estimate:
    """Return the rise of the error over all models."""
    return _resolved(rises(run).ravel(), "models")


def rise_of_circles(run: xr.Dataset) -> Estimate:
    """Return the rise from three times the first record's step on: before, the samples are still grainy noise."""
    return _resolved(rises(run, float(_GRAINY * run.attrs["first_record"])).ravel(), "models")


def rise_raw(run: xr.Dataset) -> Estimate:
    """Return the rise for raw weights, from dip to peak of the averaged ones: their own would be mostly jitter."""
    averaged, raw = (curves.error(paths(run, estimate)) for estimate in ("position", "raw_position"))
    found = np.full(raw.shape[:2], np.nan)
    for at in np.ndindex(found.shape):
        if np.isfinite(averaged[at]).any():
            found[at] = curves.largest_rise(averaged[at]).height(raw[at])
    return _resolved(found.ravel(), "models")


def memorizing(run: xr.Dataset) -> Estimate:
    """Return the share of models nearer to a class of one new value than to the unseen class, at the peak."""
    nearer = []
    for path in paths(run).reshape(-1, len(run.step), 2):
        if np.isfinite(path).any():
            there = path[curves.largest_rise(curves.error(path)).peak]
            nearer.append(min(there) < _MIDDLE < max(there))
    return Estimate.share(sum(nearer), len(nearer))


def transient(run: xr.Dataset) -> Estimate:
    """Return the error at the end over that at the dip before the largest rise."""
    ratios = []
    for errors in curves.error(paths(run)).reshape(-1, len(run.step)):
        known = np.isfinite(errors)
        ratios.append(errors[known][-1] / errors[curves.largest_rise(errors).dip] if known.any() else np.nan)
    return _resolved(np.array(ratios), "models")


# (c)
def slows(run: xr.Dataset) -> Estimate:
    """Return the last speed over the largest."""
    found = [curves.speeds(path, step_numbers(run))[1] for path in paths(run).reshape(-1, len(run.step), 2)]
    ratios = [speed[-1] / speed.max() if len(speed) > 1 else np.nan for speed in found]
    return _resolved(np.array(ratios), "models have speeds")


def speed_law(run: xr.Dataset) -> Estimate:
    """Return the gain per speed in log likelihood of log speed linear in the step over linear in its logarithm."""
    gains = []
    for path in paths(run).reshape(-1, len(run.step), 2):
        steps, speed = curves.speeds(path, step_numbers(run))
        start = int(np.argmax(speed)) if len(speed) else 0
        at, logs = steps[start:], np.log(np.maximum(speed[start:], 1e-12))
        gains.append(
            np.log(_residual_squares(np.log(at), logs) / _residual_squares(at, logs)) / 2 if len(at) >= 4 else np.nan
        )
    return _resolved(np.array(gains), "models have four speeds or more")


def _residual_squares(x: np.ndarray, y: np.ndarray) -> float:
    """Return the sum of squares that a line leaves."""
    line = np.polynomial.Polynomial.fit(x, y, 1)
    return float(np.sum((line(x) - y) ** 2))


def terminal_law(run: xr.Dataset) -> Estimate:
    """Return the gain per record in log likelihood of the exponential approach over the power.

    Both are fitted to half of the images and compared with the other half.
    """
    whole, halves = paths(run), [paths(run, images=half) for half in _HALVES]
    gains = []
    for k, m in np.ndindex(whole.shape[:2]):
        part = curves.terminal_phase(whole[k, m], step_numbers(run))
        if part is None:
            gains.append(np.nan)
            continue
        fits, held = [half[k, m, part.records, part.concept] for half in halves], []
        at = step_numbers(run)[part.records]
        for chosen, judged in (fits, fits[::-1]):
            left = {law: np.sum((curves.fit_approach(chosen, at, law).at(at) - judged) ** 2) for law in curves.LAWS}
            held.append(np.log(left["power"] / left["exponential"]) / 2)
        gains.append(np.mean(held))
    return _resolved(np.array(gains), "models reach the terminal phase")


def rates(run: xr.Dataset) -> np.ndarray:
    """Return rates of the exponential terminal approach, (signal, seed), in 1/step; NaN if not resolved."""
    whole, steps = paths(run), step_numbers(run)
    found = np.full(whole.shape[:2], np.nan)
    for k, m in np.ndindex(found.shape):
        part = curves.terminal_phase(whole[k, m], steps)
        if part is not None:
            fitted = curves.fit_approach(whole[k, m, part.records, part.concept], steps[part.records], "exponential")
            found[k, m] = fitted.rate if fitted.resolved else np.nan
    return found


# The comparison with the theory, fitted to the first signal: what it says of the others.
def predicted_order(run: xr.Dataset) -> Estimate:
    """Return the share of models with the predicted order, other signals."""
    measured, theory = learned(run)[1:], run.theory_learned.transpose("signal", "seed", "concept").values[1:]
    same = (measured[..., 0] < measured[..., 1]) == (theory[..., 0] < theory[..., 1])
    known = np.isfinite(measured).any(axis=-1) & np.isfinite(theory).any(axis=-1)
    if not known.any():
        return Estimate.unresolved("No model learns a concept.")
    return Estimate(float(same[known].mean()), remark=f"{same[known].sum()} of {known.sum()} models, an exact count")


def predicted_ratio(run: xr.Dataset) -> Estimate:
    """Return log2 of predicted over measured T_color / T_size."""
    measured, theory = learned(run)[1:], run.theory_learned.transpose("signal", "seed", "concept").values[1:]
    with np.errstate(invalid="ignore"):
        log = np.log2(theory[..., 0] / theory[..., 1]) - np.log2(measured[..., 0] / measured[..., 1])
    return _resolved(log.ravel(), "models learn both concepts")


def predicted_lead(run: xr.Dataset) -> Estimate:
    """Return predicted minus measured lead, other signals."""
    theory = run.theory_lead.transpose("signal", "seed").values[1:]
    measured = leads(run)[1:]
    return _resolved((theory - measured).ravel(), "models", f"measured {_average(measured)} in the mean")


def predicted_rise(run: xr.Dataset) -> Estimate:
    """Return predicted minus measured rise, of every signal: the fit to the first one does not aim at it."""
    theory, measured = run.theory_rise.transpose("signal", "seed").values, rises(run)
    return _resolved((theory - measured).ravel(), "models", f"predicted {_average(theory)} in the mean")


def predicted_rate(run: xr.Dataset, *, adam: bool) -> Estimate:
    """Return log2 of predicted over measured terminal rate."""
    theory = run.theory_rate.transpose("signal", "seed").values / (_relative(run)[:, None] if adam else 1.0)
    return _resolved(np.log2(theory / rates(run))[1:].ravel(), "models reach the terminal phase")


def _relative(run: xr.Dataset) -> np.ndarray:
    """Return a_1 + a_2 of each signal over that of the first."""
    total = run.strength.sum("concept").values
    return total / total[0]


def pace(run: xr.Dataset, *, adam: bool) -> Estimate:
    """Return log2 of the steps in a unit of time, by a signal's own fit over those expected from the first."""
    own = run.own_pace.transpose("signal", "seed").values
    return _resolved(np.log2(own / own[0] / (_relative(run)[:, None] if adam else 1.0))[1:].ravel(), "models")


def matching(run: xr.Dataset, *, adam: bool) -> Estimate:
    """Return the error with the signal's mu and sigma over that with the first signal's."""
    ratio = run.theory_error.sel(abstraction=RESCALED if adam else "two layers") / run.unmatched_error
    return _resolved(ratio.isel(signal=slice(1, None)).values.ravel(), "models")


def against(run: xr.Dataset, *, other: str) -> Estimate:
    """Return the error of the two-layer model over that of another abstraction, both fitted to the first signal."""
    ratio = run.theory_error.sel(abstraction="two layers") / run.theory_error.sel(abstraction=other)
    return _resolved(ratio.isel(signal=0).values.ravel(), "models")
