"""A coordinate that leaves: a proxy of two causes is learned first, and forgotten once the causes are learned."""

import numpy as np
import xarray as xr

from saddlescope.explore.toys.linear_staircase import (
    follow,
    largest_time_error,
    require_definite,
    staircase_figure,
)
from saddlescope.plot import Figure
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param
from saddlescope.reproduction.catalogue import TOYS

_NAMES = ("cause 1", "cause 2", "proxy")


class Params(EntryParams):
    """The target depends on two causes. A third feature only correlates with both: the network learns this proxy first,
    then the causes, and the proxy leaves again. Below a correlation of about a half it never enters.
    """

    correlation: float = param(0.62, "correlation of the proxy with each cause", ge=0.0, le=0.7)
    weaker: float = param(0.8, "strength of cause 2 over that of cause 1", ge=0.2, le=1.0)
    decades: float = param(32.0, "decades by which the initial scale α is below 1", ge=0.3, le=512.0, scale="log")
    seed: int = param(0, "seed of the initial weights", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow two causes and their proxy."""
    c = params.correlation
    covariance = np.array([[1.0, 0.0, c], [0.0, 1.0, c], [c, c, 1.0]])
    require_definite(covariance, "Lower correlation.")
    teacher = np.array([1.0, params.weaker, 0.0])
    return follow(covariance, teacher, decades=params.decades, seed=params.seed, context=context)


claims = Claims()

_ENTERED = 0.1  # of cause 1: a proxy above it has entered


@claims.add(
    "fate", "The proxy enters, or not, and leaves as Algorithm 1 predicts",
    quantity="of the two events, entering and leaving, those that differ between flow and prediction", kind="own",
    source="Algorithm 1 of Boix-Adserà et al.", high=0.0, evidence="cases", over="events",
    why="Both events are read from each path by the same threshold, a tenth of cause 1",
    doubt="A proxy that enters late or little is below the threshold",
)  # fmt: skip
def _fates_that_differ(run: xr.Dataset) -> Estimate:
    def fate(path: np.ndarray) -> np.ndarray:
        entered = bool((abs(path) > _ENTERED).any())
        return np.array([entered, entered and abs(path[-1]) < _ENTERED])

    found, predicted = fate(run.beta.values[:, 2]), fate(run.stage_beta.values[:, 2])
    words = ("enters" if predicted[0] else "never enters") + (" and leaves" if predicted[1] else "")
    return Estimate.number(found != predicted, f"predicted: it {words}")


claims.add(
    "times", "Each change happens within 10 % of the time that Algorithm 1 predicts",
    quantity="largest relative error of the half-way times of all changes of a coordinate", kind="own",
    source="Theorem 4.1 of Boix-Adserà et al.: O(1) e-folds out of log(1/α); a bar for the eye", high=0.1,
    evidence="cases", over="changes",
    why="The theorem fixes each time up to a constant number of e-folds, for coordinates that enter or leave",
    doubt="Changes below a fifth of a coordinate's largest value are left out",
)(largest_time_error)  # fmt: skip


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw coordinates and loss."""
    caption = "Smooth: gradient flow. Steps: Algorithm 1, from the loss alone, in the limit of vanishing α."
    return [staircase_figure(run, _NAMES, caption)]


entry = Entry(
    "toys/leaving", "A coordinate that is learned, and leaves",
    citation=TOYS, source="Leaving", params=Params, quick={"decades": 8.0}, run=run, claims=claims, figures=figures,
)  # fmt: skip
