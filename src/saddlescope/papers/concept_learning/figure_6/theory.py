"""Trajectories of the SIM theory for a diffusion model: linear networks at the images' mu and sigma.

    mu, sigma   of the images, for each concept: distance of the class means, and spread within a class along the same
                direction (`concept_geometry` measures them)
    a_k         sigma_k^2 + mu_k^2 / 3: there are three trained classes, one of them at the origin
    C           the unseen class in concept coordinates, C_k = f(x^)_k / mu_k: from about (0, 0) to (1, 1)
    pace        steps of the optimiser per unit of time

The initial scale and the pace are fitted, for each seed, to the trajectory of the unseen class at the first signal. For
any other signal the trajectory follows from mu and sigma alone. There are networks of

    two layers      the symmetric model of section 4.2, the mean over random starts of a square U; the scale is the
                    standard deviation of its entries
    one layer       Theorem 4.1, from W0 = scale times the identity
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import xarray as xr
from jaxtyping import Float

from saddlescope.papers.concept_learning.figure_6 import curves

Layers = Literal["two", "one"]

LAYERS: tuple[Layers, ...] = get_args(Layers)

SCALES = tuple(float(scale) for scale in np.geomspace(0.003, 0.6, 25))
"""Initial scales of a fit. At 0.4, w_kk starts at about 1/3, the position of a model that ignores its prompt."""

_TIMES = 160  # recorded times of a flow; each costs a step

_PACES = 200  # paces tried before the best is refined

_REFINED = 5  # initial scales whose pace is refined, the best by the paces tried

_SEED = 0  # of the random starts


@dataclass(frozen=True, kw_only=True)
class Concepts:
    """mu and sigma of the images of one signal, a number for each of two concepts."""

    mu: tuple[float, float]
    sigma: tuple[float, float]

    @property
    def strengths(self) -> Float[np.ndarray, "2"]:
        """Return a_k of data with a cluster at the origin."""
        from saddlescope.models import StructuredIdentityTask

        return StructuredIdentityTask(self.mu, self.sigma, 1, len(self.mu), origin=True).strengths


@dataclass(frozen=True, eq=False)
class Family:
    """Predicted trajectories of the unseen class for one signal, for every initial scale.

    Attributes:
        times: of the true gradient flow, ascending from 0, (time,).
        paths: C at these, (scale, start, time, concept); one layer has one start.
    """

    times: Float[np.ndarray, " time"]
    paths: Float[np.ndarray, "scale start time concept"]

    def at(self, fitted: "Fitted", steps: Float[np.ndarray, " record"]) -> Float[np.ndarray, "record concept"]:
        """Return C after these numbers of steps, mean over starts."""
        return _interpolate(self.paths[fitted.scale], self.times, steps / fitted.pace).mean(axis=0)


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


def predict_family(concepts: Concepts, layers: Layers, *, starts: int, seed: int) -> Family:
    """Return the trajectories for these mu and sigma, at all initial scales.

    Args:
        concepts: of the images.
        layers: of the network.
        starts: number of random U at each scale, for two layers.
        seed: seed of the starts.
    """
    from saddlescope.flow import symmetric_flows

    a, mu = concepts.strengths, np.array(concepts.mu)
    rates = a if layers == "one" else 4 * a  # at which the distance from the end falls
    longest = (12 - 2 * np.log(SCALES[0])) / rates.min()  # e^(4 a t) exceeds the smallest start by far
    times = np.append(0.0, np.geomspace(0.01 / rates.max(), longest, _TIMES - 1))
    if layers == "one":
        left = (1 - np.array(SCALES))[:, None, None] * np.exp(-np.outer(times, rates))
        return Family(times, 1 - left[:, None])
    U = np.random.default_rng(seed).standard_normal((starts, len(a), len(a)))  # the same at every scale
    scaled = np.concatenate([scale * U for scale in SCALES])
    flows = symmetric_flows(a, scaled, test_point=mu, until=float(times[-1]), tolerance=1e-6, record=times)
    return Family(times, (flows.W @ mu / mu).reshape(len(SCALES), starts, len(times), len(mu)))


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
        run: trained models, with `position`, `blank`, `mu` and `sigma`.
        starts: number of random starts of the two-layer models.

    Returns:
        Over (layers, signal, seed): `theory` (..., step, concept), C; `theory_error`, the root of the mean square of C,
        predicted minus measured. Of two layers, over (signal, seed): `unmatched_error`, the same error of the
        trajectory of the first signal; `theory_learned` (..., concept), the steps to learn each concept. NaN for a seed
        without valid records.
    """
    of_step = ("signal", "seed", "step", "concept")
    measured, steps = curves.unseen_positions(run).transpose(*of_step).values, run.step.values.astype(float)
    concepts = [
        Concepts(mu=tuple(mu), sigma=tuple(sigma)) for mu, sigma in zip(run.mu.values, run.sigma.values, strict=True)
    ]
    theory = np.full((len(LAYERS), *measured.shape), np.nan)
    errors, unmatched = np.full(theory.shape[:3], np.nan), np.full(measured.shape[:2], np.nan)
    learned = np.full((*measured.shape[:2], measured.shape[-1]), np.nan)
    seen = np.asarray(np.isfinite(measured).any(axis=(2, 3)))
    for n, layers in enumerate(LAYERS):
        families = [predict_family(of, layers, starts=starts, seed=_SEED) for of in concepts]
        for m in np.flatnonzero(seen[0]):
            fitted = fit(measured[0, m], steps, families[0])
            for k in np.flatnonzero(seen[:, m]):
                theory[n, k, m] = families[k].at(fitted, steps)
                errors[n, k, m] = _error(theory[n, k, m], measured[k, m])
                if layers == "two":
                    unmatched[k, m] = _error(families[0].at(fitted, steps), measured[k, m])
                    path, times = families[k].paths[fitted.scale].mean(axis=0), families[k].times
                    learned[k, m] = curves.learned_at(path[1:], times[1:] * fitted.pace)
    return xr.Dataset(
        {
            "theory": (("layers", *of_step), theory),
            "theory_error": (("layers", "signal", "seed"), errors),
            "unmatched_error": (("signal", "seed"), unmatched),
            "theory_learned": (("signal", "seed", "concept"), learned, {"units": "steps"}),
        },
        coords={"layers": list(LAYERS)},
    )


def _error(path: np.ndarray, measured: np.ndarray) -> float:
    return float(np.sqrt(np.nanmean((path - measured) ** 2)))


def _interpolate(
    paths: Float[np.ndarray, "*start time concept"], times: Float[np.ndarray, " time"], at: Float[np.ndarray, " record"]
) -> Float[np.ndarray, "*start record concept"]:
    """Interpolate linearly between the recorded times; beyond, return the last value."""
    after = np.clip(np.searchsorted(times, at), 1, len(times) - 1)
    share = np.clip((at - times[after - 1]) / (times[after] - times[after - 1]), 0.0, 1.0)[:, None]
    return paths[..., after - 1, :] * (1 - share) + paths[..., after, :] * share
