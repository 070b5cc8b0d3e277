"""The claims of Lemma 4.2, with their bounds and sources."""

from saddlescope.papers.gradual_rank.lemma_4_2.statistics import (
    decay_law_deviation,
    decay_power,
    equation_6_error,
    equation_7_error,
    kappa_drift,
    rounding_error,
    trajectory_difference,
)
from saddlescope.reproduction.claim import Claim

# The bounds. What is exact is held to 1e-10, a thousand times what thousands of steps of DOP853 at rtol 1e-13 leave.
claims = (
    Claim(
        name="conserved",
        says="An explicit solver in (u, v), at alpha = 0.01, keeps u^2 - v^2: largest drift, relative to the largest "
        "squared weight",
        source="Lemma 4.2, equation 5",
        statistic=kappa_drift("u", "v"),
        high=1e-10,
    ),
    Claim(
        name="flow-conserves",
        says="So do the weights that the flow of this package reconstructs: largest drift",
        source="Lemma 4.2, equation 5",
        statistic=kappa_drift("flow_u", "flow_v"),
        high=1e-10,
    ),
    Claim(
        name="flow-agrees",
        says="Both are the same trajectory: largest difference of a weight",
        source="A tolerance of 1e-8 in stage times of about 100, with weights that move by about 1 in a unit of time",
        statistic=trajectory_difference,
        high=1e-6,
    ),
    Claim(
        name="equation-6",
        says="w = u + v is w(0) times the exponential of the integral of g: largest difference, relative to the "
        "largest weight",
        source="Equation 6",
        statistic=equation_6_error,
        high=1e-10,
    ),
    Claim(
        name="equation-7",
        says="u and v follow from w and the initial weights: largest difference, relative to the largest weight",
        source="Equation 7",
        statistic=equation_7_error,
        high=1e-10,
    ),
    Claim(
        name="descent-power",
        says="Gradient descent lets the logarithm of u^2 - v^2 decay in proportion to the learning rate: power",
        source="A step multiplies it by 1 - eta^2 g^2",
        statistic=decay_power,
        low=0.95,
        high=1.05,
    ),
    Claim(
        name="descent-law",
        says="At the smallest learning rate by eta times the integral of g^2: largest relative deviation",
        source="A step multiplies it by 1 - eta^2 g^2; 5 % for the next order in eta",
        statistic=decay_law_deviation,
        high=0.05,
    ),
    Claim(
        name="held-by-float64",
        says="At alpha = 0.01 float64 weights tell u^2 - v^2: largest relative error of a learned coordinate",
        source="A rounding of 1e-16 beside alpha^2",
        statistic=rounding_error(-2.0, "max"),
        high=1e-9,
    ),
    Claim(
        name="lost-by-float64",
        says="At alpha = 1e-16 they do not, for any coordinate that has been learned: smallest relative error",
        source="A rounding of 1e-16 beside alpha^2",
        statistic=rounding_error(-16.0, "min"),
        low=1.0,
    ),
)
