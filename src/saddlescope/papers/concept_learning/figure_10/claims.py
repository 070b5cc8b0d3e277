"""Claims of the entry `figure_10`."""

from functools import partial

from saddlescope.papers.concept_learning.figure_10 import statistics
from saddlescope.papers.concept_learning.figure_10.simulations import LIKE
from saddlescope.papers.concept_learning.shared.two_layer_runs import EXACT_LAW, EXACT_MAP_CLAIM
from saddlescope.reproduction.claim import Claim

_WHERE = "Appendix E.3 and Figure 10"

claims = (
    Claim(
        name="never",
        says="Printed: a major entry may be suppressed so that it never has a chance to grow: starts of full rank from "
        "which a concept is never learned",
        source=_WHERE,
        statistic=statistics.never_learned,
        low=1.0,
    ),
    Claim(
        name="always",
        says="Corrected: from full rank all is learned, sooner or later: share of starts that have",
        source="d/dt log det W = 4 tr(A (1 - W)); theory.concepts.predicted_limit",
        statistic=statistics.learned_share,
        low=1.0,
    ),
    Claim(
        name="plateau-looks",
        says="A plateau looks like the paper's failure at the horizon: relative distance of its loss from mu_1^2 / 2",
        source=f"{_WHERE}; {LIKE} for what looks like it",
        statistic=partial(statistics.horizon_loss_error, case="plateau"),
        high=LIKE,
    ),
    Claim(
        name="suppressed-first",
        says="There, too, w_11 is suppressed before it grows: its lowest value over the first",
        source=_WHERE,
        statistic=statistics.lowest_over_first,
        high=0.5,
    ),
    Claim(
        name="plateau-end",
        says="What the flow says at the horizon of the plateau's end comes true: error of w_11 = 1/2",
        source="SymmetricFlows.learned_at; this project's bar",
        statistic=partial(statistics.predicted_time_error, name="said_at_horizon"),
        high=0.02,
        unit="t",
    ),
    Claim(
        name="plateau-schur",
        says="So does what the Schur complements of the start say: the same error",
        source="theory.concepts.concept_stages; .11 is its error at scale 1e-2, and this start is larger",
        statistic=partial(statistics.predicted_time_error, name="predicted_time"),
        high=0.5,
        unit="t",
    ),
    Claim(
        name="plateau-learns",
        says="Continued, the run learns: loss at its end",
        source="The law of log det W",
        statistic=partial(statistics.case_value, case="plateau", name="end_loss"),
        high=1e-6,
    ),
    Claim(
        name="deficient",
        says="A start of rank 2 ends at the loss mu_1^2 / 2 for ever: distance at the end",
        source="theory.concepts.predicted_limit; this project's bar",
        statistic=statistics.deficient_loss_error,
        high=1e-9,
    ),
    Claim(
        name="told-apart",
        says="The flow tells plateau, learned and deficient rank apart: endings that it tells wrongly",
        source="This project's bar",
        statistic=statistics.wrong_endings,
        high=0.0,
    ),
    Claim(
        name="printed-map",
        says="The printed map D.2 loses positive semidefiniteness from many random starts of full rank: share",
        source="D.2 lacks the term eta^2 grad grad^T of a gradient step in U; 5 to 40 % in trial runs at steps of .01",
        statistic=statistics.indefinite_share,
        low=0.05,
        high=0.4,
    ),
    Claim(
        name="printed-map-rests",
        says="But it does not rest where Figure 10 does: its runs that end with a loss like mu_1^2 / 2",
        source="W = diag(0, 1, 1) repels on both sides: from w_11 < 0 it goes to minus infinity",
        statistic=statistics.map_runs_like_figure,
        high=0.0,
    ),
    Claim(
        name="with-A",
        says="With the paper's A few starts have not learned at the horizon: share with w_11 < 1/2",
        source="log(1 / s_1 - 1) / (4 a_1) of random starts; .01 in a pilot",
        statistic=partial(statistics.start_share, moment="A", name="unlearned"),
        high=0.05,
    ),
    Claim(
        name="with-A-squared",
        says="With A^2, as reported of the authors' programs, almost all have not: the same share",
        source="The same with a_1^2 for a_1; .999 in a pilot",
        statistic=partial(statistics.start_share, moment="A^2", name="unlearned"),
        low=0.95,
    ),
    EXACT_MAP_CLAIM,
    Claim(
        name="log-det",
        says="log det W grows by its law from the start of the plateau: difference over the run",
        source="Jacobi's formula, exact; this project's bar",
        statistic=partial(statistics.case_value, case="plateau", name="drift"),
        high=EXACT_LAW,
    ),
)
