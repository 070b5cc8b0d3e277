"""Claims on how often networks of depth 3 beat rank one and find the optimum."""

from functools import partial

from saddlescope.papers.deep_relu.figure_2 import statistics
from saddlescope.papers.deep_relu.figure_2.statistics import OPTIMAL
from saddlescope.reproduction.claim import Claim

_BAR = "Figure 2, which has no numbers; this project's bar, from trial runs of another implementation"


# The bounds: those of the paper's measure were this project's bar before any run, from trial runs of another
# implementation; the paper gives a figure without numbers. Error bars are 95 % intervals of binomial shares (Wilson).
claims = (
    Claim(
        name="narrow",
        says="N = 8, widths 1 and 2: runs that beat sqrt 2 - 1",
        source=_BAR,
        statistic=statistics.narrow_successes,
        high=0.0,
    ),
    Claim(
        name="width-32",
        says="N = 8, width 32: share of runs that beat sqrt 2 - 1",
        source=_BAR,
        statistic=partial(statistics.success_share, criterion=statistics.is_faster, width=32),
        low=0.9,
    ),
    Claim(
        name="width-64",
        says="N = 8, width 64: share of runs that beat sqrt 2 - 1",
        source=_BAR,
        statistic=partial(statistics.success_share, criterion=statistics.is_faster, width=64),
        low=0.97,
    ),
    Claim(
        name="rises",
        says="N = 8: wider networks beat sqrt 2 - 1 more often: least gain from one width to the next",
        source="Figure 2",
        statistic=statistics.least_gain_with_width,
        low=0.0,
    ),
    Claim(
        name="ceiling",
        says="No run is faster than the certificate allows: most by which one is",
        source="Example 1, whose footnote doubts that there is anything faster; certified here",
        statistic=statistics.excess_over_certificate,
        high=1e-6,
    ),
    Claim(
        name="polished",
        says="N = 8, widths 4 to 32: share of the runs at the optimum with speed and Clarke residual to 1e-12",
        source="this project's bar",
        statistic=statistics.polished_share,
        low=0.9,
    ),
    Claim(
        name="conjecture-1",
        says="N = 8, the largest width: share of runs that find the optimal direction",
        source="Section 5, conjecture 1; read as: nine times out of ten",
        statistic=partial(statistics.success_share, criterion=statistics.is_optimal),
        low=0.9,
    ),
    Claim(
        name="conjecture-1-harder",
        says="N = 16, the largest width: share of runs that find the optimal direction",
        source="Section 5, conjecture 1; read as: nine times out of ten",
        statistic=partial(statistics.success_share, criterion=statistics.is_optimal, circle=16),
        low=0.9,
    ),
    Claim(
        name="convex-steps",
        says="N = 16: what the best of the improved directions lacks of the certified optimum",
        source="beyond the paper; this project's bar",
        statistic=statistics.distance_from_optimum,
        high=OPTIMAL,
    ),
)
