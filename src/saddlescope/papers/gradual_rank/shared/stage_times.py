"""Stage times: Algorithm 1's predictions as stored variables, and the times at which a flow passes its stages."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.metric import Metric

if TYPE_CHECKING:
    from saddlescope.flow import Trajectory
    from saddlescope.theory import IncrementalLearning

STAGES = Metric(
    name="stages",
    quantity="stages of the flow at the smallest α",
    statistic=lambda run: float((run.found_time.isel(scale=-1) < float("inf")).sum()),
)

RESOLVED = Metric(
    name="resolved",
    quantity="plateaus that the smallest α resolves",
    statistic=lambda run: float(run.resolved.isel(scale=-1).sum()),
)


def run_over_scales(
    log10_scales: Sequence[float],
    simulate: Callable[[float, Report], xr.Dataset],
    context: RunContext,
    start: float,
    stop: float,
) -> xr.Dataset:
    """Simulate from each initial scale and join the results along `scale`; finished scales are cached.

    Args:
        log10_scales: log10 of the initial scales.
        simulate: from one of them and a `report` for its part of the run.
        context: of the run.
        start: the fraction of the run at which the simulations begin.
        stop: the fraction at which they end.
    """
    flows = []
    for k, log10_scale in enumerate(log10_scales):
        first, last = (start + (stop - start) * n / len(log10_scales) for n in (k, k + 1))
        report = context.part(first, last)
        flows.append(context.cached(f"flow{log10_scale}", partial(simulate, log10_scale, report)))
        report(1.0, f"alpha = 1e{log10_scale:g} done")
    return xr.concat(flows, dim="scale", combine_attrs="drop").assign_coords(scale=list(log10_scales))


def predicted_stages(learned: "IncrementalLearning", *, until: float) -> xr.Dataset:
    """Return the stages k = 1, 2, ... after the origin, in each of which one coordinate enters.

    Args:
        learned: Algorithm 1's answer.
        until: when the simulation ends, in the same unit: the last plateau has no end, so its middle is that of what
            is simulated of it.

    Returns:
        Over `stage`: predicted_time T_k, predicted_coordinate i_k (the first of tied ones), its predicted_sign,
        predicted_left (how many coordinates leave), predicted_loss on the plateau, and plateau_time, its middle;
        predicted_beta over stage and coordinate. The attributes: the status, its message, the loss at the origin.
    """
    origin, *stages = learned.stages
    entered = np.array([stage.entered[0] for stage in stages], dtype=np.int64)
    begins = np.array([stage.time for stage in stages])
    ends = np.append(begins[1:], max(until, begins[-1]))
    return xr.Dataset(
        {
            "predicted_time": ("stage", begins),
            "predicted_coordinate": ("stage", entered),
            "predicted_sign": ("stage", np.array([stage.signs[0] for stage in stages], dtype=np.int64)),
            "predicted_left": ("stage", np.array([len(stage.left) for stage in stages], dtype=np.int64)),
            "predicted_loss": ("stage", np.array([stage.loss for stage in stages])),
            "predicted_beta": (("stage", "coordinate"), np.stack([stage.beta for stage in stages])),
            "plateau_time": ("stage", (begins + ends) / 2),
        },
        coords={"stage": np.arange(1, len(stages) + 1), "coordinate": np.arange(origin.beta.size)},
        attrs={
            "theory_status": learned.status.value,
            "theory_message": learned.message,
            "initial_loss": origin.loss,
        },
    )


def resolved_stages(learned: "IncrementalLearning", log_alpha: float, *, efolds: float) -> np.ndarray:
    """Return true for the stages k = 1, 2, ... separated by so many e-folds at alpha in theory, shape (stages,)."""
    unresolved = {tie.stage for tie in learned.near_ties(log_alpha, efolds=efolds)}
    return np.array([k not in unresolved for k in range(1, len(learned.stages))])


def halfway_times(trajectory: "Trajectory", theory: xr.Dataset) -> np.ndarray:
    """Return t_k for each predicted stage: when beta_(i_k) first passes half its value on its plateau, with that sign.

    The theory fixes no level: it speaks of order 1. Half-way is where a logistic transition turns. A coordinate that
    enters for a second time is looked for after it has fallen below the first time's half again.

    Args:
        trajectory: a run, recorded densely enough that between two records no coordinate rises and falls again.
        theory: what `predicted_stages` returned.

    Returns:
        Shape (stages,), in the run's unit; NaN where it does not happen.
    """
    found = np.full(theory.sizes["stage"], np.nan)
    since: dict[int, float] = {}  # from when on a coordinate may enter again
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
        trajectory: a run, recorded densely enough that between two records nothing rises and falls again.
        share: such as the entry of one coordinate over half its value on a plateau.
    """
    from scipy.optimize import brentq

    beyond = share(trajectory.beta) >= 1
    return np.array(
        [
            brentq(
                lambda t: share(trajectory(np.array([t])))[0] - 1,
                trajectory.times[after - 1],
                trajectory.times[after],
                xtol=1e-13,
            )
            for after in np.flatnonzero(beyond[1:] & ~beyond[:-1]) + 1
        ]
    )
