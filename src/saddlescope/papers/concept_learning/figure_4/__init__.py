"""Figure 4: major, minor and irrelevant entries of W, and their lives.

    major        w_pp of the s concepts
    minor        off the diagonal in the first s rows or columns; group p is row and column p
    irrelevant   the others, which exist where d > s

The paper draws the kinds. Here they are followed, from one start with two directions without a concept, and the four
statements of section 4.2.1 are tested from many starts on the concepts of Figure 8: they grow as
e^(2 (a_i + a_j) t) at first (t is the true time of gradient flow; the paper's is 2 t), each faster than those of weaker
concepts; then major entries are learned one by one, and each suppresses its group. When, and how high minor entries
come, is compared with the Schur complements of the start (`theory.concepts.concept_stages`).
"""

from functools import partial
from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.figure_4 import simulations
from saddlescope.papers.concept_learning.figure_4.claims import claims, metrics
from saddlescope.papers.concept_learning.figure_4.figures import figures
from saddlescope.papers.concept_learning.shared.two_layer_runs import (
    TwoLayerParams,
    follow_start,
    strengths_and_test_point,
)
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param


class Params(TwoLayerParams):
    """The concepts of Figure 8, with two more directions in the run that is shown."""

    empty: int = param(2, "directions without a concept, in the run that is shown", ge=1)
    until: float = param(60.0, "the last time of gradient flow")
    scales: tuple[float, ...] = param(
        (1e-3, 1e-5), "standard deviations of the entries of U; the first of the run shown"
    )
    starts: int = param(400, "starts at each scale, the same but for the factor", ge=1)
    seed: int = param(0, "of all starts", ge=0)

    def check(self) -> None:
        super().check()
        if len(self.scales) != 2 or not all(1e-7 <= b < a <= 0.1 for a, b in pairwise(self.scales)):
            raise InputError(f"scales must be two, decreasing, between 0.1 and 1e-7; got {self.scales!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow the start that is shown, change its irrelevant entries, and follow many starts."""
    a, x = strengths_and_test_point(params.mu, params.sigma)
    rng = np.random.default_rng(params.seed)
    wide, point = (np.append(values, np.zeros(params.empty)) for values in (a, x))
    context.report(0.0, "one run")
    one = follow_start(wide, point, params.scales[0] * rng.standard_normal((len(wide), len(wide))), params.until)
    at_once, later = simulations.irrelevant_effects(wide, point, params.until, rng)
    units = rng.standard_normal((params.starts, len(a), len(a)))
    lives = []
    for n, scale in enumerate(params.scales):
        report = context.part(0.1 + 0.45 * n, 0.1 + 0.45 * (n + 1))
        report(0.0, f"starts of scale {scale:g}")
        lives.append(context.cached(f"lives-{n}", partial(simulations.follow_entries, a, scale * units, params.until)))
    context.report(1.0, "done")
    many = xr.concat(lives, dim="scale").assign_coords(scale=list(params.scales))
    weak, strong = np.array(simulations.concept_pairs(a)).T
    return one.merge(many).assign(
        irrelevant_at_once=at_once,
        irrelevant_later=later,
        strong=("pair", strong),
        suppressor_predicted=("pair", 2 * (a[weak] + a[strong]) / (3 * a[strong] + a[weak])),
    )


entry = Entry(
    "concept-learning/figure-4",
    "Figure 4: major, minor and irrelevant entries of W, and their lives",
    citation=CITATION,
    source="Section 4.2.1",
    params=Params,
    quick=dict(starts=12),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
