"""The claims of Figure 2, with their bounds and sources."""

from saddlescope.papers.gradual_rank.figure_2.statistics import (
    distance_to_teacher,
    learning_order,
    loss_convergence,
    plateaus_at_one_percent,
    stage_time_error,
    weight_convergence,
    wrong_coordinates,
)
from saddlescope.papers.gradual_rank.shared.stage_times import RESOLVED, STAGES
from saddlescope.reproduction.claim import Claim
from saddlescope.reproduction.metric import Metric

# The bounds. Theorem 4.1 promises convergence as alpha -> 0 and no rate; its proof moves each stage by O(1) e-folds of
# unrescaled time, so by O(1/log(1/alpha)) in rescaled time: about 1 % at alpha = 1e-32, where log(1/alpha) = 74.
claims = (
    Claim(
        name="end",
        says="Algorithm 1 ends at the teacher: largest error of its last beta",
        source="Theorem 4.1; the teacher is the one global minimum",
        statistic=distance_to_teacher,
        high=1e-12,
    ),
    Claim(
        name="order",
        says="At the smallest scale the first ten coordinates are learned in Algorithm 1's order: fraction that is",
        source="Theorem 4.1",
        statistic=learning_order,
        low=1.0,
    ),
    Claim(
        name="times",
        says="At the smallest scale the first ten stage times are Algorithm 1's: largest relative error",
        source="Theorem 4.1; 1 % for O(1) e-folds out of log(1/alpha) = 74",
        statistic=stage_time_error,
        high=0.01,
    ),
    Claim(
        name="support",
        says="On each of the first ten plateaus that the smallest scale resolves, exactly the predicted coordinates "
        "are learned: wrong ones",
        source="Theorem 4.1",
        statistic=wrong_coordinates,
        high=0.0,
    ),
    Claim(
        name="loss-converges",
        says="The loss curves approach the staircase as alpha falls: largest ratio of distances",
        source="Figure 2a, Theorem 4.1",
        statistic=loss_convergence,
        high=1.0,
    ),
    Claim(
        name="weights-converge",
        says="The weights on the first ten plateaus approach theta^k as alpha falls: largest ratio of distances",
        source="Figure 2b, Theorem 4.1",
        statistic=weight_convergence,
        high=1.0,
    ),
    Claim(
        name="one-percent",
        says="Some stagewise learning is already clear with alpha = 0.01: plateaus of the loss after the first",
        source="Figure 2, caption; a plateau falls at most half as fast as the drops beside it",
        statistic=plateaus_at_one_percent,
        low=1.0,
    ),
)

metrics = (
    STAGES,
    RESOLVED,
    Metric(
        name="final_loss",
        says="final loss at the smallest α",
        statistic=lambda run: float(run.loss.isel(scale=-1, time=-1)),
        scale="log",
    ),
)
