"""Statistics of a run of Figure 10."""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.noisy_training import beta_of, displacement
from saddlescope.reproduction.claim import Estimate

_NOT_MOVED = "At one of the times no weight was above the threshold, so there was no noise; take later times."


def remaining(run: xr.Dataset, of: str) -> xr.DataArray:
    """Return the displacement of "beta" or "weights" that is left, as a fraction of that just after the noise."""
    away = displacement(run, of)
    return away / away.isel(step=0)


def conserved(run: xr.Dataset) -> xr.DataArray:
    """Return the weights with the undisturbed beta, and with the u^2 - v^2 that the noise has left behind.

    The larger of |u| and |v| never crosses 0 on the way there, so its sign is that just after the noise.
    """
    u, v = (run.noisy.isel(step=0).sel(factor=factor) for factor in ("u", "v"))
    beta, difference = beta_of(run.weights), u**2 - v**2
    larger = ((abs(difference) + (difference**2 + 4 * beta**2) ** 0.5) / 2) ** 0.5
    larger = np.sign(u.where(difference >= 0, v)) * larger
    smaller = (beta / larger).where(larger != 0, 0.0)
    weights = xr.concat([larger.where(difference >= 0, smaller), smaller.where(difference >= 0, larger)], "factor")
    return weights.assign_coords(factor=["u", "v"])


def _closest(values: xr.DataArray) -> Estimate:
    """Return the worst moment's smallest value over time."""
    if values.isnull().any():
        return Estimate.unresolved(_NOT_MOVED)
    return Estimate(float(values.min("step").max()))


def beta_closest_return(run: xr.Dataset) -> Estimate:
    """Return the displacement of beta left at its closest approach, at the worst moment."""
    return _closest(remaining(run, "beta"))


def beta_final_displacement(run: xr.Dataset) -> Estimate:
    """Return the displacement of beta left at the end, at the worst moment."""
    at_the_end = remaining(run, "beta").isel(step=slice(-1, None))
    return _closest(at_the_end)


def weights_closest_return(run: xr.Dataset) -> Estimate:
    """Return the displacement of the weights left at their closest approach, at the worst moment."""
    return _closest(remaining(run, "weights"))


def conservation_distance(run: xr.Dataset) -> Estimate:
    """Return the distance of the weights from those that `conserved` predicts, over the displacement."""
    away = ((run.noisy - conserved(run)) ** 2).sum(("coordinate", "factor")) ** 0.5
    return _closest(away / displacement(run, "weights").isel(step=0))


def end_difference(run: xr.Dataset) -> Estimate:
    """Return the difference of the ends of beta with and without noise, over the displacement."""
    away = ((beta_of(run.noisy_rest) - beta_of(run.rest)) ** 2).sum("coordinate") ** 0.5
    return _closest((away / displacement(run, "beta").isel(step=0)).expand_dims("step"))


def smallest_curvature(run: xr.Dataset) -> Estimate:
    """Return the smallest c_k of all stages."""
    if run.attrs["theory_status"] != "converged":
        return Estimate.unresolved(run.attrs["theory_message"])
    least = run.curvature.values.argmin()
    where = f"stage {int(run.stage[least])} of {run.sizes['stage']}"
    return Estimate(float(run.curvature[least]), 1e-12 * run.attrs["initial_loss"], remark=where)
