"""Claims on how often descent finds a fast escape direction."""

from functools import partial

from saddlescope.papers.deep_relu.escape_width import statistics
from saddlescope.reproduction.claim import Claim

_PILOT = "the bound from a pilot on another seed"


claims = (
    Claim(
        name="cube",
        says="The odds of a faster run grow as the cube of the width, L = 3: power",
        source=f"this project's, after Figure 2, which has no numbers; {_PILOT}: 3.1 ± 0.4",
        statistic=statistics.power,
        low=2.5,
        high=3.5,
    ),
    Claim(
        name="law",
        says="The share of faster runs keeps to that law, L = 3: largest distance",
        source=f"this project's; {_PILOT}: 0.08 with half as many starts",
        statistic=statistics.distance_from_law,
        high=0.12,
    ),
    Claim(
        name="no-lottery",
        says="A network of twice the width does better than two independent tries: the share of faster runs less "
        "1 - (1 - p)^2, where it is most",
        source=f"against wide networks as many narrow ones; {_PILOT}",
        statistic=statistics.gain_over_two_tries,
        low=0.0,
    ),
    Claim(
        name="first-layer",
        says="The first hidden layer's width counts more than the second's, L = 3: power of the one less that of the "
        "other",
        source="at L = 3 an optimum needs one neuron in the second (the argument of Proposition 3.2), several in the "
        f"first; {_PILOT}",
        statistic=statistics.first_layer_advantage,
        low=0.0,
    ),
    Claim(
        name="depth-faster",
        says="Depth makes fast runs rarer at the largest width: share of faster runs at L = 3 less that at the largest "
        "depth",
        source=f"this project's; {_PILOT}",
        statistic=partial(statistics.depth_difference, success="faster"),
        low=0.0,
    ),
    Claim(
        name="depth-optimal",
        says="And optimal ones much rarer: the same of optimal runs",
        source=f"this project's; {_PILOT}",
        statistic=partial(statistics.depth_difference, success="optimal"),
        low=0.25,
    ),
    Claim(
        name="no-depth",
        says="As first posed: width makes up for depth, and the odds grow as the cube of it at the largest depth, too: "
        "power",
        source="this project's, before the pilot; the bounds are those at L = 3",
        statistic=statistics.deep_power,
        low=2.5,
        high=3.5,
    ),
    Claim(
        name="conjecture-1-deep",
        says="Wide networks find the optimal direction, at the largest depth and width: share of runs",
        source="Section 5, conjecture 1; read as: nine times out of ten, of the widest network here",
        statistic=statistics.widest_optimal_share,
        low=0.9,
    ),
    Claim(
        name="ceiling",
        says="No run of any depth is faster than 1/2: most by which one is",
        source="certified at L = 3 (theory.escape.certificate); deeper networks are at least as fast (Proposition 3.2)",
        statistic=statistics.excess_over_optimum,
        high=1e-6,
    ),
)
