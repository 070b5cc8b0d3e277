"""The claims of Figure 10, with their bounds and sources."""

import numpy as np
import xarray as xr

from saddlescope.papers.gradual_rank.shared.noisy_training import beta_of, displacement
from saddlescope.reproduction.claim import Claims, Estimate

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


LEFT = 0.05

# The bounds. "Converge to the original", "tends back" have no number: read here as at most 5 % of the displacement
# left. For learned coordinates alone there is no next stage that could interfere, and 1e-3 leaves room for the error of
# the integration only. A minimum is strict where c_k is above rounding: 1e-12 of the loss at the origin.
claims = Claims()


@claims.add(
    "strict-minima",
    "The plateaus of all stages are strict local minima on their support",
    quantity="smallest c_k",
    kind="printed",
    source="Assumption 4.4, with - L(theta^k), which is missing there",
    low=0.0,
)
def smallest_curvature(run: xr.Dataset) -> Estimate:
    """Return the smallest c_k of all stages."""
    if run.attrs["theory_status"] != "converged":
        return Estimate.unresolved(run.attrs["theory_message"])
    least = run.curvature.values.argmin()
    where = f"stage {int(run.stage[least])} of {run.sizes['stage']}"
    return Estimate(float(run.curvature[least]), 1e-12 * run.attrs["initial_loss"], remark=where)


@claims.add(
    "same-rest",
    "Followed without the negligible coordinates, beta comes to the same rest with noise as without",
    quantity="what is left of its displacement, at worst",
    kind="printed",
    source="Appendix A: 'the weights were close to a strict local minimum'; 1e-3 for the integration",
    high=1e-3,
)
def end_difference(run: xr.Dataset) -> Estimate:
    """Return the difference of the ends of beta with and without noise, over the displacement."""
    away = ((beta_of(run.noisy_rest) - beta_of(run.rest)) ** 2).sum("coordinate") ** 0.5
    return _closest((away / displacement(run, "beta").isel(step=0)).expand_dims("step"))


@claims.add(
    "beta-returns",
    "Within 1000 epochs beta comes back to the undisturbed beta",
    quantity="what is left of its displacement at the closest approach, at worst",
    kind="printed",
    source="Figure 10 as it can hold, for beta instead of the weights; at most 5 %",
    high=LEFT,
)
def beta_closest_return(run: xr.Dataset) -> Estimate:
    """Return the displacement of beta left at its closest approach, at the worst moment."""
    return _closest(remaining(run, "beta"))


@claims.add(
    "beta-stays",
    "After 1000 epochs beta is where it would be without noise",
    quantity="what is left of its displacement, at worst",
    kind="printed",
    source="Appendix A: 'the training dynamics quickly converge to the original'; at most 5 %",
    high=LEFT,
)
def beta_final_displacement(run: xr.Dataset) -> Estimate:
    """Return the displacement of beta left at the end, at the worst moment."""
    at_the_end = remaining(run, "beta").isel(step=slice(-1, None))
    return _closest(at_the_end)


@claims.add(
    "weights-return",
    "Each weight comes back to the undisturbed weight",
    quantity="what is left of the displacement at the closest approach, at worst",
    kind="printed",
    source="Figure 10, caption, as printed: 'quickly brings each weight back'; at most 5 %",
    high=LEFT,
)
def weights_closest_return(run: xr.Dataset) -> Estimate:
    """Return the displacement of the weights left at their closest approach, at the worst moment."""
    return _closest(remaining(run, "weights"))


@claims.add(
    "weights-conserve",
    "The weights go where u^2 - v^2, conserved since the noise, and the undisturbed beta put them",
    quantity="distance over displacement at the closest approach, at worst",
    kind="printed",
    source="Lemma 4.2, instead of Figure 10 as printed; at most 5 %",
    high=LEFT,
)
def conservation_distance(run: xr.Dataset) -> Estimate:
    """Return the distance of the weights from those that `conserved` predicts, over the displacement."""
    away = ((run.noisy - conserved(run)) ** 2).sum(("coordinate", "factor")) ** 0.5
    return _closest(away / displacement(run, "weights").isel(step=0))
