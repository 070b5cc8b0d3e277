"""Claims of the entry `descents`."""

from functools import partial

from saddlescope.papers.concept_learning.descents import statistics
from saddlescope.reproduction.claim import Claim

_BAR = "this project's bar, written before the run; from pilots on other seeds"

claims = (
    Claim(
        name="triple",
        says="On Figure 8's data normal starts of scale 0.1 have exactly three descents with probability 0.010",
        source=_BAR,
        statistic=partial(statistics.descent_probability, name="Figure 8", law="normal", least=3, most=3),
        low=0.008,
        high=0.012,
    ),
    Claim(
        name="quadruple",
        says="Four descents are possible with four concepts: how many positive starts on Figure 9's data have them",
        source="Appendix E.1, Figure 9; the bound: one",
        statistic=partial(statistics.start_count, name="Figure 9", law="uniform", least=4),
        low=1.0,
    ),
    Claim(
        name="subtle",
        says="As printed: multiple descents need a subtle choice, a tuned seed: share of three or more among positive "
        "starts on Figure 8's data",
        source="Appendix E.1; the bound, that one start in twenty is no subtle choice, is this project's",
        statistic=partial(statistics.descent_probability, name="Figure 8", law="uniform", least=3),
        high=0.05,
    ),
    Claim(
        name="positive",
        says="Positive minor entries make the loss rise in between: P(two or more descents) of positive starts less "
        "that of normal ones, Figure 5's data",
        source="section 4.2.2; the bound: a difference at all",
        statistic=statistics.probability_gain,
        low=0.0,
    ),
    Claim(
        name="conjecture",
        says="There are at most s descents, from any start: exceptions, counted at two tolerances",
        source="a conjecture of this project's, of section 4.2.2's cycle: one descent for each concept",
        statistic=partial(statistics.conjecture_exceptions, small=False),
        high=0.0,
    ),
    Claim(
        name="conjecture-small",
        says="There are at most s descents from starts with no eigenvalue of W(0) above 1: exceptions",
        source="the same, for the small starts of which section 4.2 speaks",
        statistic=partial(statistics.conjecture_exceptions, small=True),
        high=0.0,
    ),
    Claim(
        name="one-more",
        says="A search among starts of entries up to 0.3 does not find s + 1 descents, for s = 2 and 3: finds",
        source="the same conjecture, put to an adversarial test",
        statistic=statistics.extra_descents,
        high=0.0,
    ),
    Claim(
        name="third-rise",
        says="The loss can rise far before a third descent: the largest such rise found, over |x|^2 / 2",
        source=_BAR,
        statistic=partial(statistics.largest_rise, kind="three"),
        low=0.08,
    ),
    Claim(
        name="fourth-rise",
        says="And before a fourth: the largest such rise found, over |x|^2 / 2",
        source=_BAR,
        statistic=partial(statistics.largest_rise, kind="four"),
        low=0.03,
    ),
)
