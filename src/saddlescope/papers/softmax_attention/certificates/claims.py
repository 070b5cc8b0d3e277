"""Claims on certificates, and on ranks read off the answers of other solvers."""

from functools import partial

from saddlescope.papers.softmax_attention.certificates import statistics
from saddlescope.reproduction.claim import Claim

claims = (
    *(
        Claim(
            name=f"gap-{norm}",
            says=f"{of}: largest relative duality gap",
            source="This project's bar at (n, L, d) = (20, 10, 200)",
            statistic=partial(statistics.largest_gap, norm=norm),
            high=high,
        )
        for norm, of, high in (
            ("l1", "(l1-SVM), diagonal weights", 1e-12),
            ("frobenius", "(W_F-SVM)", 1e-12),
            ("nuclear", "(W_*-SVM)", 1e-10),
        )
    ),
    Claim(
        name="independent-solvers",
        says="HiGHS and Clarabel find the same optima: largest relative difference",
        source="Definitions of the three problems; the bound for the other solvers' tolerance of 1e-8",
        statistic=statistics.largest_difference,
        high=1e-6,
    ),
    Claim(
        name="ranks-certified",
        says="The rank read is the largest that any solution can have: part of all draws, l1 and nuclear",
        source="Strict complementarity, of Gaussian data with probability one; every draw",
        statistic=partial(statistics.certified_share, of="rank_certified"),
        low=1.0,
    ),
    Claim(
        name="unique",
        says="The solution is certified to be the only one: part of all draws, l1 and nuclear",
        source="Gaussian data have unique solutions with probability one; every draw",
        statistic=partial(statistics.certified_share, of="unique"),
        low=1.0,
    ),
    Claim(
        name="low-rank",
        says="The nuclear norm makes attention low rank: rank of W_* over that of W_F, mean",
        source='Section 4.2, "encourages a low-rank structure"; the bound this project\'s',
        statistic=statistics.rank_ratio,
        high=0.75,
    ),
    Claim(
        name="rank-as-read",
        says="Singular values above 1e-7 of the largest give the rank of W_*, at Clarabel's accuracy: part of draws",
        source="This project's question; trial runs on other seeds",
        statistic=partial(statistics.right_rank_share, accuracy="1e-8"),
        low=0.9,
    ),
    Claim(
        name="rank-as-read-loosely",
        says="They do at an accuracy of 1e-4, the default of first-order solvers, too: part of the draws",
        source="How such scripts read it; the bound this project's, the same",
        statistic=partial(statistics.right_rank_share, accuracy="1e-4"),
        low=0.9,
    ),
    Claim(
        name="not-fooled",
        says="No certificate of those answers vouches for a wrong rank: how many do",
        source="Definition of the certificate, none",
        statistic=statistics.wrong_certificates,
        high=0.0,
    ),
)
