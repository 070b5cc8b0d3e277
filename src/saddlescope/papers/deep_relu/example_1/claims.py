"""Claims on the optimum of Example 1 and of circles like it."""

from functools import partial

from saddlescope.papers.deep_relu.example_1 import statistics
from saddlescope.papers.deep_relu.example_1.statistics import ROUNDING
from saddlescope.reproduction.claim import Claim, Estimate

# The bounds. Known values are held to 1e-8, the agreement of the bounds that this project set itself; where the paper's
# statement is wrong, both its own words and the corrected statement are judged.
claims = (
    Claim(
        name="optimum",
        says="At N = 8 the largest speed of all networks of depth 3 is 1/2: nothing is faster than the paper's network",
        source="Example 1, footnote 2, which leaves it open; held to this project's 1e-8",
        statistic=partial(statistics.middle_of_bounds, samples=8),
        low=0.5 - 1e-8,
        high=0.5 + 1e-8,
    ),
    Claim(
        name="bounds-meet",
        says="The bounds meet on every circle: largest upper bound less lower bound",
        source="This project's bar: 1e-8 for N up to 16",
        statistic=statistics.largest_gap,
        high=1e-8,
    ),
    Claim(
        name="printed-weights",
        says="The weights (2) as printed have speed 1/2",
        source="Example 1, equation 2, the paper's own words; Tr[G^T Y] is +1/2 there",
        statistic=lambda run: Estimate(float(run.printed_speed), ROUNDING),
        low=0.5 - 1e-9,
        high=0.5 + 1e-9,
    ),
    Claim(
        name="corrected-weights",
        says="With W_3 = -1 they have speed 1/2",
        source="Example 1, corrected: the speed is -Tr[G^T Y]",
        statistic=lambda run: Estimate(float(run.corrected_speed), ROUNDING),
        low=0.5 - 1e-9,
        high=0.5 + 1e-9,
    ),
    Claim(
        name="rank-one",
        says="With every layer of rank one the largest speed at N = 8 is sqrt 2 - 1",
        source="Example 1; exact, at any depth",
        statistic=partial(statistics.middle_of_bounds, samples=8, lower="rank_one", upper="rank_one_upper"),
        low=2**0.5 - 1 - 1e-9,
        high=2**0.5 - 1 + 1e-9,
    ),
    Claim(
        name="first-layer",
        says="The certified network's first layer has rank 2",
        source="Example 1",
        statistic=partial(statistics.layer_rank, name="ranks", layer=1),
        low=2.0,
        high=2.0,
    ),
    Claim(
        name="printed-second-layer",
        says="The second layer of the paper's network has rank 2, too",
        source="Introduction, the paper's own words: the first two weight matrices are rank 2",
        statistic=partial(statistics.layer_rank, name="printed_ranks", layer=2),
        low=2.0,
        high=2.0,
    ),
    Claim(
        name="second-layer",
        says="From the second layer on the certified network has rank 1",
        source="Corrected: the ranks are 2, 1, 1, as one neuron in the second layer says",
        statistic=partial(statistics.layer_rank, name="ranks", layer=2),
        low=1.0,
        high=1.0,
    ),
    Claim(
        name="rank-one-circles",
        says="The rank-one optimum is tan(pi/N) where 4 divides N, and 0 on the other circles: largest deviation",
        source="Exact (a geometric series); the paper has N = 8",
        statistic=statistics.rank_one_error,
        high=1e-9,
    ),
    Claim(
        name="closed-form",
        says="Where 4 divides N, s* is 1 / (1 + cot(2 pi/N)): largest deviation of a bound",
        source="Seen in certified values of a trial run; not proven, not in the paper",
        statistic=statistics.closed_form_error,
        high=1e-8,
    ),
)
