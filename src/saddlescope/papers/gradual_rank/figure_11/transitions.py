"""Transitions of a run with noise and without: their ends, and their paths over progress instead of time."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.noisy_training import beta_of

PROGRESS = (0.1, 0.9, 81)
"""A transition is under way between these, and is looked at in so many steps."""


@dataclass(frozen=True)
class Transition:
    """One transition of a stored run.

    Attributes:
        stage: k, the plateau it leads to.
        time: when the noise came, in rescaled time.
        entering: i_k.
        pull: |g_(i_k)| at theta^(k-1).
        since: times t since the noise, shape (steps,).
        goal: beta^k, shape (coordinates,).
        size: the largest entry of |beta^k - beta^(k-1)|.
        beta, noisy: the products without and after noise, shape (steps, coordinates).
        growth: how much larger the noise has made the entering weight: the natural logarithm of the factor, in e-folds.
    """

    stage: int
    time: float
    entering: int
    pull: float
    since: np.ndarray
    goal: np.ndarray
    size: float
    beta: np.ndarray
    noisy: np.ndarray
    growth: float

    def endpoint(self, noisy: bool = True) -> float:
        """Return the least distance to theta^k, largest entry of beta, in units of the size."""
        beta = self.noisy if noisy else self.beta
        return float(abs(beta - self.goal).max(axis=1).min() / self.size)

    def farthest(self) -> float:
        """Return the largest distance between the two trainings at the same time, in units of the size."""
        return float(abs(self.noisy - self.beta).max() / self.size)

    def path(self, noisy: bool) -> tuple[np.ndarray, np.ndarray] | None:
        """Return time and beta over progress, at 81 steps of 1 % of it; None if it does not rise through them.

        Returns:
            Shapes (81,) and (81, coordinates).
        """
        beta = self.noisy if noisy else self.beta
        progress = beta[:, self.entering] / self.goal[self.entering]
        grid = np.linspace(*PROGRESS)
        if progress[0] > grid[0] or not (progress >= grid[-1]).any():
            return None
        stop = int((progress >= grid[-1]).argmax())
        start = int(np.flatnonzero(progress[:stop] <= grid[0])[-1])
        under_way = slice(start, stop + 1)
        if (np.diff(progress[under_way]) <= 0).any():
            return None
        table = np.column_stack([self.since, beta])[under_way]
        at = np.stack([np.interp(grid, progress[under_way], column) for column in table.T], axis=1)
        return at[:, 0], at[:, 1:]


def transitions(run: xr.Dataset) -> tuple[Transition, ...]:
    """Return the transitions of a stored run."""
    found = []
    for moment in run.moment.values:
        here = run.sel(moment=moment)
        k = int(here.begins)
        stage = run.sel(stage=k)
        goal = stage.predicted_beta.values
        before = run.predicted_beta.sel(stage=k - 1).values if k > 1 else np.zeros_like(goal)
        i, sign = int(stage.predicted_coordinate), int(stage.predicted_sign)

        def grown(weights: xr.DataArray, i: int = i, sign: int = sign) -> float:
            u, v = weights.isel(step=0, coordinate=i).values
            return float(np.log(abs(u + sign * v)))  # what grows with g of that sign

        found.append(
            Transition(
                stage=k,
                time=float(here.moment_time),
                entering=i,
                pull=float(stage.pull),
                since=here.since.values,
                goal=goal,
                size=float(abs(goal - before).max()),
                beta=beta_of(here.weights).values,
                noisy=beta_of(here.noisy).values,
                growth=grown(here.noisy) - grown(here.weights),
            )
        )
    return tuple(found)
