"""Figure 12: two-layer ReLU networks learn the stronger and the more diverse concept first.

As Figure 2 with two layers and ReLU between them, at d = 64 with 64 hidden units, trained by SGD in the conventions of
`shared.perceptron_training`.
"""

import xarray as xr

from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.shared import learning_order as orders
from saddlescope.papers.concept_learning.shared.learning_order import QUICK
from saddlescope.plot import Figure
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param


class Params(orders.OrderParams):
    """The paper's training, for several seeds."""

    every: int = param(20, "steps between two marks")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train all networks at once."""
    return orders.run_two_layers(params, context, relu=True)


claims = (*orders.order_claims("Figure 12"), orders.arrival_claim("Figure 12"))


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the paper's two panels."""
    return [
        Figure(
            name="trajectories",
            title="Two layers with ReLU keep the order, too",
            caption="The output at the test point, for one seed, in the plane of the two concepts; points at equal "
            "times, large points where it must end. With ReLU the map is not linear: the output can pass the test "
            "point by before it turns back to it, and after 40 epochs it is still on its way.",
            panels=orders.trajectory_panels(run),
            table=orders.order_table(run),
        )
    ]


entry = Entry(
    "concept-learning/figure-12",
    "Figure 12: two-layer ReLU networks learn the stronger and the more diverse concept first",
    citation=CITATION,
    source="Appendix F, Figure 12",
    params=Params,
    quick=QUICK,
    run=run,
    claims=claims,
    figures=figures,
)
