"""The claims of the entry on diagonal linear networks, with their bounds and sources."""

from saddlescope.papers.gradual_rank.diagonal_linear.statistics import flow_excess, largest, norm_excess, number_leaving
from saddlescope.reproduction.claim import Claim
from saddlescope.reproduction.metric import Metric

# The bounds. What Algorithm 1 does here is exact, up to rounding through matrices whose condition numbers reach 1e4 to
# 1e6 as the support nears n: 1e-8 leaves room for that. The flow's excess at finite alpha is bounded by Woodworth et
# al. (2020, "Kernel and rich regimes in overparametrized models", Theorem 2): by 0.4 % at 1e-1024 for weights of 1.
claims = (
    Claim(
        name="least-squares",
        says="Each theta^k minimises the loss over the active coordinates with their signs: largest difference from "
        "non-negative least squares",
        source="Berthier 2022; Pesme and Flammarion 2023; equation 13",
        statistic=largest("least_squares"),
        high=1e-8,
    ),
    Claim(
        name="subgradient",
        says="The slope is a subgradient of the l1 norm whenever a stage begins, and +-1 where one enters: largest "
        "violation",
        source="Pesme and Flammarion 2023; equations 10 to 12",
        statistic=largest("subgradient"),
        high=1e-8,
    ),
    Claim(
        name="interpolates",
        says="Algorithm 1 ends at an interpolator: largest residual",
        source="More coordinates than samples",
        statistic=largest("residual"),
        high=1e-8,
    ),
    Claim(
        name="least-norm",
        says="Its l1 norm is the least, by linear programming: largest difference",
        source="Pesme and Flammarion 2023; HiGHS with tolerances of 1e-10",
        statistic=norm_excess("norm"),
        high=1e-8,
    ),
    Claim(
        name="certificate",
        says="The path itself proves it, by a dual solution: largest duality gap",
        source="xi = X^T nu is a subgradient, so that nu . y is a lower bound of the norm",
        statistic=largest("duality_gap"),
        high=1e-8,
    ),
    Claim(
        name="flow",
        says="The gradient flow ends there too: largest relative excess of its l1 norm",
        source="Woodworth et al. 2020, Theorem 2: at most 0.4 % for weights of 1 at alpha = 1e-1024",
        statistic=flow_excess,
        high=0.01,
    ),
    Claim(
        name="leaving",
        says="Coordinates leave the support on the way: how many",
        source="Berthier 2022; sparsity need not rise",
        statistic=number_leaving,
        low=1.0,
    ),
)

metrics = (
    Metric(
        name="stages",
        says="stages of Algorithm 1, mean over problems",
        statistic=lambda run: float(run.stage_time.notnull().sum("stage").mean()),
    ),
    Metric(
        name="leaving",
        says="coordinates that leave the support, mean over problems",
        statistic=lambda run: float(run.left.sum("stage").mean()),
    ),
    Metric(
        name="excess",
        says="relative excess of the flow's l1 norm, mean over problems",
        statistic=lambda run: float(abs(run.flow_norm / run.least_norm - 1).mean()),
        scale="log",
    ),
    Metric(
        name="final_loss",
        says="final loss of the flow, mean over problems",
        statistic=lambda run: float(run.flow_loss.mean()),
        scale="log",
    ),
)
