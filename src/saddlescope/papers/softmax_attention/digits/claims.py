"""Claims on the norms that the flows minimise on digits."""

from functools import partial

from saddlescope.papers.softmax_attention.digits import statistics
from saddlescope.reproduction.claim import Claim

_PILOT = "from the pilot on other images"


# The bounds were written down before the run. Pilot: the first ten images of every sixth pair, with the same head.
claims = (
    Claim(
        name="unequal",
        says="Assumption 2 does not hold: pairs whose patches have equal scores",
        source="a property of the data; exact count",
        statistic=partial(statistics.count, "equal"),
        high=0.0,
    ),
    Claim(
        name="key-query",
        says="Where the flow of K and Q chooses every optimal patch, it minimises the nuclear norm: share of pairs",
        source=f"section 4.2, beyond its assumptions; exact share of these pairs, {_PILOT} (4 of 4)",
        statistic=partial(statistics.decided_share, 0),
        low=0.9,
    ),
    Claim(
        name="key-query-never",
        says="And it never minimises the Frobenius norm: pairs where it does",
        source="section 4.2; exact count",
        statistic=partial(statistics.exceptions, 0),
        high=0.0,
    ),
    Claim(
        name="alone",
        says="Where the flow on W alone does, it minimises the Frobenius norm: share of pairs",
        source=f"section 4.2, after Tarzanagh et al. 2023a; exact share of these pairs, {_PILOT} (6 of 6)",
        statistic=partial(statistics.decided_share, 1),
        low=0.9,
    ),
    Claim(
        name="alone-never",
        says="And it never minimises the nuclear norm: pairs where it does",
        source="section 4.2; exact count",
        statistic=partial(statistics.exceptions, 1),
        high=0.0,
    ),
    Claim(
        name="diagonal-never",
        says="The diagonal flow never minimises the l2 norm: pairs where it does",
        source="Theorem 4.1, beyond its assumptions; exact count",
        statistic=partial(statistics.exceptions, 2),
        high=0.0,
    ),
    Claim(
        name="lost",
        says="But the flow of K and Q need not choose every optimal patch: pairs in which it is lost",
        source=f"Assumption 3 does not hold; at least one, {_PILOT} (4 of 8)",
        statistic=partial(statistics.lost_pairs, 0),
        low=1.0,
    ),
    Claim(
        name="ranks",
        says="The solution of least nuclear norm has the lower rank: pairs where it has not",
        source='section 4.2, "encourages a low-rank structure"; exact count',
        statistic=statistics.rank_exceptions,
        high=0.0,
    ),
)
