"""The claims of the entry on Assumptions 4.3 to 4.5, with their bounds and sources."""

from collections.abc import Callable

import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate

NEAR = 0.01  # epsilon of Assumption 4.5, in units of the transition's size, the largest entry of |beta^k - beta^(k-1)|

_FAILED = "Algorithm 1 did not come to its end on all seeds."


def smallest_value(name: str) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic of the smallest value of one variable over seeds and stages."""

    def statistic(run: xr.Dataset) -> Estimate:
        if not run.converged.all():
            return Estimate.unresolved(_FAILED)
        values = run[name]
        if not values.notnull().any():
            return Estimate.unresolved("No coordinate left the support in any stage.")
        return Estimate(float(values.min()), remark=f"over {int(values.count())} values of {run.sizes['seed']} seeds")

    return statistic


def share_of_stages(condition: Callable[[xr.Dataset], xr.DataArray]) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic of the share of stages, of all seeds, in which a condition holds."""

    def statistic(run: xr.Dataset) -> Estimate:
        if not run.converged.all():
            return Estimate.unresolved(_FAILED)
        stages = int(run.time.notnull().sum())
        holds = condition(run).where(run.time.notnull(), False)
        return Estimate(float(holds.sum()) / stages, remark=f"{stages} stages")

    return statistic


def robust_to_noise(run: xr.Dataset) -> xr.DataArray:
    """Return true for each stage that all noisy draws reach."""
    return (run.end_distance <= NEAR).all("draw")


# The bounds. Numbers count as different from 0, and times as different from each other, beyond 1e-9: Algorithm 1 takes
# rounding errors of the gradient to be 1e-11. Growth is measured in a ball of radius 1e-3, where terms of third order
# may take a per cent of it.
claims = Claims()

claims.add(
    "imbalance",
    "|u_i(0)| and |v_i(0)| differ in every coordinate",
    quantity="smallest |log|u_i(0)/v_i(0)||",
    kind="printed",
    source="Assumption 4.3; beyond 1e-9",
    low=1e-9,
)(smallest_value("imbalance"))

claims.add(
    "unique",
    "In every stage one coordinate arrives first",
    quantity="smallest margin over time",
    kind="printed",
    source="Assumption 4.3; beyond 1e-9",
    low=1e-9,
)(smallest_value("margin"))


@claims.add(
    "nobody-leaves",
    "No coordinate ever leaves the support",
    quantity="seeds in which one does",
    kind="printed",
    source="Appendix A, as printed: 'no coordinates ever leave the support'",
    high=0.0,
)
def seeds_with_leaving(run: xr.Dataset) -> Estimate:
    """Count the seeds in which a coordinate leaves the support."""
    if not run.converged.all():
        return Estimate.unresolved(_FAILED)
    leaving = run.left.sum("stage") > 0
    named = ", ".join(map(str, run.seed.values[leaving.values])) or "none"
    return Estimate(float(leaving.sum()), remark=f"of {run.sizes['seed']} seeds: {named}")


claims.add(
    "leaving",
    "What has left the support is pushed",
    quantity="smallest |g_i(theta^k)| of a coordinate that leaves, over the largest at the origin",
    kind="printed",
    source="Assumption 4.3: g_i(theta^k) is not 0; beyond 1e-9",
    low=1e-9,
)(smallest_value("left_gradient"))

claims.add(
    "strict-minima",
    "Every theta^k is a strict local minimum on its support",
    quantity="smallest c_k",
    kind="printed",
    source="Assumption 4.4, with - L(theta^k), which is missing there; beyond 1e-9",
    low=1e-9,
)(smallest_value("curvature"))

claims.add(
    "growth",
    "The loss grows around theta^k, on its support, at least as c_k |u~ - u|^2",
    quantity="smallest growth over c_k",
    kind="printed",
    source="Assumption 4.4, with - L(theta^k); up to 1 % for terms of third order",
    low=0.99,
)(smallest_value("growth"))

claims.add(
    "printed-4.4",
    "Assumption 4.4 as printed also holds where there is no minimum",
    quantity="fraction of such points where it does",
    kind="printed",
    source="Assumption 4.4, without - L(theta^k), as printed: it says nothing where the loss is not 0",
    low=1.0,
)(share_of_stages(lambda run: run.printed_elsewhere == 1))

claims.add(
    "noise-robust",
    "With small enough noise on theta^k and on what enters, gradient flow ends at theta^(k+1)",
    quantity="fraction of the stages where all draws do",
    kind="printed",
    source="Assumption 4.5; delta down to 1e-7, epsilon 1 % of the transition's size",
    low=1.0,
)(share_of_stages(robust_to_noise))
