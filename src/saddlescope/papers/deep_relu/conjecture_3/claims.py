"""Claims on layers of rank one until the second saddle."""

from functools import partial

from saddlescope.papers.deep_relu.conjecture_3 import statistics
from saddlescope.reproduction.claim import Claim

_PILOT = "section 5, hypothesis 3; the bound from runs on other seeds"


claims = (
    Claim(
        name="rank-one",
        says="From the escape to the arrival at the second saddle no layer from the third on has more than one "
        "singular value above its initial bulk: the most that one has",
        source="section 5, hypothesis 3: layers of rank one remain so",
        statistic=partial(statistics.largest_over_passages, of=statistics.most_above_bulk),
        high=1.0,
    ),
    Claim(
        name="plateau",
        says="On the plateau of the second saddle the layers from the third on are found to have rank one: the largest "
        "difference",
        source="section 5, hypothesis 3",
        statistic=partial(statistics.largest_over_passages, of=statistics.plateau_rank_error),
        high=0.0,
    ),
    Claim(
        name="sharper",
        says="They even come nearer to rank one on the way: s_2/s_1 at the arrival over that at the escape, largest",
        source="beyond the paper; this project's bar",
        statistic=partial(statistics.largest_over_passages, of=statistics.ratio_growth),
        high=1.0,
    ),
    Claim(
        name="activations",
        says="So do the activations: the largest tail energy sum_(i>=2) s_i^2 / sum s_i^2 of Z^s in layers from the "
        "third on during the passage",
        source=_PILOT,
        statistic=partial(statistics.largest_over_passages, of=statistics.activation_tail),
        high=0.01,
    ),
    Claim(
        name="linear",
        says="And the layers stay nearly linear: largest |Z^s - Z| / |Z| at the arrival in layers from the third on",
        source=_PILOT,
        statistic=partial(statistics.largest_over_passages, of=statistics.nonlinearity_at_arrival),
        high=0.15,
    ),
    Claim(
        name="second-layer",
        says="The same for the second layer, which Theorem 3.1 does not bring near rank one: singular values above its "
        "initial bulk during the passage, most",
        source="a sharper form than the paper's: all layers but the first",
        statistic=partial(statistics.largest_over_passages, of=statistics.second_layer_above_bulk),
        high=1.0,
    ),
    Claim(
        name="first-layer",
        says="The first layer is not of rank one at the second saddle: least s_2/s_1 at the arrival",
        source="section 4 and Figure 1: the first layers have a higher rank; the bound from runs on other seeds",
        statistic=statistics.least_first_layer_ratio,
        low=0.15,
    ),
)
