"""Trajectories of the SIM theory for a diffusion model: linear networks at the images' mu and sigma.

    mu, sigma   of the images, for each concept: distance of the class means, and spread within a class along the same
                direction (`concept_geometry` measures them)
    a_k         sigma_k^2 + mu_k^2 / 3: there are three trained classes, one of them at the origin
    C           the unseen class in concept coordinates, C_k = f(x^)_k / mu_k: from about (0, 0) to (1, 1)
    pace        steps of the optimiser per unit of time

The initial scale and the pace are fitted, for each seed, to the trajectory of the unseen class at the first signal. For
any other signal the trajectory follows from mu and sigma alone. There are three abstractions:

    two layers      the symmetric model of section 4.2, the mean over random starts of a square U; the scale is the
                    standard deviation of its entries
    overlapping     the same with the directions of the two concepts as in the images, where they are not orthogonal: A
                    has off-diagonal entries, which the SIM task leaves out
    one layer       Theorem 4.1, from W0 = scale times the identity

and two paces for the other signals:

    gradient flow   the same as at the first signal
    AdamW           in proportion to a_1 + a_2: AdamW is insensitive to the size of gradients, so that of the a_k, which
                    are rates of gradient flow, only the ratio can matter
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import xarray as xr
from jaxtyping import Float

from saddlescope.papers.concept_learning.figure_6 import curves

Abstraction = Literal["two layers", "overlapping", "one layer"]

ABSTRACTIONS: tuple[Abstraction, ...] = get_args(Abstraction)

RESCALED = "two layers, AdamW's pace"
"""Label of the two-layer model at AdamW's pace, beside the abstractions."""

SCALES = tuple(float(scale) for scale in np.geomspace(0.003, 0.6, 25))
"""Initial scales of a fit. At 0.4, w_kk starts at about 1/3, the position of a model that ignores its prompt."""

_TIMES = 160  # recorded times of a flow; each costs a step

_PACES = 200  # paces tried before the best is refined

_REFINED = 5  # initial scales whose pace is refined, the best by the paces tried

_SEED = 0  # of the random starts


@dataclass(frozen=True, kw_only=True)
class Concepts:
    """mu and sigma of the images of one signal, a number for each of two concepts.

    Attributes:
        mu, sigma: see the module.
        overlap: cosine of the angle between the directions of the concepts.
    """

    mu: tuple[float, float]
    sigma: tuple[float, float]
    overlap: float = 0.0

    @property
    def strengths(self) -> Float[np.ndarray, "2"]:
        """Return a_k of data with a cluster at the origin."""
        from saddlescope.models import StructuredIdentityTask

        return StructuredIdentityTask(self.mu, self.sigma, 1, len(self.mu), origin=True).strengths

    @property
    def directions(self) -> Float[np.ndarray, "2 2"]:
        """Return unit vectors of the concepts as columns, in a plane."""
        return np.array([[1.0, self.overlap], [0.0, np.sqrt(1 - self.overlap**2)]])

    @property
    def second_moment(self) -> Float[np.ndarray, "2 2"]:
        """Return A, with the directions of the images."""
        return (self.directions * self.strengths) @ self.directions.T


@dataclass(frozen=True, eq=False)
class Family:
    """Predicted trajectories of the unseen class for one signal, for every initial scale.

    Attributes:
        times: of the true gradient flow, ascending from 0, (time,).
        paths: C at these, (scale, start, time, concept); one layer has one start.
        rates: at which the distance from the end falls: 4 a_k for two layers and a_k for one, with the eigenvalues of
            A for a_k where it is not diagonal, (concept,).
    """

    times: Float[np.ndarray, " time"]
    paths: Float[np.ndarray, "scale start time concept"]
    rates: Float[np.ndarray, " concept"]

    def at(self, fitted: "Fitted", steps: Float[np.ndarray, " record"]) -> Float[np.ndarray, "start record concept"]:
        """Return C after these numbers of steps, from every start."""
        return _interpolate(self.paths[fitted.scale], self.times, steps / fitted.pace)


@dataclass(frozen=True)
class Fitted:
    """Result of a fit to one signal.

    Attributes:
        scale: index into `SCALES`.
        pace: steps of the optimiser in a unit of time.
        error: root of the mean square of C, predicted minus measured, over records and concepts.
    """

    scale: int
    pace: float
    error: float


def predict_family(concepts: Concepts, abstraction: Abstraction, *, starts: int, seed: int) -> Family:
    """Return the trajectories for these mu and sigma, at all initial scales.

    Args:
        concepts: of the images; the overlap counts where the abstraction has one.
        abstraction: kind of the model.
        starts: number of random U at each scale, for two layers.
        seed: seed of the starts.
    """
    if abstraction != "overlapping":
        concepts = replace(concepts, overlap=0.0)
    moment = concepts.second_moment
    rates = np.linalg.eigvalsh(moment) if concepts.overlap else concepts.strengths
    rates = rates if abstraction == "one layer" else 4 * rates
    longest = (12 - 2 * np.log(SCALES[0])) / rates.min()  # e^(4 a t) exceeds the smallest start by far
    times = np.append(0.0, np.geomspace(0.01 / rates.max(), longest, _TIMES - 1))
    if abstraction == "one layer":
        left = (1 - np.array(SCALES))[:, None, None] * np.exp(-np.outer(times, rates))
        return Family(times, 1 - left[:, None], rates)
    return Family(times, _two_layers(concepts, times, starts, seed), rates)


def fit(
    measured: Float[np.ndarray, "record concept"], steps: Float[np.ndarray, " record"], predicted: Family
) -> Fitted:
    """Fit the initial scale and the pace by least squares over the records, NaN left out.

    The mean over starts is fitted. Records that grow geometrically weigh every octave of training alike.
    """
    from scipy.optimize import minimize_scalar

    paths = predicted.paths.mean(axis=1)

    def errors(log_paces: np.ndarray, scale: int) -> np.ndarray:
        at = steps / np.exp(log_paces)[:, None]
        found = _interpolate(paths[scale], predicted.times, at.ravel()).reshape(*at.shape, -1)
        return np.sqrt(np.nanmean((found - measured) ** 2, axis=(1, 2)))

    def error(log_pace: float, scale: int) -> float:
        return float(errors(np.array([log_pace]), scale)[0])

    # Between a flow of which the records see the end alone, and one of which they see the very start alone.
    tried = np.linspace(np.log(steps[0] / predicted.times[-1]), np.log(steps[-1] / predicted.times[1]), _PACES)
    coarse = np.stack([errors(tried, scale) for scale in range(len(SCALES))])
    best = Fitted(0, 1.0, np.inf)
    for scale in np.argsort(coarse.min(axis=1))[:_REFINED].tolist():
        middle = int(np.argmin(coarse[scale]))
        bounds = tried[max(middle - 1, 0)], tried[min(middle + 1, _PACES - 1)]
        found = minimize_scalar(error, bounds=bounds, args=(scale,), method="bounded", options={"xatol": 1e-4})
        if found.fun < best.error:
            best = Fitted(scale, float(np.exp(found.x)), float(found.fun))
    return best


def predict_trajectories(run: xr.Dataset, *, starts: int) -> xr.Dataset:
    """Predict the trajectories of all signals by the theory.

    Args:
        run: trained models, with `position`, `blank`, `mu`, `sigma` and `overlap`.
        starts: number of random starts of the two-layer models.

    Returns:
        Over (abstraction, signal, seed): `theory` (..., step, concept), C; `theory_error`, the root of the mean square
        of C, predicted minus measured; `pace`. Over (abstraction, seed): `initial_scale`. The abstractions are
        `ABSTRACTIONS` and `RESCALED`.

        Of two layers, over (signal, seed): `unmatched_error`, the same error of the trajectory of the first signal;
        `own_pace`, the pace of a fit to the signal itself; `theory_learned` (..., concept), in steps; `theory_lead`;
        `theory_rise`, the largest rise of the error, mean over starts; `theory_rate`, of the terminal approach; these
        at the pace of gradient flow. Over (signal, concept): `strength`, a_k. NaN for a seed without valid records.
    """
    of_step = ("signal", "seed", "step", "concept")
    measured, steps = curves.unseen_positions(run).transpose(*of_step).values, run.step.values.astype(float)
    concepts = [
        Concepts(mu=tuple(mu), sigma=tuple(sigma), overlap=float(overlap))
        for mu, sigma, overlap in zip(run.mu.values, run.sigma.values, run.overlap.values, strict=True)
    ]
    strengths = np.array([each.strengths for each in concepts])
    relative = strengths.sum(axis=1) / strengths[0].sum()
    families = {each: [predict_family(of, each, starts=starts, seed=_SEED) for of in concepts] for each in ABSTRACTIONS}
    kinds = (*ABSTRACTIONS, RESCALED)
    sizes = {"abstraction": len(kinds), **dict(zip(of_step, measured.shape, strict=True))}

    def empty(*dims: str, units: str = "") -> xr.Variable:
        return xr.Variable(dims, np.full([sizes[dim] for dim in dims], np.nan), {"units": units} if units else {})

    model = ("signal", "seed")
    found = {
        "theory": empty("abstraction", *of_step),
        "theory_error": empty("abstraction", *model),
        "initial_scale": empty("abstraction", "seed"),
        "pace": empty("abstraction", *model, units="steps"),
        "unmatched_error": empty(*model),
        "own_pace": empty(*model, units="steps"),
        "theory_learned": empty(*model, "concept", units="steps"),
        "theory_lead": empty(*model),
        "theory_rise": empty(*model),
        "theory_rate": empty(*model, units="1/step"),
    }
    seen = np.asarray(np.isfinite(measured).any(axis=(2, 3)))
    for m in np.flatnonzero(seen[0]):
        fits = {each: fit(measured[0, m], steps, families[each][0]) for each in ABSTRACTIONS}
        for n, kind in enumerate(kinds):
            abstraction = "two layers" if kind == RESCALED else kind
            first, predicted = fits[abstraction], families[abstraction]
            found["initial_scale"][n, m] = SCALES[first.scale]
            for k in np.flatnonzero(seen[:, m]):
                fitted = replace(first, pace=first.pace * relative[k]) if kind == RESCALED else first
                found["pace"][n, k, m] = fitted.pace
                found["theory"][n, k, m] = path = predicted[k].at(fitted, steps).mean(axis=0)
                found["theory_error"][n, k, m] = _error(path, measured[k, m])
                if kind == "two layers":
                    unmatched = predicted[0].at(first, steps).mean(axis=0)
                    numbers = {
                        "unmatched_error": _error(unmatched, measured[k, m]),
                        "own_pace": (fit(measured[k, m], steps, predicted[k]) if k else first).pace,
                        **_path_numbers(predicted[k], first),
                    }
                    for name, value in numbers.items():
                        found[name][k, m] = value
    coords = {"abstraction": list(kinds)}
    return xr.Dataset({**found, "strength": (("signal", "concept"), strengths)}, coords=coords)


def _path_numbers(predicted: Family, fitted: Fitted) -> dict[str, np.ndarray | float]:
    """Return the steps to learn each concept, the lead, the mean rise and the terminal rate, of the complete flow."""
    paths = predicted.paths[fitted.scale]
    path = paths.mean(axis=0)
    errors = [curves.error(each) for each in paths]
    rises = [max(curves.largest_rise(each).height(each), 0.0) for each in errors]
    return {
        "theory_learned": curves.learned_at(path[1:], predicted.times[1:] * fitted.pace),
        "theory_lead": curves.lead(path),
        "theory_rise": float(np.mean(rises)),
        "theory_rate": float(predicted.rates.min() / fitted.pace),
    }


def _error(path: np.ndarray, measured: np.ndarray) -> float:
    return float(np.sqrt(np.nanmean((path - measured) ** 2)))


def _two_layers(
    concepts: Concepts, times: Float[np.ndarray, " time"], starts: int, seed: int
) -> Float[np.ndarray, "scale start time concept"]:
    """Return C of the symmetric model, f(x^) in the basis of the means, from the same random starts at every scale."""
    from saddlescope.flow import symmetric_flows

    means = concepts.directions * np.array(concepts.mu)
    x = means.sum(axis=1)
    U = np.random.default_rng(seed).standard_normal((starts, *means.shape))
    scaled = np.concatenate([scale * U for scale in SCALES])
    until = float(times[-1])
    flows = symmetric_flows(concepts.second_moment, scaled, test_point=x, until=until, tolerance=1e-6, record=times)
    return (flows.W @ x @ np.linalg.inv(means).T).reshape(len(SCALES), starts, len(times), len(x))


def _interpolate(
    paths: Float[np.ndarray, "*start time concept"], times: Float[np.ndarray, " time"], at: Float[np.ndarray, " record"]
) -> Float[np.ndarray, "*start record concept"]:
    """Interpolate linearly between the recorded times; beyond, return the last value."""
    after = np.clip(np.searchsorted(times, at), 1, len(times) - 1)
    share = np.clip((at - times[after - 1]) / (times[after] - times[after - 1]), 0.0, 1.0)[:, None]
    return paths[..., after - 1, :] * (1 - share) + paths[..., after, :] * share
