"""Claims on when diagonal weights diverge, and how fast."""

from saddlescope.papers.softmax_attention.lemma_4_2 import statistics
from saddlescope.reproduction.claim import Claim

claims = (
    Claim(
        name="as-printed",
        says="Where some W separates the data, |beta(t)| tends to infinity: flows that end at a finite strict minimum",
        source="Lemma 4.2 under Assumptions 1 and 2 as printed; no exception is allowed",
        statistic=statistics.finite_flows,
        high=0.0,
    ),
    Claim(
        name="with-diagonal-separability",
        says="Where diagonal weights do, it does: flows whose |beta| does not double from t = 1e30 to 1e300",
        source="Lemma 4.2 with what its proof uses; |beta| grows like ln t, tenfold. No exception is allowed",
        statistic=statistics.flows_that_do_not_double,
        high=0.0,
    ),
    Claim(
        name="gradient-vanishes",
        says="lim |grad L| = 0, not just the lower limit: flows whose t |grad L| does not fall from t = 1e30 to 1e300",
        source="Lemma 4.2's proof; t |grad L| falls like 1 / ln t, tenfold. No exception is allowed",
        statistic=statistics.gradients_that_do_not_fall,
        high=0.0,
    ),
    Claim(
        name="gradient-law",
        says="It does so like 1/(2 t ln t), as first posed: largest |2 t ln t |grad L| - 1| at t = 1e300",
        source="The law of beta growing like ln t; the bound is this project's, for corrections of ln ln t / ln t",
        statistic=statistics.slowness_error,
        high=0.1,
    ),
    Claim(
        name="no-stationary-point",
        says="<-grad L, beta_f> >= sum r > 0 at any weights, with beta_f feasible: random weights that violate it",
        source="Appendix A.4, below equation 29, exact; so the loss has no stationary point",
        statistic=statistics.violations,
        high=0.0,
    ),
)
