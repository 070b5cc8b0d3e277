"""Claims and metrics of the entry `width`."""

from functools import partial

from saddlescope.papers.concept_learning.width import statistics
from saddlescope.reproduction.claim import Claim
from saddlescope.reproduction.metric import Metric

claims = (
    Claim(
        name="wide",
        says="Transient memorization dies out with the width: P(two or more descents) at the largest width, d = 2",
        source="appendix E.2; the bound from trial runs on other seeds, at scales near 0.05",
        statistic=statistics.widest_share,
        high=0.05,
    ),
    Claim(
        name="dimension",
        says="It does not with the dimension, the width kept: P(two or more) at d = 2 less that at a higher d, mean "
        "over all widths, at the smallest scale",
        source="this project's, against sections 3.3 and E.2; the bound from trial runs on other seeds",
        statistic=statistics.dimension_difference,
        low=-0.04,
        high=0.04,
    ),
    Claim(
        name="low-dimension",
        says="As printed: it is strongest when the dimensionality of the data is low: the same difference",
        source="section 3.3, where d' = d in all runs, taken for the dimension alone; the bound this project's",
        statistic=statistics.dimension_difference,
        low=0.05,
    ),
    Claim(
        name="any-scale",
        says="As printed, for the small starts of the theory: a width of 16 is high, too: P(two or more) at the "
        "smallest scale",
        source="appendix E.2, which has no scale in it; the bound this project's",
        statistic=statistics.smallest_scale_share,
        high=0.05,
    ),
    Claim(
        name="major-entries",
        says="w_ii(0) is d' tau^2 in the mean: over it",
        source="equation E.1; exact, the bound for the sample",
        statistic=partial(statistics.entry_moment, kind="major"),
        low=0.98,
        high=1.02,
    ),
    Claim(
        name="minor-entries",
        says="w_ij(0) is 0 in the mean: over sqrt(d') tau^2",
        source="equation E.1; exact, the bound for the sample",
        statistic=partial(statistics.entry_moment, kind="minor"),
        low=-0.02,
        high=0.02,
    ),
    Claim(
        name="sqrt-width",
        says="Minor entries have the size sqrt(d') tau^2, so that major ones are sqrt(d') times as large: root of "
        "their mean square, over it",
        source="what E.1 leaves out; exact, the bound for the sample",
        statistic=partial(statistics.entry_moment, kind="size"),
        low=0.97,
        high=1.03,
    ),
    Claim(
        name="sgd",
        says="Minibatch SGD on U keeps three descents: part of the runs with three above a hysteresis of 0.5 %",
        source="section 4.2's flow against training; the bound this project's",
        statistic=statistics.sgd_share,
        low=0.99,
    ),
)

metrics = (
    Metric(
        name="several",
        says="share of starts with two or more descents, over all widths and scales",
        statistic=lambda run: float(run.several.sum() / run.starts.sum()),
    ),
    Metric(
        name="visible",
        says="share of starts with two or more visible descents, over all widths and scales",
        statistic=lambda run: float(run.visible.sum() / run.starts.sum()),
    ),
)
