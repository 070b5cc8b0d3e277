"""A coordinate that leaves: a proxy of two causes is learned first, and forgotten once the causes are learned.

The proxy's own effect is negative, if small: where it is 0, its gradient vanishes once the causes are learned, and
Assumption 4.3 fails.
"""

import numpy as np
import xarray as xr

from saddlescope.explore.toys.linear_staircase import (
    follow,
    largest_time_error,
    require_definite,
    staircase_figure,
)
from saddlescope.plot import Figures
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param
from saddlescope.reproduction.catalogue import TOYS

_NAMES = ("cause 1", "cause 2", "proxy")


class Params(EntryParams):
    """A third feature, the proxy, correlates with both causes of the target, but its own effect is negative.

    The network learns the proxy first, then the causes; the proxy leaves, and much later returns with its true sign.
    Theory: Boix-Adserà et al., arXiv:2306.07042.
    """

    correlation: float = param(0.66, "correlation of the proxy with each cause", ge=0.0, le=0.7)
    effect: float = param(-0.15, "own effect of the proxy", ge=-1.0, le=-0.01)
    weaker: float = param(0.8, "strength of cause 2 over that of cause 1", ge=0.2, le=0.95)
    log10_scale: float = param(-32.0, "initial scale: log₁₀ α", ge=-512.0, le=-0.3, scale="log")
    seed: int = param(0, "seed of the initial weights", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow two causes and their proxy."""
    c = params.correlation
    covariance = np.array([[1.0, 0.0, c], [0.0, 1.0, c], [c, c, 1.0]])
    require_definite(covariance, "Lower correlation.")
    teacher = np.array([1.0, params.weaker, params.effect])
    return follow(covariance, teacher, log10_scale=params.log10_scale, seed=params.seed, context=context, log_time=True)


claims = Claims(
    limits="A proxy that enters late or little is below the thresholds, a twentieth of cause 1 and its negative. "
    "Changes below a fifth of a coordinate's largest value are left out."
)

_ENTERED = 0.05  # of cause 1: a proxy above it has entered


@claims.extension(
    "fate",
    "The proxy enters, leaves and returns as Algorithm 1 predicts",
    "Algorithm 1 of Boix-Adserà et al.",
    high=0.0,
)
def _fates_that_differ(run: xr.Dataset) -> Estimate:
    """Number of the three events that differ between flow and prediction."""
    found, predicted = _fate(run.beta.values[:, 2]), _fate(run.stage_beta.values[:, 2])
    events = [name for name, happens in zip(("enters", "leaves", "returns"), predicted, strict=True) if happens]
    return Estimate.number(found != predicted, f"predicted: it {', '.join(events) or 'stays at 0'}", over="events")


def _fate(path: np.ndarray) -> np.ndarray:
    """Return whether the proxy becomes positive, whether it is then forgotten, and whether it becomes negative."""
    entered = bool((path > _ENTERED).any())
    return np.array([entered, entered and path[-1] < _ENTERED, bool((path < -_ENTERED).any())])


claims.extension(
    "times",
    "Each change happens within 10 % of the time that Algorithm 1 predicts",
    "Theorem 4.1 of Boix-Adserà et al.: O(1) e-folds out of log(1/α); a bar for the eye",
    high=0.1,
)(largest_time_error)


def figures(run: xr.Dataset) -> Figures:
    """Draw coordinates and loss."""
    caption = "Smooth: gradient flow. Steps: Algorithm 1, from the loss alone, in the limit of vanishing α."
    yield staircase_figure(run, _NAMES, caption)


entry = Entry(
    "toys/leaving",
    "A coordinate that is learned, leaves, and returns",
    citation=TOYS,
    source="Leaving",
    quick={"log10_scale": -8.0},
)
