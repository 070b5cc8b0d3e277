"""Lemmas D.1 to D.8, each as printed and where it is wrong as corrected, held against runs.

Where the assumptions hold, as printed, the runs start from weights of 1e-31 and less: two concepts of strengths 0.1 and
1, some starts nearly singular. Others start at ordinary scales from the data of Figures 5, 8 and 10, with P as large as
D.3 has it. Gradient flow is followed, and the map D.2 that the lemmas are about, at the largest step that D.2 allows.

    allowed  runs whose start and constants meet D.1 to D.5
    excess   the logarithm of what a lemma bounds over its bound, or the difference for numbers near 1, or of a sign the
             value over omega: positive where the lemma is violated
"""

import itertools
from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.lemmas import simulations
from saddlescope.papers.concept_learning.lemmas.claims import claims
from saddlescope.papers.concept_learning.lemmas.figures import figures
from saddlescope.papers.concept_learning.shared.random_starts import FIGURES, draw_starts
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_DATA = ("Figure 5", "Figure 8", "Figure 10")


class Params(EntryParams):
    """Starts that the assumptions allow, and others."""

    allowed: int = param(24, "starts at which the assumptions hold")
    near: int = param(8, "of them, nearly singular", ge=1)
    allowed_until: float = param(700.0, "their last time, in t; all is learned by 500", gt=0)
    ordinary: int = param(64, "starts at each ordinary scale, on each figure's data", ge=1)
    scales: tuple[float, ...] = param((0.1, 0.001), "deviations of U's entries, descending")
    until: float = param(50.0, "their last time, in t", gt=0)
    marks: int = param(2400, "times at which W is compared with the lemmas", ge=100)
    seed: int = param(0, "of everything", ge=0)

    def check(self) -> None:
        if not self.allowed > self.near:
            raise InputError(f"allowed must be greater than near={self.near}; got {self.allowed!r}.")
        if not self.scales or not all(0 < scale <= 1 for scale in self.scales):
            raise InputError(f"scales must be one or more numbers above 0, up to 1; got {self.scales!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run flows and maps of every kind of start, and compare them with all lemmas."""
    starts = simulations.allowed_starts(params.allowed, params.near, np.random.default_rng((params.seed, 0)))
    jobs = [("allowed", starts, params.allowed_until)]
    for k, (name, scale) in enumerate(itertools.product(_DATA, params.scales)):
        a, _ = strengths_and_test_point(*FIGURES[name])
        factors = draw_starts(
            np.random.default_rng((params.seed, 1 + k)), "normal", scale, (params.ordinary, len(a), len(a))
        )
        jobs.append((f"{name}, scale {scale:g}", simulations.ordinary_starts(a, factors), params.until))
    made: list[xr.Dataset] = []
    for n, (name, of, until) in enumerate(jobs):
        report = context.part(n / len(jobs), (n + 1) / len(jobs))
        report(0.0, f"{name}, flow")
        kinds = {
            "flow": partial(simulations.flows, of, until, params.marks),
            "map": partial(simulations.maps, of, until, params.marks, partial(_report_map, report, f"{name}, map")),
        }
        for kind, follow in kinds.items():
            made.append(
                context.cached(f"{kind}-{n}", partial(simulations.count_violations, f"{name}, {kind}", of, follow))
            )
    example = context.cached("example", partial(simulations.example_runs, starts, params))
    context.report(1.0, "done")
    return xr.merge([xr.concat(made, "group"), example], join="exact", combine_attrs="drop_conflicts")


def _report_map(report: Report, name: str, fraction: float) -> None:
    report(0.3 + 0.7 * fraction, name)


entry = Entry(
    "concept-learning/lemmas",
    "Lemmas D.1 to D.8, each as printed and where it is wrong as corrected, held against runs",
    citation=CITATION,
    source="Appendix D.2",
    params=Params,
    quick=dict(allowed=6, near=2, allowed_until=60.0, ordinary=8, scales=(0.1,), until=6.0, marks=300),
    paper=dict(allowed=60, near=20, ordinary=1024),
    run=run,
    claims=claims,
    figures=figures,
)
