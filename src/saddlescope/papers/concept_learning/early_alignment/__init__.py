"""Future directions: two-layer ReLU networks align early, and then behave like linear ones.

The paper names early alignment as the way to ReLU networks. Networks x -> V relu(W x) in the plane of two concepts are
trained by gradient descent on equation 2.1 from small normal weights of several scales, and compared with

    fastest    the direction in which one neuron escapes from the origin fastest, certified (`theory.escape`)
    predicted  every neuron's direction when the loss leaves its first plateau, by the flow of the homogeneous part of
               the loss, in which neurons do not interact (`theory.concepts.early_alignment`)
    leaving    when the loss has fallen by 2 % of its start
    linear     R^2 of the best linear map x -> B x, as an account of the network's outputs on the training data; its
               error at the test point, which combines both concepts, is a part of |B x^|

Time is that of gradient flow, steps times the learning rate. The weight of a neuron is its part of sum_i |v_i| |w_i|.
"""

from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.early_alignment import simulations
from saddlescope.papers.concept_learning.early_alignment.claims import claims
from saddlescope.papers.concept_learning.early_alignment.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Two concepts in the plane, five scales."""

    mu: tuple[float, ...] = param((1.0, 2.0), "signals, increasing")
    sigma: float = param(0.3, "standard deviation along either concept", gt=0)
    samples: int = param(150, "of each cluster", ge=2)
    neurons: int = param(50, "in the hidden layer", ge=2)
    scales: tuple[float, ...] = param((0.1, 0.03, 0.01, 1e-3, 1e-4), "of the weights times sqrt(neurons), decreasing")
    runs: int = param(6, "networks of every scale", ge=1)
    rate: float = param(0.01, "learning rate", gt=0)
    seed: int = param(0, "of the samples and of the first network; the others have the next ones", ge=0)

    def check(self) -> None:
        if len(self.mu) != 2 or not 0 < self.mu[0] < self.mu[1] < float("inf"):
            raise InputError(f"mu must be two positive numbers, increasing; got {self.mu!r}.")
        scales = self.scales
        if (
            len(scales) < 2
            or sorted(set(scales), reverse=True) != list(scales)
            or not 0 < scales[-1] <= scales[0] < 0.3
        ):
            raise InputError(f"scales must be two or more, positive, below 0.3 and decreasing; got {scales!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train all networks of a scale at once, scale by scale."""
    from saddlescope.models import StructuredIdentityTask
    from saddlescope.theory.escape import rank_one_escape_speed

    task = StructuredIdentityTask(params.mu, (params.sigma,) * 2, params.samples, 2)
    X = task.draw(params.seed)
    parts = []
    for n, scale in enumerate(params.scales):
        report = context.part(n / len(params.scales), (n + 1) / len(params.scales))
        parts.append(context.cached(f"scale-{n}", partial(simulations.train_networks, params, task, X, scale, report)))
    fastest = rank_one_escape_speed(X, -X / len(X), depth=2)
    direction = fastest.weights[0][0] / (fastest.weights[0][0] @ fastest.weights[0][0]) ** 0.5
    context.report(1.0, "done")
    return xr.concat(parts, "scale").assign(
        fastest=("coordinate", direction), speed=fastest.lower, speed_bound=fastest.upper
    ).assign_attrs(mu=list(params.mu))  # fmt: skip


entry = Entry(
    "concept-learning/early-alignment",
    "Future directions: two-layer ReLU networks align early, and then behave like linear ones",
    citation=CITATION,
    source="Appendix E.4",
    params=Params,
    quick=dict(samples=60, neurons=20, scales=(0.1, 1e-3), runs=2, rate=0.02),
    paper=dict(neurons=200, samples=1000, runs=10),
    run=run,
    claims=claims,
    figures=figures,
)
