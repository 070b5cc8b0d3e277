"""Claims of the entry `atlas`."""

from saddlescope.papers.concept_learning.atlas import statistics
from saddlescope.reproduction.claim import Claim

claims = (
    Claim(
        name="conjecture",
        says="There are at most s descents from starts with no eigenvalue of W(0) above 1: exceptions",
        source="a conjecture of this project's, of section 4.2.2's cycle: one descent for each concept",
        statistic=statistics.exceptions,
        high=0.0,
    ),
    Claim(
        name="all-learn",
        says="Every start of full rank generalizes in the end: starts that have not",
        source="d/dt log det W = 4 tr(A (1 - W)), against the trap of appendix E.3",
        statistic=statistics.failures,
        high=0.0,
    ),
    Claim(
        name="equal",
        says="With equal strengths there is one descent, from any W(0) below the identity: starts with more",
        source="exact: W keeps its eigenvectors, and its eigenvalues grow",
        statistic=statistics.equal_strength_exceptions,
        high=0.0,
    ),
    Claim(
        name="apart",
        says="Concepts far apart make the loss rise more often than near ones: P(two or more visible descents) at the "
        "largest ratio of mu less that at the smallest above 1",
        source="section 4.2.1: the difference of a_1 and a_2 must be large for suppression; the bound: a difference",
        statistic=statistics.ratio_difference,
        low=0.0,
    ),
    Claim(
        name="wide",
        says="Wide networks hardly have transient memorization: P(two or more visible descents) at the largest width "
        "over that at d' = d",
        source="appendix E.2; the bound from trial runs at one ratio, on other seeds",
        statistic=statistics.width_ratio,
        high=0.15,
    ),
    Claim(
        name="logarithmic",
        says="The time to generalize grows by log(1 / tau^2) / (4 a_1): slope over this, up to a scale of 0.01",
        source="section 4.2.1's initial growth, with a_1 of the weakest concept; the bound this project's",
        statistic=statistics.time_slope,
        low=0.98,
        high=1.02,
    ),
)
