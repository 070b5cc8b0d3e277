"""Figure 10: a concept that seems never to be learned, and what that can have been.

The paper's run ends with the weakest concept's major entry near 0 and the loss near mu_1^2 / 2 = .245: "suppressed to 0
before it starts to grow, and thus never has chance to grow". From a start of full rank that cannot be, since
d/dt log det W = 4 tr(A (1 - W)) is positive there: all of W is learned. Three things look like it:

    plateau      a start of full rank, but close to one of lower rank, not given the time: the end of the plateau
                 is predicted, and the run continues until then
    deficient    U of two columns: W has rank 2 for ever
    printed map  the iteration D.2 drops a term eta^2 grad grad^T, and loses positive semidefiniteness

And the authors' programs, as reported, square A (see `concept-learning/authors-scripts`): with A^2 for A the weakest
concept takes several times as long, and their 2000 steps of .01 end before it is learned from almost every start.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.figure_10 import simulations
from saddlescope.papers.concept_learning.figure_10.claims import claims
from saddlescope.papers.concept_learning.figure_10.figures import figures
from saddlescope.papers.concept_learning.shared.two_layer_runs import TwoLayerParams, strengths_and_test_point
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param


class Params(TwoLayerParams):
    """The paper's data, from a batch of random starts."""

    mu: tuple[float, ...] = param((0.7, 1.7, 3.0), "distance of each cluster from the origin, the first the smallest")
    horizon: float = param(20.0, "where a run would end: the time of the authors' 2000 steps of .01")
    until: float = param(120.0, "where it ends here")
    scale: float = param(0.1, "standard deviation of the entries of U", ge=1e-6, le=0.3)
    starts: int = param(8192, "random starts of full rank; the one whose plateau is longest is shown", ge=1)
    map_starts: int = param(1024, "of these from which the printed map is iterated", ge=1)
    seed: int = param(0, "of all starts", ge=0)

    def check(self) -> None:
        super().check()
        if list(self.mu) != sorted(self.mu) or len(self.mu) < 3:
            raise InputError(f"mu must be three or more numbers, ascending; got {self.mu!r}.")
        if not 0 < self.horizon < self.until:
            raise InputError(f"horizon must be positive and below until={self.until!r}; got {self.horizon!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the batch and the two starts that end like the paper's run, and iterate the printed map."""
    a, x = strengths_and_test_point(params.mu, params.sigma)
    rng = np.random.default_rng(params.seed)
    starts = params.scale * rng.standard_normal((params.starts, len(a), len(a)))
    low = params.scale * rng.standard_normal((len(a), len(a) - 1))
    batch = context.cached("batch", partial(simulations.random_batch, a, x, starts, params, context))
    context.report(0.6, "the longest plateau, and a start of lower rank")
    longest = starts[int(np.argmax(batch.learned_at.values))]
    cases = xr.concat(
        [simulations.single_run(a, x, start, params) for start in (longest, np.pad(low, ((0, 0), (0, 1))))],
        dim="case",
        join="outer",
    ).assign_coords(case=list(simulations.CASES))
    context.report(0.7, "the printed map")
    printed = context.cached(
        "printed", partial(simulations.printed_map_runs, a, x, starts[: params.map_starts], params)
    )
    context.report(1.0, "done")
    return xr.merge([cases, batch, printed]).assign(horizon=params.horizon, lost_loss=float(x[0] ** 2 / 2))


entry = Entry(
    "concept-learning/figure-10",
    "Figure 10: a concept that seems never to be learned, and what that can have been",
    citation=CITATION,
    source="Appendix E.3",
    params=Params,
    quick=dict(starts=512, map_starts=96),
    run=run,
    claims=claims,
    figures=figures,
)
