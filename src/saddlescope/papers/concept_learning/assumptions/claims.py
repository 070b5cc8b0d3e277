"""Claims of the entry `assumptions`."""

from functools import partial

from saddlescope.papers.concept_learning.assumptions import statistics
from saddlescope.reproduction.claim import Claim, Estimate

claims = (
    Claim(
        name="largest-omega",
        says="As printed, they hold together at absurdly small starts only: log10 of the largest omega, two concepts",
        source="Assumptions D.1 to D.5, computed; the bound this project's",
        statistic=statistics.largest_omega,
        high=-60.0,
        unit="log10",
    ),
    Claim(
        name="in-practice",
        says="As printed: they commonly hold in practice. Part of the data of Figures 5, 8, 9 and 10 on which they "
        "hold at any start at all",
        source="Appendix D.1, literally: all four",
        statistic=statistics.allowed_data,
        low=1.0,
    ),
    Claim(
        name="can-be-met",
        says="As printed they can be met: settings of all constants at which they hold",
        source="Assumptions D.1 to D.5; the bound: one",
        statistic=partial(statistics.settings_held, kind="printed"),
        low=1.0,
    ),
    Claim(
        name="contradiction",
        says="With P^2 in D.4, which the proofs need (Corollary D.1), D.4 and D.5 contradict each other: settings at "
        "which they hold",
        source="this project's proof, in saddlescope.theory.concepts",
        statistic=partial(statistics.settings_held, kind="corrected"),
        high=0.0,
    ),
    Claim(
        name="no-free-direction",
        says="They exclude directions without data, d > s, since D.1 has 0 < alpha <= a_k: settings at which they hold",
        source="Assumption D.1",
        statistic=partial(statistics.settings_held, kind="without_data"),
        high=0.0,
    ),
    Claim(
        name="order",
        says="Far outside the assumptions concepts are still learned in the order of their strengths: least share of "
        "starts up to a scale of 0.001",
        source="section 4.2.1; the bound from trial runs on other seeds",
        statistic=partial(statistics.least_share, of="ordered", at=lambda run: run.sel(scale=run.scale <= 0.0011)),
        low=0.98,
    ),
    Claim(
        name="order-of-figures",
        says="At the scale of the figures, 0.1, too: least share of starts",
        source="section 4.2.1; the bound this project's",
        statistic=partial(statistics.least_share, of="ordered", at=lambda run: run.isel(scale=[0])),
        low=0.9,
    ),
    Claim(
        name="minor-small",
        says="Minor entries stay below 0.4, where Assertion D.1 with D.3 has them: least share of starts at any scale",
        source="Assertion D.1; the bound from trial runs on other seeds",
        statistic=partial(statistics.least_share, of="small", at=lambda run: run),
        low=0.97,
    ),
    Claim(
        name="learned",
        says="Every start generalizes in the end: least share at any scale",
        source="section 4.2.1, and d/dt log det W = 4 tr(A (1 - W)); exact",
        statistic=lambda run: Estimate(float((run.learned / run.starts).min())),
        low=1.0,
    ),
)
