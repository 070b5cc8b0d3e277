"""Claims of the entry `atlas`."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate


def _several_share(counts: xr.DataArray) -> Estimate:
    """Return the share of starts with two or more descents, of all that are counted."""
    return Estimate.share(float(counts.sel(descents=slice(2, None)).sum()), float(counts.sum()))


claims = Claims()


@claims.add(
    "conjecture",
    "There are at most s descents from starts with no eigenvalue of W(0) above 1",
    quantity="exceptions",
    kind="own",
    source="a conjecture of this project's, of section 4.2.2's cycle: one descent for each concept",
    high=0.0,
)
def exceptions(run: xr.Dataset) -> Estimate:
    """Return the number of starts below the identity with more descents than concepts."""
    return Estimate(
        float(run.exceptions.sum()), remark=f"of {int(run.small.sum())} starts, each counted twice if above s"
    )


@claims.add(
    "all-learn",
    "Every start of full rank generalizes in the end",
    quantity="starts that have not",
    kind="printed",
    source="d/dt log det W = 4 tr(A (1 - W)), against the trap of appendix E.3",
    high=0.0,
)
def failures(run: xr.Dataset) -> Estimate:
    """Return the number of starts that have not learned all."""
    return Estimate(float(run.failures.sum()), remark=f"of {int(run.counts.sum())} starts")


@claims.add(
    "equal",
    "With equal strengths there is one descent, from any W(0) below the identity",
    quantity="starts with more",
    kind="printed",
    source="exact: W keeps its eigenvectors, and its eigenvalues grow",
    high=0.0,
)
def equal_strength_exceptions(run: xr.Dataset) -> Estimate:
    """Count starts with several descents where strengths are equal and no eigenvalue of W(0) can be above 1."""
    if 1.0 not in run.ratio:
        return Estimate.unresolved("The run has no ratio of 1.")
    equal = run.sel(ratio=1.0).where(run.small.sel(ratio=1.0) == run.counts.sum("descents").sel(ratio=1.0))
    seen = float(equal.counts.sel(descents=slice(2, None)).sum())
    return Estimate(seen, remark=f"of {int(equal.counts.sum())} starts")


@claims.add(
    "apart",
    "Concepts far apart make the loss rise more often than near ones",
    quantity="P(two or more visible descents) at the largest ratio of mu less that at the smallest above 1",
    kind="printed",
    source="section 4.2.1: the difference of a_1 and a_2 must be large for suppression; the bound: a difference",
    low=0.0,
)
def ratio_difference(run: xr.Dataset) -> Estimate:
    """Return P(two or more visible) at the largest ratio less that at the smallest above 1; square starts."""
    one = run.isel(factor=0).sel(scale=slice(None, 0.1)).sel(ratio=run.ratio[run.ratio > 1])
    if one.sizes["ratio"] < 2:
        return Estimate.unresolved("The run has no two ratios above 1.")
    far, near = (_several_share(one.visible.isel(ratio=k)) for k in (-1, 0))
    remark = f"{far.value:.3f} against {near.value:.3f}"
    return Estimate(far.value - near.value, (far.uncertainty**2 + near.uncertainty**2) ** 0.5, remark)


@claims.add(
    "wide",
    "Wide networks hardly have transient memorization",
    quantity="P(two or more visible descents) at the largest width over that at d' = d",
    kind="printed",
    source="appendix E.2; the bound from trial runs at one ratio, on other seeds",
    high=0.15,
)
def width_ratio(run: xr.Dataset) -> Estimate:
    """Return P(two or more visible) at the largest width over that at the smallest, scales up to 0.1."""
    one = run.sel(scale=slice(None, 0.1))
    wide, narrow = (_several_share(one.visible.isel(factor=k)) for k in (-1, 0))
    ripples = [_several_share(one.counts.isel(factor=k)).value for k in (-1, 0)]
    remark = (
        f"{wide.value:.4f} against {narrow.value:.4f}; with the invisible {ripples[0]:.4f} against {ripples[1]:.4f}"
    )
    return Estimate(wide.value / narrow.value, wide.uncertainty / narrow.value, remark)


@claims.add(
    "logarithmic",
    "The time to generalize grows by log(1 / tau^2) / (4 a_1)",
    quantity="slope over this, up to a scale of 0.01",
    kind="own",
    source="section 4.2.1's initial growth, with a_1 of the weakest concept; the bound this project's",
    low=0.98,
    high=1.02,
)
def time_slope(run: xr.Dataset) -> Estimate:
    """Return the growth of the median time with the logarithm of 1 / scale^2, mean over all cells."""
    one = run.time.sel(quantile=0.5, scale=slice(None, 0.011))
    if one.sizes["scale"] < 2:
        return Estimate.unresolved("The run has no two scales up to 0.01.")
    ends = one.isel(scale=0) - one.isel(scale=-1)
    slopes = (ends / (2 * np.log(one.scale[-1] / one.scale[0]))).values.ravel()
    remark = f"{len(slopes)} cells from {slopes.min():.3f} to {slopes.max():.3f}"
    return Estimate.mean(slopes, remark)
