"""Conjecture 3: do layers of rank one remain so until the next saddle?.

Networks are trained from the saddle at the origin to the next one: on digits, as in Figure 1, and on teachers of known
bottleneck rank, where the second saddle and the escape from it are resolved. The conjecture is about layers that are
approximately of rank one at the escape; Theorem 3.1 makes these the deeper ones. Here they are layers 3 and on.

    escape    the time at which the loss has completed 10 % of the first drop
    arrival   the time at which it has completed 95 %
    passage   from escape to arrival
    bulk      singular values up to 1.5 times the largest initial one of the layer: those that training has not changed

Where initial weights are not much smaller than learned ones, the frozen bulk makes the stable rank of a layer of rank
one read 1.2 to 1.5 (the table shows it); so rank is measured by s_2/s_1 and by counts above the bulk.
"""

from functools import partial

import xarray as xr

from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.conjecture_3.claims import DEEP, claims
from saddlescope.papers.deep_relu.conjecture_3.figures import figures
from saddlescope.papers.deep_relu.shared.layer_measurements import NetworkJob, digits_jobs, train_jobs
from saddlescope.papers.deep_relu.shared.recorded_training import TrainingSetup
from saddlescope.papers.deep_relu.shared.sequence_checks import require_strengths
from saddlescope.papers.deep_relu.shared.staircase_dataset import concatenate_networks
from saddlescope.papers.deep_relu.shared.staircase_metrics import STAIRCASE_METRICS
from saddlescope.papers.deep_relu.shared.teacher_data import teacher_loss
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Digits with the paper's network, narrower; teachers that train in seconds."""

    seed: int = param(
        0, "of the first teacher, its student and the first network on digits; the others have the next ones", ge=0
    )
    digits: int = param(3, "networks of depth 6 on the digits; 0: teachers alone", ge=0)
    digits_width: int = param(100, "of their hidden layers", ge=1)
    digits_steps: int = param(80_000, "of stochastic gradient descent at learning rate 10 / |theta|^4, batch 32", ge=1)
    teachers: int = param(3, "teachers with ReLU, and as many with the absolute value", ge=1)
    strengths: tuple[float, ...] = param((3.0, 2.0, 1.2), "of the teachers' inner dimensions")
    samples: int = param(200, "of a teacher", ge=1)
    depth: int = param(4, "of the teachers' students", ge=DEEP)
    width: int = param(30, "of their hidden layers", ge=1)
    deviation: float = param(0.02, "standard deviation of their initial weights", gt=0)
    rate: float = param(0.1, "of their learning rate rate |theta|^(2 - L)", gt=0)
    steps: int = param(20_000, "of gradient descent on all samples", ge=1)

    def check(self) -> None:
        require_strengths(self)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train and measure network by network."""
    jobs = []
    for seed in range(params.seed, params.seed + params.teachers):
        for kind in ("relu", "abs"):
            setup = TrainingSetup(
                depth=params.depth, width=params.width, deviation=params.deviation, rate=params.rate,
                steps=params.steps, batch=None, seed=seed,
            )  # fmt: skip
            make_loss = partial(teacher_loss, kind, params.strengths, samples=params.samples, seed=seed)
            jobs.append(NetworkJob(f"{kind} teacher, seed {seed}", make_loss, setup))
    seeds = range(params.seed, params.seed + params.digits)
    jobs += digits_jobs(seeds, width=params.digits_width, steps=params.digits_steps, context=context)
    return concatenate_networks(train_jobs(jobs, context))


metrics = STAIRCASE_METRICS

entry = Entry(
    "deep-relu/conjecture-3",
    "Conjecture 3: do layers of rank one remain so until the next saddle?",
    citation=CITATION,
    source="Section 5, hypothesis 3",
    params=Params,
    quick=dict(digits=0, teachers=1, samples=60, width=16, deviation=0.03, steps=8_000),
    paper=dict(digits=5, digits_width=300, digits_steps=600_000, teachers=10),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
