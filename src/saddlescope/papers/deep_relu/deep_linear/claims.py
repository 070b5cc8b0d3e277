"""Claims on stages, levels and speeds of deep linear networks, and on the finder of stages."""

from functools import partial

from saddlescope.papers.deep_relu.deep_linear import statistics
from saddlescope.papers.deep_relu.deep_linear.statistics import SUCCESS_BARS
from saddlescope.reproduction.claim import Claim

claims = (
    Claim(
        name="stages",
        says="As many stages are found as are visible, in each of which every layer has the rank of the best fit: "
        "networks where not",
        source="Section 5 on linear networks; exact theory",
        statistic=statistics.wrong_networks,
        high=0.0,
    ),
    Claim(
        name="levels",
        says="The levels of the plateaus found are those of the best fits: largest distance, as a part of the range",
        source="exact theory; the bound from runs on other seeds, the plateaus being of finite length",
        statistic=statistics.level_error,
        high=1e-3,
    ),
    Claim(
        name="saddles",
        says="Every plateau lies at the level of a saddle of its rank, the best one or another: largest distance",
        source="exact theory; the same bound",
        statistic=statistics.distance_from_saddles,
        high=1e-3,
    ),
    Claim(
        name="speed",
        says="The leading singular pairs of the weights escape from the origin in the optimal direction, whose speed "
        "is |G X^T| at any depth: the part of it that they reach before the loss falls by 1 % of the drop, in the "
        "slowest network",
        source="Section 2.2 with linear layers; the bound from runs on other seeds, the initial scale being finite",
        statistic=statistics.speed_share,
        low=0.85,
        high=1.0 + 1e-9,
    ),
    *(
        Claim(
            name=f"synthetic-{noise:g}",
            says=f"Of synthetic staircases with noise {noise:g} of the range, found right in every stage, time, level "
            "and rank",
            source="this project's bar; staircases that no setting of the finder was made on",
            statistic=partial(statistics.synthetic_success, noise=noise),
            low=bar,
        )
        for noise, bar in SUCCESS_BARS.items()
    ),
)
