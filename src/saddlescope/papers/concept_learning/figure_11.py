"""Figure 11: two-layer linear networks learn the stronger and the more diverse concept first.

As Figure 2 with two layers, at d = 64 with 64 hidden units, trained by SGD in the conventions of
`shared.perceptron_training`.
"""

import xarray as xr

from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared import learning_order as orders
from saddlescope.papers.concept_learning.shared.learning_order import QUICK
from saddlescope.plot import Figure
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry


class Params(orders.OrderParams):
    """The paper's training, for several seeds."""


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train all networks at once."""
    return orders.run_two_layers(params, context, relu=False)


claims = (*orders.order_claims("Figure 11"), orders.arrival_claim("Figure 11"))


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the paper's two panels."""
    return [
        Figure(
            name="trajectories",
            title="Two linear layers keep the order of one",
            caption="The output at the test point, for one seed, in the plane of the two concepts; points "
            "at equal times, large points where it must end. Two layers leave the origin later "
            "and turn more sharply than one.",
            panels=orders.trajectory_panels(run),
            table=orders.order_table(run),
        )
    ]


entry = Entry(
    "concept-learning/figure-11",
    "Figure 11: two-layer linear networks learn the stronger and the more diverse concept first",
    citation=CITATION,
    source="Appendix F, Figure 11",
    params=Params,
    quick=QUICK,
    run=run,
    claims=claims,
    figures=figures,
)
