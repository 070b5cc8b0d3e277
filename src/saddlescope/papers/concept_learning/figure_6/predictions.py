"""Predictions of the SIM theory at every signal, fitted to the diffusion model at the first one.

A fit for each seed, of the trajectory of the unseen class over all valid records. Terms are those of
`theory` and `curves`. There are two paces for the other signals:

    gradient flow   a unit of time has as many steps as at the first signal
    AdamW           steps are in proportion to a_1 + a_2: AdamW does not see how large gradients are, so that the a_k,
                    which are rates of gradient flow, can matter against each other alone
"""

from dataclasses import replace

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.figure_6 import curves
from saddlescope.papers.concept_learning.figure_6.theory import (
    ABSTRACTIONS,
    SCALES,
    Concepts,
    Family,
    Fitted,
    fit,
    predict_family,
)

_SEED = 0  # of the random starts

_STEP = ("signal", "seed", "step", "concept")

RESCALED = "two layers, AdamW's pace"
"""Label of the two-layer model at that pace, beside the abstractions."""


def predict_trajectories(run: xr.Dataset, *, starts: int) -> xr.Dataset:
    """Predict the trajectories of all signals by the theory.

    Args:
        run: result of `training.train`.
        starts: random starts of the two-layer models.

    Returns:
        Over (abstraction, signal, seed): `theory` (..., step, concept), C; `theory_error`, the root of the mean square
        of C, predicted minus measured; `pace`. Over (abstraction, seed): `initial_scale`. The abstractions are
        `ABSTRACTIONS` and `RESCALED`.

        Of two layers, over (signal, seed): `unmatched_error`, the same error of the trajectory of the first signal, as
        if mu and sigma did not matter; `own_pace`, the pace of a fit to the signal itself; `theory_learned` (...,
        concept), in steps; `theory_lead`; `theory_rise`, the largest rise of the error, mean over starts;
        `theory_rate`, of the terminal approach; these at the pace of gradient flow. Over (signal, concept): `strength`.
        NaN for a seed without valid records.
    """
    measured, steps = curves.unseen_positions(run).transpose(*_STEP).values, run.step.values.astype(float)
    concepts = [
        Concepts(mu=tuple(mu), sigma=tuple(sigma), overlap=float(overlap))
        for mu, sigma, overlap in zip(run.mu.values, run.sigma.values, run.overlap.values, strict=True)
    ]
    strengths = np.array([each.strengths for each in concepts])
    relative = strengths.sum(axis=1) / strengths[0].sum()
    kinds, shape = (*ABSTRACTIONS, RESCALED), measured.shape[:2]
    theory, scales = np.full((len(kinds), *measured.shape), np.nan), np.full((len(kinds), shape[1]), np.nan)
    errors, paces = np.full((len(kinds), *shape), np.nan), np.full((len(kinds), *shape), np.nan)
    numbers = {name: np.full(shape, np.nan) for name in ("unmatched_error", "own_pace", "lead", "rise", "rate")}
    learned = np.full((*shape, 2), np.nan)
    families = {each: [predict_family(of, each, starts=starts, seed=_SEED) for of in concepts] for each in ABSTRACTIONS}
    seen = np.asarray(np.isfinite(measured).any(axis=(2, 3)))
    fits = {
        (abstraction, m): fit(measured[0, m], steps, families[abstraction][0])
        for abstraction in ABSTRACTIONS
        for m in np.flatnonzero(seen[0])
    }
    for n, kind in enumerate(kinds):
        abstraction = "two layers" if kind == RESCALED else kind
        predicted = families[abstraction]
        for m in np.flatnonzero(seen[0]):
            first = fits[abstraction, m]
            scales[n, m] = SCALES[first.scale]
            for k in np.flatnonzero(seen[:, m]):
                fitted = replace(first, pace=first.pace * relative[k]) if kind == RESCALED else first
                paces[n, k, m] = fitted.pace
                theory[n, k, m] = predicted[k].at(fitted, steps).mean(axis=0)
                errors[n, k, m] = _error(theory[n, k, m], measured[k, m])
                if kind == "two layers":
                    numbers["unmatched_error"][k, m] = _error(theory[n, 0, m], measured[k, m])
                    own = fit(measured[k, m], steps, predicted[k]) if k else first
                    numbers["own_pace"][k, m] = own.pace
                    found = _path_numbers(predicted[k], fitted)
                    learned[k, m], numbers["lead"][k, m], numbers["rise"][k, m], numbers["rate"][k, m] = found
    seed = ("signal", "seed")
    return xr.Dataset(
        {
            "theory": (("abstraction", *_STEP), theory),
            "theory_error": (("abstraction", *seed), errors),
            "initial_scale": (("abstraction", "seed"), scales),
            "pace": (("abstraction", *seed), paces, {"units": "steps"}),
            "unmatched_error": (seed, numbers["unmatched_error"]),
            "own_pace": (seed, numbers["own_pace"], {"units": "steps"}),
            "theory_learned": ((*seed, "concept"), learned, {"units": "steps"}),
            "theory_lead": (seed, numbers["lead"]),
            "theory_rise": (seed, numbers["rise"]),
            "theory_rate": (seed, numbers["rate"], {"units": "1/step"}),
            "strength": (("signal", "concept"), strengths),
        },
        coords={"abstraction": list(kinds)},
    )


def _path_numbers(predicted: Family, fitted: Fitted) -> tuple[np.ndarray, float, float, float]:
    """Return when each concept is learned, the lead, the mean rise and the terminal rate, from the complete flow."""
    paths = predicted.paths[fitted.scale]
    path = paths.mean(axis=0)
    errors = [curves.error(each) for each in paths]
    rises = [max(curves.largest_rise(each).height(each), 0.0) for each in errors]
    learned = curves.learned_at(path[1:], predicted.times[1:] * fitted.pace)
    return learned, curves.lead(path), float(np.mean(rises)), float(predicted.rates.min() / fitted.pace)


def _error(path: np.ndarray, measured: np.ndarray) -> float:
    return float(np.sqrt(np.nanmean((path - measured) ** 2)))
