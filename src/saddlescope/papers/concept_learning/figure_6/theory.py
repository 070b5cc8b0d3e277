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

SCALES = np.geomspace(0.003, 0.6, 25)
"""Initial scales of a fit. At 0.4, w_kk starts at about 1/3, the position of a model that ignores its prompt."""

_TIMES = 160  # recorded times of a flow; each costs a step

_PACES = 200  # paces tried before the best is refined

_REFINED = 5  # initial scales whose pace is refined, the best by the paces tried

_SEED = 0  # of the random starts


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


@dataclass(frozen=True, eq=False)
class Family:
    """Predicted trajectories of the unseen class for one signal, for every initial scale.

    Attributes:
        times: of the true gradient flow, ascending from 0, (time,).
        paths: C at these, mean over starts, (scale, time, concept).
    """

    times: Float[np.ndarray, " time"]
    paths: Float[np.ndarray, "scale time concept"]

    def at(self, scale: int, pace: float, steps: Float[np.ndarray, " record"]) -> Float[np.ndarray, "record concept"]:
        """Return C after these numbers of steps, linear between the recorded times; beyond, the last value."""
        at = steps / pace
        return np.stack([np.interp(at, self.times, values) for values in self.paths[scale].T], axis=-1)

    def fit(self, measured: Float[np.ndarray, "record concept"], steps: Float[np.ndarray, " record"]) -> Fitted:
        """Fit the initial scale and the pace by least squares over the records, NaN left out.

        Records that grow geometrically weigh every octave of training alike.
        """
        from scipy.optimize import minimize_scalar

        def error(log_pace: float, scale: int) -> float:
            return root_mean_square(self.at(scale, np.exp(log_pace), steps) - measured)

        # Between a flow of which the records see the end alone, and one of which they see the very start alone.
        tried = np.linspace(np.log(steps[0] / self.times[-1]), np.log(steps[-1] / self.times[1]), _PACES)
        coarse = np.array([[error(log_pace, scale) for log_pace in tried] for scale in range(len(SCALES))])
        best = Fitted(0, 1.0, np.inf)
        for scale in np.argsort(coarse.min(axis=1))[:_REFINED].tolist():
            middle = int(np.argmin(coarse[scale]))
            bounds = tried[max(middle - 1, 0)], tried[min(middle + 1, _PACES - 1)]
            found = minimize_scalar(error, bounds=bounds, args=(scale,), method="bounded", options={"xatol": 1e-4})
            if found.fun < best.error:
                best = Fitted(scale, float(np.exp(found.x)), float(found.fun))
        return best


def predict_family(
    mu: Float[np.ndarray, "2"], sigma: Float[np.ndarray, "2"], layers: Layers, *, starts: int, seed: int
) -> Family:
    """Return the trajectories for these mu and sigma, at all initial scales.

    Args:
        mu: distance of the class means along each concept, in the images of one signal.
        sigma: spread within a class along the same directions.
        layers: of the network.
        starts: number of random U at each scale, for two layers.
        seed: seed of the starts.
    """
    from saddlescope.flow import symmetric_flows
    from saddlescope.models import StructuredIdentityTask

    a = StructuredIdentityTask(tuple(mu.tolist()), tuple(sigma.tolist()), 1, len(mu), origin=True).strengths
    rates = a if layers == "one" else 4 * a  # at which the distance from the end falls
    longest = (12 - 2 * np.log(SCALES[0])) / rates.min()  # e^(4 a t) exceeds the smallest start by far
    times = np.append(0.0, np.geomspace(0.01 / rates.max(), longest, _TIMES - 1))
    if layers == "one":
        return Family(times, 1 - (1 - SCALES)[:, None, None] * np.exp(-np.outer(times, rates)))
    U = np.random.default_rng(seed).standard_normal((starts, len(a), len(a)))  # the same at every scale
    scaled = np.concatenate([scale * U for scale in SCALES])
    flows = symmetric_flows(a, scaled, test_point=mu, until=float(times[-1]), tolerance=1e-6, record=times)
    paths = (flows.W @ mu / mu).reshape(len(SCALES), starts, len(times), len(mu))
    return Family(times, paths.mean(axis=1))


def root_mean_square(values: np.ndarray) -> float:
    """Return the root of the mean square, NaN left out."""
    return float(np.sqrt(np.nanmean(values**2)))


def predict_trajectories(run: xr.Dataset, *, starts: int) -> xr.Dataset:
    """Predict the trajectories of all signals by the theory.

    Args:
        run: trained models, with `position`, `blank`, `mu` and `sigma`.
        starts: number of random starts of the two-layer models.

    Returns:
        Over (layers, signal, seed): `theory` (..., step, concept), C; `theory_error`, the root of the mean square of C,
        predicted minus measured. Of two layers, over (signal, seed): `theory_learned` (..., concept), the steps to
        learn each concept. NaN for a seed without valid records.
    """
    of_step = ("signal", "seed", "step", "concept")
    measured, steps = curves.paths(run), curves.step_numbers(run)
    theory = np.full((len(LAYERS), *measured.shape), np.nan)
    errors, learned = np.full(theory.shape[:3], np.nan), np.full((*measured.shape[:2], measured.shape[-1]), np.nan)
    seen = np.asarray(np.isfinite(measured).any(axis=(2, 3)))
    for n, layers in enumerate(LAYERS):
        geometries = zip(run.mu.values, run.sigma.values, strict=True)
        families = [predict_family(mu, sigma, layers, starts=starts, seed=_SEED) for mu, sigma in geometries]
        for m in np.flatnonzero(seen[0]):
            fitted = families[0].fit(measured[0, m], steps)
            for k in np.flatnonzero(seen[:, m]):
                theory[n, k, m] = families[k].at(fitted.scale, fitted.pace, steps)
                errors[n, k, m] = root_mean_square(theory[n, k, m] - measured[k, m])
                if layers == "two":
                    times = families[k].times[1:] * fitted.pace
                    learned[k, m] = curves.learned_at(families[k].paths[fitted.scale, 1:], times)
    return xr.Dataset(
        {
            "theory": (("layers", *of_step), theory),
            "theory_error": (("layers", "signal", "seed"), errors),
            "theory_learned": (("signal", "seed", "concept"), learned, {"units": "steps"}),
        },
        coords={"layers": list(LAYERS)},
    )
