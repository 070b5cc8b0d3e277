"""Shares of successful runs and speeds at the largest width."""

from saddlescope.papers.deep_relu.figure_2.claims import FASTER, OPTIMAL
from saddlescope.reproduction.metric import Metric

metrics = (
    Metric(
        name="success",
        quantity="share of starts at the optimal speed, at the largest width",
        statistic=lambda run: float((abs(run.speed - run.optimum) < OPTIMAL).isel(width=-1).mean()),
    ),
    Metric(
        name="above_rank_one",
        quantity="share of starts faster than rank one, at the largest width",
        statistic=lambda run: float((run.speed > run.rank_one + FASTER).isel(width=-1).mean()),
    ),
    Metric(
        name="speed",
        quantity="fastest escape at the largest width over the optimum, least of all circles",
        statistic=lambda run: float((run.speed.isel(width=-1).max("start") / run.optimum).min()),
    ),
)
