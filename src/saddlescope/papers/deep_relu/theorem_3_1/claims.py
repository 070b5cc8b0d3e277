"""Claims on where the bound of Theorem 3.1 has content, and on the sharper inequality."""

from functools import partial

from saddlescope.papers.deep_relu.theorem_3_1 import statistics
from saddlescope.reproduction.claim import Claim

# The bounds. A theorem is not to be violated; the first layer at which it has content follows from its own formula.
claims = (
    Claim(
        name="first-layer",
        says="For Example 1 the bound is below 1 from layer 114,985 on only",
        source="Theorem 3.1's formula with s* = 1/2: 81 (16 sqrt(2 log 16))^2 = 114,984.8",
        statistic=statistics.first_layer,
        low=114_984.0,
        high=114_986.0,
    ),
    Claim(
        name="printed-content",
        says="At layer 100 the bound says something (is below 1) for one of the circles",
        source="Theorem 3.1 as printed, which does not say where it begins to speak; this claim's bound is the content",
        statistic=statistics.smallest_practical_bound,
        high=1.0,
    ),
    Claim(
        name="holds",
        says="Where it is below 1, no layer of the optimum exceeds it: data sets where one does",
        source="Theorem 3.1, corrected: weights and ReLUs one layer later than printed",
        statistic=partial(statistics.violations, later=1),
        high=0.0,
    ),
    Claim(
        name="printed-layer",
        says="Nor with the layer as printed, l for weights and ReLUs, too",
        source="Theorem 3.1 as printed; its proof does not give that",
        statistic=partial(statistics.violations, later=0),
        high=0.0,
    ),
    Claim(
        name="budget",
        says="All layers together spend no more than the budget on rank and ReLU: data sets where they do",
        source="This project's sharper inequality, in the theorem's stead",
        statistic=statistics.overspending,
        high=0.0,
    ),
    Claim(
        name="content",
        says="It says that of Example 1's optimum at most so many layers can have a tail above 1/2, at any depth",
        source="The sharper inequality: 2 log 16 / log 2 = 8",
        statistic=statistics.layers_above_half,
        low=1.0,
        high=8.0,
    ),
)
