"""Do the first steps of full fine-tuning tell LoRA where to spend its ranks?.

If what is learnt is low-rank, adapters of low rank can learn it, and the spectra of an early part of training say how
many directions each matrix wants. Here that is put to the test. A GPT-2 trained on one text is adapted to another:

    full            all weights train; the tracker records the spectra of the updates of the blocks' matrices
    constant        LoRA of one rank everywhere; it makes `probe` steps more than the others, so that it has had as
                    many in all as the schedule with its look at full fine-tuning
    schedule        LoRA with as many parameters, whose ranks are allotted, by energy per parameter, from the spectra
                    after `probe` steps of full fine-tuning; then it starts again from the trained GPT-2
    hindsight       the ranks that the spectra at the end of full fine-tuning would have allotted (not trained)

All of that for two budgets: the parameters of a small and of a large constant rank. The large one came first, alone, in
a run that found no gain (-0.003 +- 0.009 nats). A pilot on another seed then showed that four times its rank gains 8 %
only, so that no schedule can win much there, while a quarter of it loses 25 %; hence the small one. The learning rate
of adapters is the one at which, in a pilot on another seed, the constant rank does best.
"""

import copy
import functools
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.lora_schedule.claims import ARMS, TABLES, claims
from saddlescope.papers.gradual_rank.lora_schedule.figures import figures
from saddlescope.papers.gradual_rank.shared.gpt2_training import GPT2Params, each_seed, fresh_model, read_text, training
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

if TYPE_CHECKING:
    from saddlescope.train.data.text import TokenizedText
    from saddlescope.train.language_training import LanguageHistory

MATRICES = "transformer.h.*"  # the four weight matrices of each block


class Params(GPT2Params):
    """Help texts that come with Python first, then the source of its library: minutes on two cores."""

    seeds: tuple[int, ...] = param((0, 1, 2, 3), "of everything: trained GPT-2, adapters, order of the blocks")
    epochs: int = param(1, "passes through the first text")
    tests: int = param(3, "measurements of the test loss in each training")
    task: Literal["python-library", "wikitext-2"] = param("python-library", "the text to adapt to")
    task_characters: int = param(400_000, "of its training part, from its start", ge=1)
    task_test_characters: int = param(40_000, "of its test part, from its start", ge=1)
    steps: int = param(100, "of full fine-tuning, and of the schedule's LoRA", ge=1)
    probe: int = param(20, "steps of full fine-tuning after which ranks are allotted", ge=1)
    ranks: tuple[int, ...] = param((1, 4), "of the constant LoRAs, small and large; their parameters are the budgets")
    adapter_learning_rate: float = param(1e-2, "of both LoRAs, at the start; it falls linearly to 0", gt=0)

    def check(self) -> None:
        super().check()
        if self.probe >= self.steps:
            raise InputError(f"probe must be below steps={self.steps}; got {self.probe!r}.")
        if len(self.ranks) != 2 or not 1 <= self.ranks[0] < self.ranks[1] <= self.embedding:
            raise InputError(
                f"ranks must be two, rising, from 1 to embedding={self.embedding}, such as 1,4; got {self.ranks!r}."
            )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run six trainings per seed; each stores its checkpoints in the scratch folder."""
    from saddlescope.train.data.text import learn_vocabulary, tokenize

    first = read_text(params.text, context, params.characters)
    task = read_text(params.task, context).first(params.task_characters, params.task_test_characters)
    vocabulary = learn_vocabulary(first, params.vocabulary)
    data = [tokenize(text, vocabulary, block=params.block) for text in (first, task)]
    together = each_seed(params, context, lambda seed, report: _one(params, context, data, seed, report))
    return together.assign_attrs(
        text=first.name, text_digest=first.digest(), task=task.name, task_digest=task.digest(), probe=params.probe
    )


def _one(
    params: Params,
    context: RunContext,
    data: "list[TokenizedText]",
    seed: int,
    report: Report,
) -> xr.Dataset:
    """Run all trainings of one seed."""
    from saddlescope.train import AtSteps, RankTracker
    from saddlescope.train.language_training import fit_language
    from saddlescope.train.lora import allocate_ranks, matrix_spectra, with_adapters
    from saddlescope.train.tracker.hugging_face import RankTrackerCallback

    done, trainings = 0, 2 + len(params.ranks) * len(ARMS)

    def fit(stage: str, model: Any, tracker: Any = None, **how: Any) -> Any:
        nonlocal done
        start, done = done, done + 1
        return fit_language(
            model,
            data[0] if stage == "first text" else data[1],
            training(params, seed, **how),
            tracker=tracker,
            checkpoint=context.scratch / f"seed-{seed}-{stage.replace(' ', '-')}",
            report=lambda fraction, note: report((start + fraction) / trainings, f"{stage}, {note}"),
        )

    trained = fresh_model(params, data[0], seed)
    fit("first text", trained, steps=params.epochs * -(-len(data[0].train) // params.batch))
    tracker = RankTrackerCallback(
        functools.partial(RankTracker, attention=False, matrices=MATRICES, schedule=AtSteps(params.probe))
    )
    full = fit("full", copy.deepcopy(trained), tracker, steps=params.steps)
    records = tracker.tracker.to_xarray()
    weights = dict(trained.named_parameters())
    shapes = {name: (weights[name].shape[0], weights[name].shape[1]) for name in records.matrix.values.tolist()}
    steps = {"constant": params.steps + params.probe, "schedule": params.steps}
    histories: list[LanguageHistory] = [full]
    tables = []
    for rank in params.ranks:
        budget = sum(rank * sum(shape) for shape in shapes.values())
        allotted = {
            "constant": dict.fromkeys(shapes, rank),
            "schedule": allocate_ranks(matrix_spectra(records, step=params.probe), shapes, parameters=budget),
            "hindsight": allocate_ranks(matrix_spectra(records), shapes, parameters=budget),
        }
        rate = params.adapter_learning_rate
        for arm in ARMS:
            adapted = with_adapters(trained, allotted[arm], seed=seed)
            histories.append(fit(f"{arm} {rank}", adapted, steps=steps[arm], learning_rate=rate))
        tables.append([[allotted[table][name] for name in shapes] for table in TABLES])
    tests = min(len(history.steps) for history in histories)  # the arms may differ by one
    kept = [np.linspace(0, len(history.steps) - 1, tests).round().astype(int) for history in histories]
    losses_of = [history.test_loss[which] for history, which in zip(histories, kept, strict=True)]
    steps_of = [history.steps[which] for history, which in zip(histories, kept, strict=True)]
    return xr.Dataset(
        {
            "full_loss": ("test", losses_of[0]),
            "full_step": ("test", steps_of[0]),
            "test_loss": (("budget", "arm", "test"), np.reshape(losses_of[1:], (len(params.ranks), len(ARMS), -1))),
            "test_step": (("arm", "test"), np.array(steps_of[1 : 1 + len(ARMS)])),
            "rank": (("budget", "table", "matrix"), np.array(tables)),
            "parameters_a_rank": ("matrix", np.array([sum(shape) for shape in shapes.values()])),
            "spectrum": (("record", "matrix", "index"), records.matrix_update_spectrum.values),
        },
        coords={
            "arm": list(ARMS),
            "budget": list(params.ranks),
            "table": list(TABLES),
            "matrix": list(shapes),
            "record": ["probe", "end"],
        },
    )


entry = Entry(
    "gradual-rank/lora-schedule",
    "Do the first steps of full fine-tuning tell LoRA where to spend its ranks?",
    citation=CITATION,
    source="Discussion, beyond the paper",
    params=Params,
    quick=dict(
        characters=4000,
        vocabulary=300,
        seeds=(0, 1),
        block=16,
        depth=2,
        embedding=32,
        heads=2,
        tests=1,
        task_characters=4000,
        task_test_characters=1000,
        steps=12,
        probe=3,
        ranks=(1, 2),
        learning_rate=1e-2,
    ),
    paper=dict(
        text="wikitext-103",
        vocabulary=50257,
        seeds=(0, 1, 2),
        block=256,
        depth=12,
        embedding=768,
        heads=12,
        epochs=3,
        learning_rate=3e-4,
        tests=30,
        task_characters=4_000_000,
        task_test_characters=400_000,
        steps=2000,
        probe=200,
        ranks=(1, 8),
        adapter_learning_rate=1e-3,
        precision="bf16",
        compiled=True,
        threads=8,
    ),
    run=run,
    claims=claims,
    figures=figures,
)
