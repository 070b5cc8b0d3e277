"""Distances from the l1 solution in the end, and its sparsity."""

from saddlescope.reproduction.metric import Metric

metrics = (
    Metric(
        name="error",
        quantity="distance of the direction to the l1 solution in the end, median over instances",
        statistic=lambda run: float(run.error.isel(time=-1).median()),
        scale="log",
    ),
    Metric(
        name="excess",
        quantity="excess of the l1 objective in the end, median over instances",
        statistic=lambda run: float(run.objective.isel(time=-1).median()),
        scale="log",
    ),
    Metric(
        name="support",
        quantity="coordinates in the support, mean over instances",
        statistic=lambda run: float(run.support.mean()),
    ),
)
