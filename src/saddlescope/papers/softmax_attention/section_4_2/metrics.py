"""Norms and ranks in the end."""

from saddlescope.reproduction.metric import Metric

metrics = (
    Metric(
        name="nuclear",
        quantity="excess of the nuclear norm in the end, keys and queries, mean over draws",
        statistic=lambda run: float(run.nuclear.sel(flow="keys and queries").isel(time=-1).mean()),
        scale="log",
    ),
    Metric(
        name="frobenius",
        quantity="excess of the Frobenius norm in the end, W alone, mean over draws",
        statistic=lambda run: float(run.frobenius.sel(flow="W alone").isel(time=-1).mean()),
        scale="log",
    ),
    Metric(
        name="rank",
        quantity="rank of W in the end, keys and queries, mean over draws",
        statistic=lambda run: float(run.ranks.sel(flow="keys and queries").mean()),
    ),
)
