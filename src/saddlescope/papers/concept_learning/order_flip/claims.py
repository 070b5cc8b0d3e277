"""Claims of the entry `order_flip`."""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.papers.concept_learning.order_flip.simulations import diversity
from saddlescope.reproduction.claim import Claims, Estimate


def flip_ratios(half: xr.DataArray) -> xr.DataArray:
    """Return the ratio at which T_1 - T_2 passes from above 0 to below; NaN where it does not.

    By interpolation in 1 / ratio, in which T_1 is linear where the concepts are learned on their own.
    """
    swept = "ratio" if "ratio" in half.dims else "sgd_ratio"
    inverse = 1 / half[swept].values

    def one(late: np.ndarray) -> float:
        falls = np.flatnonzero((late[:-1] > 0) & (late[1:] <= 0))
        if not len(falls):
            return float("nan")
        i = int(falls[0])
        return float(1 / (inverse[i] + (inverse[i + 1] - inverse[i]) * late[i] / (late[i] - late[i + 1])))

    return xr.apply_ufunc(
        one,
        half.sel(concept=1) - half.sel(concept=2),
        input_core_dims=[[swept]],
        vectorize=True,
        output_dtypes=[float],
    )


def _resolved_mean(values: np.ndarray) -> Estimate:
    """Return the mean of the resolved values; unresolved if a tenth are not."""
    resolved = values[np.isfinite(values)]
    if len(resolved) < 0.9 * values.size:
        return Estimate.unresolved(f"Only {len(resolved)} of {values.size} flip within the sweep.")
    return Estimate.mean(resolved, f"{len(resolved)} of {values.size} flip within the sweep")


def one_layer_flip(run: xr.Dataset, clusters: int) -> Estimate:
    """Return the mean flip of SGD for a number of clusters."""
    if clusters not in run.clusters:
        return Estimate.unresolved(f"There was no run with {clusters} clusters.")
    return _resolved_mean(flip_ratios(run.sgd_half.sel(clusters=clusters)).values)


claims = Claims()


# The bounds. A pilot on starts of seed 1000 and runs of seeds 100 to 107 had: flips of single starts off their
# prediction by .0013 in the median at scales .01 and .0001 (interpolation over the sweep included), quartiles .16 apart
# at scale .01 and half of that at .0001; SGD off the theorem by .012 at most, and means of 1.036 and 1.042 over runs.
@claims.add(
    "two-layers",
    "The symmetric network learns the weaker signal first from sigma_1* on, two clusters",
    quantity="mean flip over it",
    kind="printed",
    source="Section 4, a_1 = a_2; a twentieth for the starts at a finite scale",
    low=0.95,
    high=1.05,
)
def two_layer_flip(run: xr.Dataset) -> Estimate:
    """Return sigma_1 at the flip over sigma_1*, smallest scale, without the cluster at the origin."""
    expected = float(diversity(1.0, run.mu, run.sigma, 2) ** 0.5)
    found = _resolved_mean(
        diversity(flip_ratios(run.half.isel(scale=-1)).values, run.mu, run.sigma, 2) ** 0.5 / expected
    )
    remark = f"sigma_1* = {expected:.4f}, found {found.value * expected:.3f}; {found.remark}"
    return Estimate(found.value, found.uncertainty, remark=remark)


@claims.add(
    "single-starts",
    "Each start flips where log(1/w_11 - 1)/a_1 = log(1/w_22 - 1)/a_2",
    quantity="median error of a_1/a_2",
    kind="own",
    source="this project's prediction; .0013 in a pilot on another seed",
    high=0.005,
)
def single_start_error(run: xr.Dataset) -> Estimate:
    """Return the median error of the predicted flip of single starts, smallest scale."""
    errors = abs(flip_ratios(run.half) - run.expected).isel(scale=-1).values
    resolved = errors[np.isfinite(errors)]
    if not len(resolved):
        return Estimate.unresolved("No start flips within the sweep.")
    return Estimate(float(np.median(resolved)), remark=f"largest {float(resolved.max()):.2g}, {len(resolved)} starts")


@claims.add(
    "narrowing",
    "The spread between starts falls as 1/log(1/scale)",
    quantity="its fall over that, from the last scale but one",
    kind="own",
    source="this project's prediction; 1.03 in a pilot on another seed, quartiles of 60 starts are good to a third",
    low=0.67,
    high=1.5,
)
def spread_ratio(run: xr.Dataset) -> Estimate:
    """Return the fall of the interquartile range from the last scale but one, over that of 1 / log(1/scale)."""
    flips, scales = flip_ratios(run.half), run.scale.values[-2:]
    widths = np.nanquantile(flips.values[-2:], 0.75, axis=1) - np.nanquantile(flips.values[-2:], 0.25, axis=1)
    expected = np.log(scales[0]) / np.log(scales[1])
    return Estimate(
        float(widths[1] / widths[0] / expected), remark=f"quartiles {widths[0]:.3f}, then {widths[1]:.3f} apart"
    )


claims.add(
    "one-layer",
    "SGD of one layer flips at a_1 = a_2, two clusters",
    quantity="mean a_1/a_2 over runs",
    kind="printed",
    source="Section 3.1, Figure 2 (b), and Theorem 4.1; .15 for the noise of default starts",
    low=0.85,
    high=1.15,
)(partial(one_layer_flip, clusters=2))

claims.add(
    "one-layer-origin",
    "The same with the cluster at the origin, three clusters, where sigma_1* = 1.0012",
    quantity="value",
    kind="printed",
    source="the same, as the authors' programs have it",
    low=0.85,
    high=1.15,
)(partial(one_layer_flip, clusters=3))


@claims.add(
    "theorem",
    "SGD runs flip where Theorem 4.1 has it from their actual starts",
    quantity="mean error of a_1/a_2",
    kind="printed",
    source="Theorem 4.1; .005 in a pilot of 16 runs on other seeds",
    high=0.02,
)
def theorem_error(run: xr.Dataset) -> Estimate:
    """Return the mean error of the flip by Theorem 4.1."""
    return _resolved_mean(abs(flip_ratios(run.sgd_half) - flip_ratios(run.theorem_half)).values.ravel())


@claims.add(
    "theorem-every-run",
    "The same",
    quantity="largest error, to which minibatches add",
    kind="printed",
    source="Theorem 4.1; .012 in that pilot",
    high=0.04,
)
def largest_theorem_error(run: xr.Dataset) -> Estimate:
    """Return the largest error of the flip by Theorem 4.1."""
    errors = abs(flip_ratios(run.sgd_half) - flip_ratios(run.theorem_half)).values
    resolved = errors[np.isfinite(errors)]
    if not len(resolved):
        return Estimate.unresolved("No run flips within the sweep.")
    return Estimate(float(resolved.max()), remark=f"{len(resolved)} runs, {int((resolved > 0.04).sum())} beyond .04")
