"""Claims and metrics of the entry `deep_stages`."""

from saddlescope.papers.concept_learning.deep_stages import statistics
from saddlescope.reproduction.claim import Claim
from saddlescope.reproduction.metric import Metric

_PILOT = "this project's prediction; bound from a pilot on seeds 200 to 215"

claims = (
    Claim(
        name="median",
        says="Stage times from random starts, smallest scale: median error of a start's worst stage, worst depth",
        source=f"{_PILOT}: .0008",
        statistic=statistics.median_error,
        high=0.005,
    ),
    Claim(
        name="largest",
        says="The same: largest error of any stage of any start",
        source=f"{_PILOT}: .013",
        statistic=statistics.largest_error,
        high=0.04,
    ),
    Claim(
        name="leading-order",
        says="The median error falls at least as fast as the scale: factor of the error over that of the scale",
        source="the prediction is the leading order for small weights; a pilot had 2.7 or more",
        statistic=statistics.error_over_scale,
        low=1.0,
    ),
    Claim(
        name="order",
        says="The order of learning is the one predicted: share of the starts at the smallest scale",
        source=f"{_PILOT}: all",
        statistic=statistics.same_order,
        low=1.0,
        high=1.0,
    ),
    Claim(
        name="power-law",
        says="Beyond depth 2 the times of the first and the last stage grow as omega^(2 - L): distance of the exponent",
        source="this project's prediction; a tenth for constants of the order 1/a in T",
        statistic=statistics.exponent_error,
        high=0.1,
    ),
    Claim(
        name="balanced",
        says="From balanced diagonal starts the times are those in closed form: largest error in the flow's tolerances",
        source="exact; the flow promises up to 3 times its tolerance",
        statistic=statistics.balanced_error,
        high=5.0,
    ),
    Claim(
        name="flip",
        says="Beyond depth 2 a weaker concept comes first where a_k u_k^(L - 2) is larger, u_k in each layer: share",
        source="this project's prediction, to leading order",
        statistic=statistics.flips,
        low=1.0,
        high=1.0,
    ),
    Claim(
        name="turning-rate",
        says="A weaker concept learned first is given up at the rate predicted: measured over predicted",
        source="this project's prediction, linear; a twentieth",
        statistic=statistics.turning_rate,
        low=0.95,
        high=1.05,
    ),
    Claim(
        name="forgotten",
        says="It is forgotten then: what is left of its w_kk when the stronger one is learned",
        source="this project's prediction: 0 to leading order",
        statistic=statistics.remainder,
        high=0.05,
    ),
)

metrics = (
    Metric(
        name="time_error",
        says="stage times off the prediction at the smallest scale, largest relative",
        statistic=lambda run: float(abs(run.found.isel(scale=-1) / run.predicted.isel(scale=-1) - 1).max()),
        scale="log",
    ),
    Metric(
        name="last_time",
        says="time of the last stage at the smallest scale, mean over depths and starts",
        statistic=lambda run: float(run.found.isel(scale=-1).max("concept").mean()),
        scale="log",
    ),
)
