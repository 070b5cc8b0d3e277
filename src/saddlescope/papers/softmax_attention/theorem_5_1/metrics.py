"""Distance from the quadrature, and the nuclear-norm excess in the end."""

from saddlescope.reproduction.metric import Metric

metrics = (
    Metric(
        name="error",
        quantity="distance of the flow of keys and queries to the quadrature, largest",
        statistic=lambda run: float(run.error.sel(flow="keys and queries").max()),
        scale="log",
    ),
    Metric(
        name="excess",
        quantity="excess of the nuclear norm in the end, keys and queries, mean over instances",
        statistic=lambda run: float(run.excess.sel(flow="keys and queries").isel(log_time=-1).mean()),
        scale="log",
    ),
)
