"""Shares of successful runs at the largest width."""

from saddlescope.papers.deep_relu.escape_width.claims import BASE_DEPTH, success_share
from saddlescope.reproduction.metric import Metric

metrics = (
    Metric(
        name="faster_share",
        quantity="share of faster runs at the largest width, L = 3",
        statistic=lambda run: success_share(run, "faster", BASE_DEPTH, int(run.width[-1]))[0],
    ),
    Metric(
        name="optimal_share",
        quantity="share of optimal runs at the largest width, L = 3",
        statistic=lambda run: success_share(run, "optimal", BASE_DEPTH, int(run.width[-1]))[0],
    ),
)
