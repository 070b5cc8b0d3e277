"""The claims of Figure 2 of the first version, with their bounds and sources."""

from saddlescope.papers.gradual_rank.figure_2_v1.statistics import (
    FIRST,
    average_overlap,
    blurred_overlap,
    conservation_drift,
    constant_change,
    diagonal_time_error,
    learning_order,
    plateau_ranks,
    remaining_loss,
    stage_time_error,
)
from saddlescope.papers.gradual_rank.shared.stage_times import STAGES
from saddlescope.reproduction.claim import Claim
from saddlescope.reproduction.metric import Metric

_ALLOWED = 3.0

# The bounds. A direction arrives after log(1/alpha) e-folds of growth, up to what the limit forgets: overlaps of
# Gaussian starts with singular directions, and one transition per stage, each O(1) e-folds. Three a stage are allowed.
claims = (
    Claim(
        name="end",
        says="The prediction for full weights ends at the teacher: its last loss, relative to the first",
        source="The teacher is the one global minimum; 1e-12 for sums of squares of rounding errors",
        statistic=remaining_loss,
        high=1e-12,
    ),
    Claim(
        name="order",
        says="Singular values of full weights rise in the predicted order at the smallest scale: fraction that does",
        source="docs: full weights; Figure 2 (d), (e) of version 1: learned incrementally",
        statistic=learning_order,
        low=1.0,
    ),
    Claim(
        name="times",
        says="They rise at the predicted times: largest relative error at the smallest scale, times log(1/alpha), "
        "divided by the number of the stage",
        source="docs: full weights; O(1) e-folds out of log(1/alpha) are forgotten by start and transitions, 3 a stage",
        statistic=stage_time_error,
        high=_ALLOWED,
        unit="e-folds",
    ),
    Claim(
        name="law",
        says="Times of separated stages converge as C_k / log(1/alpha): largest change of C_k between the two smallest "
        "scales",
        source="docs: full weights; C_k is O(1), so a law of that form changes it by much less than 1",
        statistic=constant_change,
        high=0.5,
        unit="e-folds / σ",
    ),
    Claim(
        name="ranks",
        says="In the middle of each plateau that the smallest scale resolves, both products have the predicted "
        "numerical ranks: fraction that does",
        source="Figure 2 (d), (e) of version 1: progressively increasing rank",
        statistic=plateau_ranks,
        low=1.0,
    ),
    Claim(
        name="one-by-one",
        says="At the smallest scale singular values rise one at a time: how many rise at once, on average",
        source="Figure 2 (d), (e) of version 1; 1 is one at a time, half of all would overlap pairwise at 1.5",
        statistic=average_overlap,
        high=1.5,
    ),
    Claim(
        name="blurred",
        says="At a large scale with a teacher of full rank they do not: how many rise at once, on average",
        source="Overlap of stages at O(1/log(1/alpha)); 1.5 as in one-by-one",
        statistic=blurred_overlap,
        low=1.5,
    ),
    Claim(
        name="conserved",
        says="W_K^T W_K - W_Q^T W_Q and W_V^T W_V - W_O^T W_O are conserved: largest drift in units of alpha^2",
        source="Lemma 4.2 for matrices; equation 5",
        statistic=conservation_drift,
        high=1e-10,
    ),
    Claim(
        name="diagonal",
        says=f"Diagonal weights are learned at Algorithm 1's times: largest error of the first {FIRST}, relative, "
        "times log(1/alpha), divided by the number of the stage",
        source="Theorem 4.5 of version 1; 3 e-folds a stage, as for full weights",
        statistic=diagonal_time_error,
        high=_ALLOWED,
        unit="e-folds",
    ),
)

metrics = (
    STAGES,
    Metric(
        name="in_transit",
        says="singular values that rise at a time, at the smallest α",
        statistic=lambda run: float(run.in_transit.isel(scale=-1)),
    ),
    Metric(
        name="final_loss",
        says="final loss at the smallest α",
        statistic=lambda run: float(run.loss.isel(scale=-1, time=-1)),
        scale="log",
    ),
)
