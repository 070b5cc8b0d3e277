"""Claims on certificates, and on ranks read off the answers of other solvers."""

from functools import partial

import xarray as xr

from saddlescope.reproduction.claim import Claim, Claims, Estimate, Kind

NORMS = ("l1", "frobenius", "nuclear")


def largest_gap(run: xr.Dataset, norm: str) -> Estimate:
    """Return the largest relative duality gap of one norm."""
    gaps = run.gap.sel(norm=norm)
    return Estimate(max(float(gaps.max(skipna=False)), 0.0), remark=f"{gaps.size} draws")


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


claims = Claims()

claims.extend(
    (
        Claim(
            name=f"gap-{norm}",
            statement=f"{of}",
            quantity="largest relative duality gap",
            kind=Kind.OWN,
            source="This project's bar at (n, L, d) = (20, 10, 200)",
            high=high,
            statistic=partial(largest_gap, norm=norm),
        )
        for norm, of, high in (
            ("l1", "(l1-SVM), diagonal weights", 1e-12),
            ("frobenius", "(W_F-SVM)", 1e-12),
            ("nuclear", "(W_*-SVM)", 1e-10),
        )
    )
)


@claims.add(
    "independent-solvers",
    "HiGHS and Clarabel find the same optima",
    quantity="largest relative difference",
    kind="printed",
    source="Definitions of the three problems; the bound for the other solvers' tolerance of 1e-8",
    high=1e-6,
)
def largest_difference(run: xr.Dataset) -> Estimate:
    """Return the largest relative difference of an optimum from that of another solver."""
    worst = run.difference.max("small_draw")
    remark = ", ".join(f"{norm} {float(worst.sel(norm=norm)):.1g}" for norm in NORMS)
    return Estimate(float(worst.max(skipna=False)), remark=f"{remark}; {run.sizes['small_draw']} draws")


claims.add(
    "ranks-certified",
    "The rank read is the largest that any solution can have",
    quantity="part of all draws, l1 and nuclear",
    kind="printed",
    source="Strict complementarity, of Gaussian data with probability one; every draw",
    low=1.0,
)(partial(certified_share, of="rank_certified"))

claims.add(
    "unique",
    "The solution is certified to be the only one",
    quantity="part of all draws, l1 and nuclear",
    kind="printed",
    source="Gaussian data have unique solutions with probability one; every draw",
    low=1.0,
)(partial(certified_share, of="unique"))


@claims.add(
    "low-rank",
    "The nuclear norm makes attention low rank",
    quantity="rank of W_* over that of W_F, mean",
    kind="own",
    source='Section 4.2, "encourages a low-rank structure"; the bound this project\'s',
    high=0.75,
)
def rank_ratio(run: xr.Dataset) -> Estimate:
    """Return the mean ratio of the rank of W_* to that of W_F."""
    ranks = run["rank"]
    return Estimate.mean((ranks.sel(norm="nuclear") / ranks.sel(norm="frobenius")).values)


claims.add(
    "rank-as-read",
    "Singular values above 1e-7 of the largest give the rank of W_*, at Clarabel's accuracy",
    quantity="part of draws",
    kind="own",
    source="This project's question; trial runs on other seeds",
    low=0.9,
)(partial(right_rank_share, accuracy="1e-8"))

claims.add(
    "rank-as-read-loosely",
    "They do at an accuracy of 1e-4, the default of first-order solvers, too",
    quantity="part of the draws",
    kind="own",
    source="How such scripts read it; the bound this project's, the same",
    low=0.9,
)(partial(right_rank_share, accuracy="1e-4"))


@claims.add(
    "not-fooled",
    "No certificate of those answers vouches for a wrong rank",
    quantity="how many do",
    kind="printed",
    source="Definition of the certificate, none",
    high=0.0,
)
def wrong_certificates(run: xr.Dataset) -> Estimate:
    """Count the answers of other solvers whose certificate confirms a rank that is not the true one."""
    wrong = run.vouched & (run.told_rank != run.true_rank)
    none = int((~run.vouched).sum())
    return Estimate(float(wrong.sum()), remark=f"of {wrong.size} answers, {none} of which it certifies no rank of")
