"""Statistics of certificates, and of the answers of other solvers."""

import xarray as xr

from saddlescope.reproduction.claim import Estimate

NORMS = ("l1", "frobenius", "nuclear")


def largest_gap(run: xr.Dataset, norm: str) -> Estimate:
    """Return the largest relative duality gap of one norm."""
    gaps = run.gap.sel(norm=norm)
    return Estimate(max(float(gaps.max(skipna=False)), 0.0), remark=f"{gaps.size} draws")


def largest_difference(run: xr.Dataset) -> Estimate:
    """Return the largest relative difference of an optimum from that of another solver."""
    worst = run.difference.max("small_draw")
    remark = ", ".join(f"{norm} {float(worst.sel(norm=norm)):.1g}" for norm in NORMS)
    return Estimate(float(worst.max(skipna=False)), remark=f"{remark}; {run.sizes['small_draw']} draws")


def certified_share(run: xr.Dataset, of: str) -> Estimate:
    """Return the certified share of all draws, l1 and nuclear norms; Frobenius norms need no proof."""
    found = run[of].sel(norm=["l1", "nuclear"])
    return Estimate(float(found.mean()), remark=f"{int(found.sum())} of {found.size}, {run.sizes['draw']} draws")


def right_rank_share(run: xr.Dataset, accuracy: str) -> Estimate:
    """Return the share of draws whose rank is read right at one accuracy."""
    one = run.sel(accuracy=accuracy)
    right = Estimate.share(float((one.read_rank == one.true_rank).sum()), run.sizes["small_draw"])
    low, high, true = int(one.read_rank.min()), int(one.read_rank.max()), one.true_rank
    remark = f"read {low} to {high}, certified {int(true.min())} to {int(true.max())}"
    return Estimate(right.value, right.uncertainty, f"{right.remark}; {remark}")


def wrong_certificates(run: xr.Dataset) -> Estimate:
    """Count the answers of other solvers whose certificate confirms a rank that is not the true one."""
    wrong = run.vouched & (run.told_rank != run.true_rank)
    none = int((~run.vouched).sum())
    return Estimate(float(wrong.sum()), remark=f"of {wrong.size} answers, {none} of which it certifies no rank of")


def rank_ratio(run: xr.Dataset) -> Estimate:
    """Return the mean ratio of the rank of W_* to that of W_F."""
    ranks = run["rank"]
    return Estimate.mean((ranks.sel(norm="nuclear") / ranks.sel(norm="frobenius")).values)
