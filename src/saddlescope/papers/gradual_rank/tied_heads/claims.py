"""The claims of the entry on tied heads, with their bounds and sources."""

from saddlescope.papers.gradual_rank.tied_heads.statistics import (
    arrival_margin,
    entering_coordinates,
    key_growth_error,
    largest_flatness,
    ratio_error,
)
from saddlescope.reproduction.claim import Claim

# The bounds. What the paper says must differ from 0 by more than rounding: 1e-9. What must happen instead is exact
# until the first key is learned, so the flow's own error is all there is: 1e-5 of an e-fold on dozens of them.
claims = (
    Claim(
        name="unique",
        says="Assumption 4.3 at the origin: the first coordinate to become active is unique; largest relative margin "
        "to the second, over all seeds",
        source="Assumption 4.3, as printed; a margin above rounding",
        statistic=arrival_margin,
        low=1e-9,
    ),
    Claim(
        name="strict",
        says="Assumption 4.4 at the end of the first stage: smallest curvature relative to the largest, the most of "
        "all seeds",
        source="Assumption 4.4, as printed; a curvature above rounding",
        statistic=largest_flatness,
        low=1e-9,
    ),
    Claim(
        name="at-most-one",
        says="At most one head's rank rises in the first stage, by at most one: coordinates learned at the smallest "
        "scale",
        source="Section 4, application of Theorem 4.1 to the transformer, as printed",
        statistic=entering_coordinates,
        high=1.0,
    ),
    Claim(
        name="ratio",
        says="The heads divide the first entry in the ratio that their initial weights set, at every alpha: largest "
        "relative error of b^1 / b^2 at t_1",
        source="equation 6 with identical gradients, in place of Assumption 4.3; the error asked of the flow",
        statistic=ratio_error,
        high=1e-4,
    ),
    Claim(
        name="keys",
        says="The keys break the tie: on the first plateau they grow in the ratio of the heads' shares; largest "
        "relative error at the smallest scale",
        source="the gradient of head i's keys at 0 is proportional to b^i; the error asked of the flow",
        statistic=key_growth_error,
        high=1e-3,
    ),
)
