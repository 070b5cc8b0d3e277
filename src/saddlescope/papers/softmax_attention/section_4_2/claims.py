"""Claims on the norm that each flow minimises, and on the laws of its loss."""

from functools import partial

from saddlescope.papers.softmax_attention.section_4_2 import statistics
from saddlescope.papers.softmax_attention.section_4_2.statistics import FACTORS, WEIGHTS
from saddlescope.reproduction.claim import Claim

claims = (
    Claim(
        name="frobenius",
        says="W alone: the Frobenius norm is minimised; largest excess at the last time",
        source="Section 4.2 after Tarzanagh et al. (2023a); excess is O(1 / ln t), the bound from trial runs on other "
        "seeds",
        statistic=partial(statistics.last_excess, norm="frobenius", of=WEIGHTS, largest=True),
        high=1e-4,
    ),
    Claim(
        name="nuclear",
        says="Keys and queries, as printed, outside Assumption 4: the nuclear norm is minimised; largest part of the "
        "excess at t = 1e10 that is left at the last time",
        source="Section 4.2; no proof and no rate outside Assumption 4, the bound from trial runs on other seeds",
        statistic=statistics.remaining_excess,
        high=0.25,
    ),
    Claim(
        name="falls",
        says="The nuclear excess of keys and queries falls between all recorded times: part of the draws",
        source="This project's, every draw",
        statistic=statistics.falling_share,
        low=1.0,
    ),
    Claim(
        name="below",
        says="It is below that of W alone at the last time: part of the draws",
        source="Section 4.2; every draw",
        statistic=partial(statistics.share_below, from_start=False),
        low=1.0,
    ),
    Claim(
        name="below-from-the-first",
        says="It is below that of W alone at all recorded times: part of the draws",
        source="This project's, stronger than what section 4.2 says; every draw",
        statistic=partial(statistics.share_below, from_start=True),
        low=1.0,
    ),
    Claim(
        name="not-nuclear",
        says="W alone does not minimise the nuclear norm: smallest excess at the last time",
        source="Section 4.2; the bound this project's, far above what is left at that time",
        statistic=partial(statistics.last_excess, norm="nuclear", of=WEIGHTS, largest=False),
        low=0.01,
    ),
    Claim(
        name="not-frobenius",
        says="Keys and queries do not minimise the Frobenius norm: smallest excess at the last time",
        source="Section 4.2; the bound this project's",
        statistic=partial(statistics.last_excess, norm="frobenius", of=FACTORS, largest=False),
        low=0.01,
    ),
    Claim(
        name="loss-of-weights",
        says="W alone: t (L - L*) is |W_F|_F^2 at t = 1e100; largest relative deviation",
        source="This project's law, from W = W_F ln t + O(1); the bound is its bar",
        statistic=partial(statistics.loss_law_error, of=WEIGHTS, log10_time=100.0),
        high=1e-4,
    ),
    Claim(
        name="loss-of-factors",
        says="Keys and queries: t mu (L - L*) is |W_*|_* / 2 at the last time; largest relative deviation",
        source="This project's law, the nuclear counterpart of the diagonal one, without a proof; the bound from trial "
        "runs on other seeds",
        statistic=partial(statistics.loss_law_error, of=FACTORS, log10_time=None),
        high=0.03,
    ),
)
