"""Stage times: Algorithm 1's predictions as stored variables, and the times at which a flow passes its stages."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.reproduction import Metric

if TYPE_CHECKING:
    from saddlescope.flow import Trajectory
    from saddlescope.theory import IncrementalLearning

STAGES = Metric(
    "stages",
    "number of stages that the flow passes at the smallest α",
    lambda run: float((run.found_time.isel(scale=-1) < float("inf")).sum()),
)
RESOLVED = Metric(
    "resolved", "number of plateaus that the smallest α resolves", lambda run: float(run.resolved.isel(scale=-1).sum())
)
FINAL_LOSS = Metric(
    "final_loss", "final loss at the smallest α", lambda run: float(run.loss.isel(scale=-1, time=-1)), scale="log"
)


def predicted_stages(learned: "IncrementalLearning", *, until: float) -> xr.Dataset:
    """Return the stages k = 1, 2, ... after the origin, in each of which one coordinate enters.

    Args:
        learned: result of Algorithm 1.
        until: end of the simulation in the same unit. The last plateau has no end: its middle is that of its
            simulated part.

    Returns:
        Over `stage`: predicted_time T_k, predicted_coordinate i_k (the first of tied ones), its predicted_sign,
        predicted_loss on the plateau, and plateau_time, its middle; predicted_beta over stage and coordinate. The
        attributes: the status, its message, the loss at the origin.
    """
    origin, *stages = learned.stages
    begins = np.array([stage.time for stage in stages])
    ends = np.append(begins[1:], max(until, begins[-1]))
    return xr.Dataset(
        {
            "predicted_time": ("stage", begins),
            "predicted_coordinate": ("stage", np.array([stage.entered[0] for stage in stages], dtype=np.int64)),
            "predicted_sign": ("stage", np.array([stage.signs[0] for stage in stages], dtype=np.int64)),
            "predicted_loss": ("stage", np.array([stage.loss for stage in stages])),
            "predicted_beta": (("stage", "coordinate"), np.stack([stage.beta for stage in stages])),
            "plateau_time": ("stage", (begins + ends) / 2),
        },
        coords={"stage": np.arange(1, len(stages) + 1), "coordinate": np.arange(origin.beta.size)},
        attrs={"theory_status": learned.status.value, "theory_message": learned.message, "initial_loss": origin.loss},
    )


def resolved_stages(learned: "IncrementalLearning", log_alpha: float, *, efolds: float) -> np.ndarray:
    """Return True for the stages k = 1, 2, ... that so many e-folds at α separate in theory, shape (stages,)."""
    unresolved = {tie.stage for tie in learned.near_ties(log_alpha, efolds=efolds)}
    return np.array([k not in unresolved for k in range(1, len(learned.stages))])


def halfway_times(trajectory: "Trajectory", theory: xr.Dataset) -> np.ndarray:
    """Return t_k of each predicted stage: when β_(i_k) first passes half its value on its plateau, with that sign.

    The theory fixes no level: it only says "of order 1". Half-way is the inflection point of a logistic transition.
    A coordinate that enters a second time is considered only after it has fallen below its first half again.

    Args:
        trajectory: recorded so densely that between two records no coordinate rises and falls again.
        theory: result of `predicted_stages`.

    Returns:
        Shape (stages,), in the unit of the run; NaN where it does not happen.
    """
    found = np.full(theory.sizes["stage"], np.nan)
    since: dict[int, float] = {}  # time after which a coordinate may enter again
    for k, i in enumerate(theory.predicted_coordinate.values):
        half = theory.predicted_beta.values[k, i] / 2
        times = passings(trajectory, lambda beta, i=i, half=half: beta[:, i] / half)
        later = times[times > since.get(i, 0.0)]
        if later.size:
            found[k] = later[0]
            below = (trajectory.times > found[k]) & (trajectory.beta[:, i] / half < 1)
            since[i] = float(trajectory.times[below.argmax()]) if below.any() else np.inf
    return found


def passings(trajectory: "Trajectory", share: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return all times at which `share`, from beta (times, coordinates) to shape (times,), passes 1 upwards.

    Args:
        trajectory: recorded so densely that between two records nothing rises and falls again.
        share: such as the entry of one coordinate over half its value on a plateau.
    """
    from scipy.optimize import brentq

    beyond = share(trajectory.beta) >= 1
    times = trajectory.times
    return np.array(
        [
            brentq(lambda t: share(trajectory(np.array([t])))[0] - 1, times[after - 1], times[after], xtol=1e-13)
            for after in np.flatnonzero(beyond[1:] & ~beyond[:-1]) + 1
        ]
    )
