"""The claims of the entry on Assumptions 4.3 to 4.5, with their bounds and sources."""

from saddlescope.papers.gradual_rank.assumptions.statistics import (
    robust_to_noise,
    seeds_with_leaving,
    share_of_stages,
    smallest_value,
)
from saddlescope.reproduction.claim import Claim

# The bounds. Numbers count as different from 0, and times as different from each other, beyond 1e-9: Algorithm 1 takes
# rounding errors of the gradient to be 1e-11. Growth is measured in a ball of radius 1e-3, where terms of third order
# may take a per cent of it.
claims = (
    Claim(
        name="imbalance",
        says="|u_i(0)| and |v_i(0)| differ in every coordinate: smallest |log|u_i(0)/v_i(0)||",
        source="Assumption 4.3; beyond 1e-9",
        statistic=smallest_value("imbalance"),
        low=1e-9,
    ),
    Claim(
        name="unique",
        says="In every stage one coordinate arrives first: smallest margin over time",
        source="Assumption 4.3; beyond 1e-9",
        statistic=smallest_value("margin"),
        low=1e-9,
    ),
    Claim(
        name="nobody-leaves",
        says="No coordinate ever leaves the support: seeds in which one does",
        source="Appendix A, as printed: 'no coordinates ever leave the support'",
        statistic=seeds_with_leaving,
        high=0.0,
    ),
    Claim(
        name="leaving",
        says="What has left the support is pushed: smallest |g_i(theta^k)| of a coordinate that leaves, over the "
        "largest at the origin",
        source="Assumption 4.3: g_i(theta^k) is not 0; beyond 1e-9",
        statistic=smallest_value("left_gradient"),
        low=1e-9,
    ),
    Claim(
        name="strict-minima",
        says="Every theta^k is a strict local minimum on its support: smallest c_k",
        source="Assumption 4.4, with - L(theta^k), which is missing there; beyond 1e-9",
        statistic=smallest_value("curvature"),
        low=1e-9,
    ),
    Claim(
        name="growth",
        says="The loss grows around theta^k, on its support, at least as c_k |u~ - u|^2: smallest growth over c_k",
        source="Assumption 4.4, with - L(theta^k); up to 1 % for terms of third order",
        statistic=smallest_value("growth"),
        low=0.99,
    ),
    Claim(
        name="printed-4.4",
        says="Assumption 4.4 as printed also holds where there is no minimum: fraction of such points where it does",
        source="Assumption 4.4, without - L(theta^k), as printed: it says nothing where the loss is not 0",
        statistic=share_of_stages(lambda run: run.printed_elsewhere == 1),
        low=1.0,
    ),
    Claim(
        name="noise-robust",
        says="With small enough noise on theta^k and on what enters, gradient flow ends at theta^(k+1): fraction of "
        "the stages where all draws do",
        source="Assumption 4.5; delta down to 1e-7, epsilon 1 % of the transition's size",
        statistic=share_of_stages(robust_to_noise),
        low=1.0,
    ),
)
