"""Theorem 4.1: one layer in closed form, against gradient flow and SGD.

The output of the one-layer network at any point z, from any start W0, is growth plus noise. It is compared with
gradient flow of equation 4.1 by another integrator, on the gradient that JAX finds, and against SGD in the authors'
conventions from the actual start. Three statements of the text that hold only in part are tested as printed:

    sum       equation 4.2 sums the noise over the s concepts; for z outside their span it must run over all d
    bound     "the noise term is upper bounded by sum_i w_ki(0) mu_i": so only with absolute values
    monotone  one layer learns "monotonically": so from small starts only
"""

import xarray as xr

from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.theorem_4_1 import simulations
from saddlescope.papers.concept_learning.theorem_4_1.claims import claims, metrics
from saddlescope.papers.concept_learning.theorem_4_1.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """The paper's training at d = 64; exact flows of a small task."""

    dim: int = param(8, "dimension d of the exact flows, with three concepts", ge=4)
    flows: int = param(10, "exact flows, each from a start and at a point of its own", ge=1)
    runs: int = param(16, "SGD runs of each task, with biases and without", ge=2)
    samples: int = param(5000, "of each cluster, of SGD", ge=64)
    epochs: int = param(40, "of SGD", ge=1)
    starts: int = param(4000, "starts of each size whose loss is looked at for rises", ge=1)
    seed: int = param(0, "of the first flow, run and start", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Compute exact flows, train by SGD with biases and without, and count starts whose loss rises."""
    flows = context.cached("flows", lambda: simulations.exact_flows(params, context.part(0.0, 0.3)))
    sgd = [
        context.cached(
            f"sgd-{bias}",
            lambda bias=bias, n=n: simulations.sgd_runs(params, bias, context.part(0.3 + n / 4, 0.55 + n / 4)),
        )
        for n, bias in enumerate((True, False))
    ]
    rises = context.cached("rises", lambda: simulations.rising_losses(params, context.part(0.8, 1.0)))
    context.report(1.0, "done")
    return xr.merge([flows, xr.concat(sgd, dim="bias"), rises])


entry = Entry(
    "concept-learning/theorem-4-1",
    "Theorem 4.1: one layer in closed form, against gradient flow and SGD",
    citation=CITATION,
    source="Section 4.1 and Appendix C.2",
    params=Params,
    quick=dict(dim=5, flows=2, runs=2, samples=2500, epochs=80, starts=200),
    paper=dict(runs=40, flows=50, starts=50_000),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
