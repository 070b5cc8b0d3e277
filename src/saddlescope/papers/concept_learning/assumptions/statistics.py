"""Statistics behind the claims of the entry `assumptions`."""

import itertools
from collections.abc import Callable

import xarray as xr

from saddlescope.reproduction.claim import Estimate


def largest_omega(run: xr.Dataset) -> Estimate:
    """Return log10 of the largest omega for two concepts."""
    best = run.log10_omega.where(run.log10_omega == run.log10_omega.max(), drop=True).ratio.values[0]
    remark = f"at strengths in the ratio {best:.3g}; three concepts: {float(run.log10_omega_three.max()):.1f}"
    return Estimate(float(run.log10_omega.max()), remark=remark)


def allowed_data(run: xr.Dataset) -> Estimate:
    """Return the part of the figures' data with a positive margin."""
    remark = ", ".join(f"{name} {float(run.margin.sel(data=name)):.2f}" for name in run.data.values.tolist())
    return Estimate(float((run.margin > 0).mean()), remark=f"margins over alpha: {remark}")


def settings_held(run: xr.Dataset, *, kind: str) -> Estimate:
    """Return the number of random settings at which assumptions of one kind hold."""
    return Estimate(float(run[f"{kind}_hold"]), remark=f"of {int(run.settings)} settings")


def least_share(run: xr.Dataset, *, of: str, at: Callable[[xr.Dataset], xr.Dataset]) -> Estimate:
    """Return the share of runs on the data and scale at which it is least."""
    one = at(run)
    shares = [
        (Estimate.share(float(cell[of]), float(cell.starts)), f"{name}, scale {scale:g}")
        for name, scale in itertools.product(one.data.values.tolist(), one.scale.values.tolist())
        for cell in [one.sel(data=name, scale=scale)]
    ]
    least, where = min(shares, key=lambda found: found[0].value)
    return Estimate(least.value, least.uncertainty, f"{where}: {least.remark}")
