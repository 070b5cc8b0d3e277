"""Claims of the entry `authors_scripts`."""

from functools import partial

from saddlescope.papers.concept_learning.authors_scripts import statistics
from saddlescope.reproduction.claim import Claim

_NOTE = "Reported of the authors' programs, which are not part of the paper; the bound from a pilot on other seeds"

claims = (
    Claim(
        name="triple",
        says="Squaring A makes three descents on Figure 8's data commoner: their share with A^2 over that with A",
        source=f"{_NOTE}, 2.3",
        statistic=partial(statistics.share_ratio, figure="Figure 8", descents=3),
        low=1.5,
    ),
    Claim(
        name="quadruple",
        says="And four descents on Figure 9's: the same ratio",
        source=f"{_NOTE}, 13",
        statistic=partial(statistics.share_ratio, figure="Figure 9", descents=4),
        low=3.0,
    ),
    Claim(
        name="commonest-A",
        says="With the paper's A most of their starts on Figure 8's data have two descents: the commonest number",
        source=_NOTE,
        statistic=partial(statistics.commonest_count, convention="A"),
        low=2.0,
        high=2.0,
    ),
    Claim(
        name="commonest-A-squared",
        says="With A^2 most have three: the commonest number",
        source=_NOTE,
        statistic=partial(statistics.commonest_count, convention="A^2"),
        low=3.0,
        high=3.0,
    ),
    Claim(
        name="at-most-concepts",
        says="With no convention are there more descents than concepts: largest share of starts that have more",
        source="A conjecture from trial runs, without a proof",
        statistic=statistics.excess_share,
        high=0.0,
    ),
    Claim(
        name="learned-A",
        says="With A 2000 steps of .01 are enough on Figure 8's data: share of starts that have learned all",
        source=_NOTE,
        statistic=partial(statistics.learned_share, convention="A"),
        low=0.95,
    ),
    Claim(
        name="learned-A-squared",
        says="With A^2 they are not: the same share",
        source=f"{_NOTE}, .15",
        statistic=partial(statistics.learned_share, convention="A^2"),
        high=0.5,
    ),
    Claim(
        name="euler-sound",
        says="Euler's steps in U keep W positive semidefinite: runs that lose it",
        source="W = U U^T, whatever the step",
        statistic=partial(statistics.map_extreme, name="euler_lost", pick="max"),
        high=0.0,
    ),
    Claim(
        name="euler-descents",
        says="They show as many descents as the flow: least share of starts for which they do",
        source=f"{_NOTE}, .97",
        statistic=partial(statistics.map_extreme, name="euler_same", pick="min"),
        low=0.9,
    ),
    Claim(
        name="euler-error",
        says="But they are not exact: largest error of the loss, in units of |x|^2 / 2",
        source=f"{_NOTE}, .04; a step of .01 of first order",
        statistic=partial(statistics.map_extreme, name="euler_error", pick="max"),
        low=1e-3,
        high=0.1,
    ),
    *(
        Claim(
            name=f"printed-map-{law}",
            says=f"The printed map D.2 loses positive semidefiniteness from {law} starts of full rank: share, with A",
            source="D.2 lacks the term eta^2 grad grad^T of a gradient step in U; 5 to 40 % in trial runs",
            statistic=partial(statistics.indefinite_share, law=law),
            low=0.05,
            high=0.4,
        )
        for law in ("uniform", "normal")
    ),
)
