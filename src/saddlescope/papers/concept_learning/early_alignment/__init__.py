"""Future directions: two-layer ReLU networks align early, and then behave like linear ones   (Appendix E.4)

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

from dataclasses import dataclass
from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning.early_alignment import simulations
from saddlescope.papers.concept_learning.early_alignment.claims import claims
from saddlescope.papers.concept_learning.early_alignment.figures import figures
from saddlescope.reproduction import parameter_checks
from saddlescope.reproduction.context import RunContext

__all__ = ["Params", "claims", "figures", "run"]


@dataclass(frozen=True, kw_only=True)
class Params:
    """Two concepts in the plane, five scales."""

    mu: tuple[float, ...] = (1.0, 2.0)  # signals, increasing
    sigma: float = 0.3  # standard deviation along either concept
    samples: int = 150  # of each cluster
    neurons: int = 50  # in the hidden layer
    scales: tuple[float, ...] = (0.1, 0.03, 0.01, 1e-3, 1e-4)  # of the weights times sqrt(neurons), decreasing
    runs: int = 6  # networks of every scale
    rate: float = 0.01  # learning rate
    seed: int = 0  # of the samples and of the first network; the others have the next ones

    def __post_init__(self) -> None:
        parameter_checks.require_at_least(2, self, "samples", "neurons")
        parameter_checks.require_at_least(1, self, "runs")
        parameter_checks.require_at_least(0, self, "seed")
        parameter_checks.require_positive(self, "sigma", "rate")
        if len(self.mu) != 2 or not 0 < self.mu[0] < self.mu[1] < float("inf"):
            raise InputError(f"mu must be two positive numbers, increasing; got {self.mu!r}.")
        scales = self.scales
        if (
            len(scales) < 2
            or sorted(set(scales), reverse=True) != list(scales)
            or not 0 < scales[-1] <= scales[0] < 0.3
        ):
            raise InputError(f"scales must be two or more, positive, below 0.3 and decreasing; got {scales!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Return parameters for a run of seconds: two networks of two scales."""
        return cls(samples=60, neurons=20, scales=(0.1, 1e-3), runs=2, rate=0.02)

    @classmethod
    def paper(cls) -> "Params":
        """Return more and wider networks; the paper has no experiment on this."""
        return cls(neurons=200, samples=1000, runs=10)


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
