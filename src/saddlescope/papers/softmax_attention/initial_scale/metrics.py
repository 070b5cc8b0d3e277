"""Errors of the direction at the smallest scale."""

from saddlescope.reproduction.metric import Metric

metrics = (
    Metric(
        name="conditioned_error",
        quantity="final error of the direction at the smallest scale, conditioned data, mean over instances",
        statistic=lambda run: float(run.conditioned_error.isel(scale=-1, time=-1).mean()),
        scale="log",
    ),
    Metric(
        name="raw_error",
        quantity="final error of the direction at the smallest scale, Gaussian data, median over instances",
        statistic=lambda run: float(run.raw_error.isel(scale=-1, time=-1).median()),
        scale="log",
    ),
)
