"""The claims of the entry on diagonal linear networks, with their bounds and sources."""

from collections.abc import Callable

import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.metric import Metric


def largest(name: str) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic of a variable's largest value over problems, and over stages where it has any."""

    def measure(run: xr.Dataset) -> Estimate:
        if not run.converged.all():
            return Estimate.unresolved(f"Algorithm 1 did not converge in {int((~run.converged).sum())} problems.")
        stages = int(run.stage_time.notnull().sum())
        return Estimate(float(run[name].max()), remark=f"{run.sizes['problem']} problems, {stages} stages")

    return measure


def norm_excess(norm: str) -> Callable[[xr.Dataset], Estimate]:
    """Return the statistic of the largest difference of an l1 norm from the least one."""

    def measure(run: xr.Dataset) -> Estimate:
        return Estimate(float(abs(run[norm] - run.least_norm).max()))

    return measure


# The bounds. What Algorithm 1 does here is exact, up to rounding through matrices whose condition numbers reach 1e4 to
# 1e6 as the support nears n: 1e-8 leaves room for that. The flow's excess at finite alpha is bounded by Woodworth et
# al. (2020, "Kernel and rich regimes in overparametrized models", Theorem 2): by 0.4 % at 1e-1024 for weights of 1.
claims = Claims()

claims.add(
    "least-squares",
    "Each theta^k minimises the loss over the active coordinates with their signs",
    quantity="largest difference from non-negative least squares",
    kind="printed",
    source="Berthier 2022; Pesme and Flammarion 2023; equation 13",
    high=1e-8,
)(largest("least_squares"))

claims.add(
    "subgradient",
    "The slope is a subgradient of the l1 norm whenever a stage begins, and +-1 where one enters",
    quantity="largest violation",
    kind="printed",
    source="Pesme and Flammarion 2023; equations 10 to 12",
    high=1e-8,
)(largest("subgradient"))

claims.add(
    "interpolates",
    "Algorithm 1 ends at an interpolator",
    quantity="largest residual",
    kind="printed",
    source="More coordinates than samples",
    high=1e-8,
)(largest("residual"))

claims.add(
    "least-norm",
    "Its l1 norm is the least, by linear programming",
    quantity="largest difference",
    kind="printed",
    source="Pesme and Flammarion 2023; HiGHS with tolerances of 1e-10",
    high=1e-8,
)(norm_excess("norm"))

claims.add(
    "certificate",
    "The path itself proves it, by a dual solution",
    quantity="largest duality gap",
    kind="printed",
    source="xi = X^T nu is a subgradient, so that nu . y is a lower bound of the norm",
    high=1e-8,
)(largest("duality_gap"))


@claims.add(
    "flow",
    "The gradient flow ends there too",
    quantity="largest relative excess of its l1 norm",
    kind="printed",
    source="Woodworth et al. 2020, Theorem 2: at most 0.4 % for weights of 1 at alpha = 1e-1024",
    high=0.01,
)
def flow_excess(run: xr.Dataset) -> Estimate:
    """Return the largest relative excess of the flow's l1 norm."""
    return Estimate(float(abs(run.flow_norm / run.least_norm - 1).max()))


@claims.add(
    "leaving",
    "Coordinates leave the support on the way",
    quantity="how many",
    kind="printed",
    source="Berthier 2022; sparsity need not rise",
    low=1.0,
)
def number_leaving(run: xr.Dataset) -> Estimate:
    """Count the coordinates that leave the support."""
    problems = int((run.left.sum("stage") > 0).sum())
    return Estimate(float(run.left.sum()), remark=f"in {problems} of {run.sizes['problem']} problems")


metrics = (
    Metric(
        name="stages",
        quantity="stages of Algorithm 1, mean over problems",
        statistic=lambda run: float(run.stage_time.notnull().sum("stage").mean()),
    ),
    Metric(
        name="leaving",
        quantity="coordinates that leave the support, mean over problems",
        statistic=lambda run: float(run.left.sum("stage").mean()),
    ),
    Metric(
        name="excess",
        quantity="relative excess of the flow's l1 norm, mean over problems",
        statistic=lambda run: float(abs(run.flow_norm / run.least_norm - 1).mean()),
        scale="log",
    ),
    Metric(
        name="final_loss",
        quantity="final loss of the flow, mean over problems",
        statistic=lambda run: float(run.flow_loss.mean()),
        scale="log",
    ),
)
