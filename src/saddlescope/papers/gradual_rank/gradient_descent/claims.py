"""The claims of the entry on gradient descent, with their bounds and sources."""

from saddlescope.papers.gradual_rank.gradient_descent.returning_coordinate import SADDLE, TEACHER, end_from
from saddlescope.papers.gradual_rank.gradient_descent.statistics import (
    delay_power,
    first_delay_ratio,
    same_order,
    spread_power,
)
from saddlescope.reproduction.claim import Claim
from saddlescope.reproduction.metric import Metric

# The bounds follow from the first order in eta that the heading derives; the next order and the O(1) of time in
# transitions, out of log(1/alpha) = 18 at alpha = 1e-8, set their widths.
claims = (
    Claim(
        name="descent-power",
        says="Full-batch descent is late by a fraction proportional to the learning rate: power at the smallest scale, "
        "of the stage where it is furthest from 1",
        source="First order in eta; 10 % for the next",
        statistic=delay_power,
        low=0.9,
        high=1.1,
    ),
    Claim(
        name="descent-delay",
        says="The first stage by eta / (2 T_1): ratio at the smallest learning rate and scale",
        source="log(1 + eta g) for eta g on the first plateau; 15 % for the transition",
        statistic=first_delay_ratio,
        low=0.85,
        high=1.15,
    ),
    Claim(
        name="sgd-order",
        says="SGD with the largest batch learns the coordinates in the flow's order: fraction of runs",
        source="Figure 2, which the paper made with SGD",
        statistic=same_order,
        low=1.0,
    ),
    Claim(
        name="sgd-spread",
        says="The spread of SGD's first stage time over runs falls as 1/B: power",
        source="Only an unfinished epoch's noise is left; -1/2 with independent draws",
        statistic=spread_power,
        low=-1.3,
        high=-0.7,
    ),
    Claim(
        name="descent-right",
        says="At alpha = 0.01 descent brings back the coordinate that left: distance of its end from the teacher",
        source="Algorithm 1; the teacher is the one minimum",
        statistic=end_from(TEACHER, "returning_descent", -2.0),
        high=1e-3,
    ),
    Claim(
        name="descent-wrong",
        says="At alpha = 1e-16 it does not, and ends at a saddle: distance of its end from that saddle",
        source="u^2 - v^2 = 1e-32 beside roundings of 1e-16",
        statistic=end_from(SADDLE, "returning_descent", -16.0),
        high=1e-3,
    ),
    Claim(
        name="flow-right",
        says="The flow of this package brings it back at alpha = 1e-16: distance of its end from the teacher",
        source="Algorithm 1; the teacher is the one minimum",
        statistic=end_from(TEACHER, "returning_flow", -16.0),
        high=1e-3,
    ),
)

metrics = (
    Metric(
        name="stages",
        says="stages of the flow at the smallest α",
        statistic=lambda run: float((run.flow_time.isel(scale=-1) < float("inf")).sum()),
    ),
    Metric(
        name="time_error",
        says="descent's stage times off the flow's, at the smallest rate and α, largest relative",
        statistic=lambda run: float(
            abs(run.descent_time.isel(scale=-1, rate=-1) / run.flow_time.isel(scale=-1) - 1).max()
        ),
        scale="log",
    ),
    Metric(
        name="noise",
        says="spread of SGD's stage times at the smallest batch, largest relative",
        statistic=lambda run: float((run.sgd_time.std("run") / run.sgd_time.mean("run")).isel(batch=0).max()),
        scale="log",
    ),
)
