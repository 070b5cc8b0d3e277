"""Comparisons of equation 4.3 with automatic differentiation, closed forms and gradient flow."""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

if TYPE_CHECKING:
    from saddlescope.flow import SymmetricPath

_SHAPES = ((2, 2), (3, 1), (3, 3), (4, 8), (6, 4))  # d, d' of the random weights

_NODES = 12  # of Gauss's formula in each of _PANELS pieces of time

_PANELS = 240


def autodiff_errors(weights: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return relative distances of dW/dt from 2 (G - S - N) and from G - S - N, over all shapes, (weights,)."""
    import jax

    from saddlescope.models import PopulationLoss
    from saddlescope.theory.concepts import update_terms

    twice, once = [], []
    for d, width in _SHAPES:
        a = rng.uniform(0.1, 3.0, d)
        U = rng.standard_normal((weights, d, width))
        with jax.enable_x64(True):
            slope = jax.jit(jax.vmap(jax.grad(PopulationLoss(np.diag(a)).symmetric)))
            gradients = np.asarray(slope(U))
        for one, gradient in zip(U, gradients, strict=True):
            velocity = -(gradient @ one.T + one @ gradient.T)
            terms = update_terms(a, one @ one.T)
            size = np.abs(velocity).max()
            twice.append(np.abs(velocity - terms.velocity).max() / size)
            once.append(np.abs(velocity - terms.velocity / 2).max() / size)
    return np.array(twice), np.array(once)


def closed_form_errors(a: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """Return the largest difference of an entry of W(t) from each closed form."""
    from saddlescope.flow import symmetric_flows
    from saddlescope.theory.concepts import diagonal_map, proportional_map, rank_one_map

    d, times = len(a), np.linspace(0.0, 20.0, 41)
    vector, sizes, square = 0.2 * rng.standard_normal(d), rng.uniform(0.01, 0.5, d), 0.2 * rng.standard_normal((d, d))

    def flow(strengths: np.ndarray, start: np.ndarray) -> np.ndarray:
        return symmetric_flows(strengths, start[None], test_point=x, until=20.0, record=times, tolerance=1e-11).W[0]

    v = rank_one_map(a, vector, times)
    diagonal = diagonal_map(a, sizes**2, times)[:, :, None] * np.eye(d)
    proportional = proportional_map(0.7, square @ square.T, times)
    return {
        "rank_one_error": float(np.abs(flow(a, vector[:, None]) - v[:, :, None] * v[:, None, :]).max()),
        "diagonal_error": float(np.abs(flow(a, np.diag(sizes)) - diagonal).max()),
        "proportional_error": float(np.abs(flow(np.full(d, 0.7), square) - proportional).max()),
    }


def stage_times(a: np.ndarray, x: np.ndarray, starts: np.ndarray, until: float) -> xr.Dataset:
    """Return stage times of each start by flow and by prediction, with N and without, and the law's errors."""
    from saddlescope.flow import symmetric_flows, symmetric_path
    from saddlescope.theory.concepts import concept_stages

    found, schur, bare, laws, shares = [], [], [], [], []
    for start in starts:
        path = symmetric_path(a, start, until=until, tolerance=1e-11)
        found.append([path.crossings(k, k, 0.5).max(initial=0.0) for k in range(len(a))])
        schur.append(concept_stages(a, start).times)
        bare.append(np.log(1 / np.diag(start @ start.T) - 1) / (4 * a))
        W = path(np.linspace(0.0, until, 2000))
        weights = a + a[:, None]
        noise = np.einsum("tki,ki->ti", W**2, weights) - np.einsum("tii,ii->ti", W**2, weights)
        shares.append((noise / (2 * a * np.einsum("tii->ti", W))).max(axis=0))
        laws.append(_log_det_error(a, path, start, until))
    flows = symmetric_flows(a, starts, test_point=x, until=until, tolerance=1e-11)
    return xr.Dataset(
        {
            "found_time": (("start", "concept"), np.array(found)),
            "schur_time": (("start", "concept"), np.array(schur)),
            "bare_time": (("start", "concept"), np.array(bare), {"long_name": "without noise"}),
            "noise_share": (("start", "concept"), np.array(shares), {"long_name": "largest N_kk / G_kk"}),
            "drift": ("start", flows.drifts),
            "log_det_error": ("start", np.array(laws)),
        }
    )


def _log_det_error(a: np.ndarray, path: "SymmetricPath", start: np.ndarray, until: float) -> float:
    """Return the error of the growth of log det W against the integral of 4 tr(A (1 - W)), by Gauss's formula.

    Between the start, whose determinant follows from its factor, and the end, where all is learned and W is well
    conditioned.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    edges = np.linspace(0.0, until, _PANELS + 1)
    half = np.diff(edges)[:, None] / 2
    W = path((edges[:-1, None] + half * (1 + nodes)).ravel())
    rates = 4 * np.einsum("i,tii->t", a, np.eye(len(a)) - W).reshape(_PANELS, _NODES)
    begin = 2 * np.linalg.slogdet(start)[1]
    end = np.linalg.slogdet(path(until)[0])[1]
    return float(abs(end - begin - np.sum(rates * half * weights)))


def term_curves(a: np.ndarray, start: np.ndarray, until: float) -> xr.Dataset:
    """Return the three terms of the weakest concept's major entry against time, from one start."""
    from saddlescope.flow import symmetric_path
    from saddlescope.theory.concepts import update_terms

    times = np.linspace(0.0, until, 1500)
    weak = int(np.argmin(a))
    path = symmetric_path(a, start, until=until, tolerance=1e-11)
    terms = [update_terms(a, W) for W in path(times)]
    curves = {
        name: ("time", np.array([getattr(one, name)[weak, weak] for one in terms]))
        for name in ("growth", "suppression", "noise")
    }
    return xr.Dataset({**curves, "weakest": ("time", path(times)[:, weak, weak])}, coords={"time": times})
