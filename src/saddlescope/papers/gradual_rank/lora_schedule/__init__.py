"""Do the first steps of full fine-tuning tell LoRA where to spend its ranks?   (Discussion, beyond the paper)

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.lora_schedule.figures import ARMS, TABLES, losses, parameters, ranks, spectra
from saddlescope.papers.gradual_rank.shared.gpt2_training import (
    GPT2Params,
    each_seed,
    fresh_model,
    over_seeds,
    read_text,
    training,
)
from saddlescope.plot import Figure
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.parameter_checks import at_least, positive

if TYPE_CHECKING:
    from saddlescope.train.data.text import TokenizedText
    from saddlescope.train.language import LanguageHistory

MATRICES = "transformer.h.*"  # the four weight matrices of each block


@dataclass(frozen=True, kw_only=True)
class Params(GPT2Params):
    """Help texts that come with Python first, then the source of its library: minutes on two cores."""

    seeds: tuple[int, ...] = (0, 1, 2, 3)  # of everything: trained GPT-2, adapters, order of the blocks
    epochs: int = 1  # passes through the first text
    tests: int = 3  # measurements of the test loss in each training
    task: Literal["python-library", "wikitext-2"] = "python-library"  # the text to adapt to
    task_characters: int = 400_000  # of its training part, from its start
    task_test_characters: int = 40_000  # of its test part, from its start
    steps: int = 100  # of full fine-tuning, and of the schedule's LoRA
    probe: int = 20  # steps of full fine-tuning after which ranks are allotted
    ranks: tuple[int, ...] = (1, 4)  # of the constant LoRAs, small and large; their parameters are the budgets
    adapter_learning_rate: float = 1e-2  # of both LoRAs, at the start; it falls linearly to 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, self, "task_characters", "task_test_characters", "steps", "probe")
        positive(self, "adapter_learning_rate")
        if self.probe >= self.steps:
            raise InputError(f"probe must be below steps={self.steps}; got {self.probe!r}.")
        if len(self.ranks) != 2 or not 1 <= self.ranks[0] < self.ranks[1] <= self.embedding:
            raise InputError(
                f"ranks must be two, rising, from 1 to embedding={self.embedding}, such as 1,4; got {self.ranks!r}."
            )

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: two blocks, two heads, the start of both texts."""
        return cls(
            characters=4000, vocabulary=300, seeds=(0, 1), block=16, depth=2, embedding=32, heads=2,
            tests=1, task_characters=4000, task_test_characters=1000, steps=12, probe=3, ranks=(1, 2),
            learning_rate=1e-2,
        )  # fmt: skip

    @classmethod
    def paper(cls) -> "Params":
        """GPT-2 small, first on WikiText-103 as in Figure 20; for a GPU."""
        return cls(
            text="wikitext-103", vocabulary=50257, seeds=(0, 1, 2), block=256, depth=12, embedding=768, heads=12,
            epochs=3, learning_rate=3e-4, tests=30, task_characters=4_000_000, task_test_characters=400_000, steps=2000,
            probe=200, ranks=(1, 8), adapter_learning_rate=1e-3, precision="bf16", compiled=True, threads=8,
        )  # fmt: skip


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Six trainings a seed; each keeps its own checkpoints in the scratch folder."""
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
    report: Callable[[float, str], None],
) -> xr.Dataset:
    """All trainings of one seed."""
    from saddlescope.train import AtSteps, RankTracker
    from saddlescope.train.language import fit_language
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


def _gain(run: xr.Dataset, arm: str) -> xr.DataArray:
    """By how much the test loss fell, in nats a token."""
    loss = run.test_loss.sel(arm=arm)
    return loss.isel(test=0) - loss.isel(test=-1)


def _alike(run: xr.Dataset, one: str, other: str) -> xr.DataArray:
    """The share of the constant arm's parameters that two tables of ranks place in the same matrices."""
    common = run["rank"].sel(table=[one, other]).min("table")
    return (common * run.parameters_a_rank).sum("matrix") / parameters(run, "constant")


SMALL, LARGE = 0, -1


def _rank_matters(run: xr.Dataset) -> Estimate:
    gain = _gain(run, "constant")
    return over_seeds(gain.isel(budget=LARGE) / gain.isel(budget=SMALL))


def _budget_is_used(run: xr.Dataset) -> Estimate:
    share = (parameters(run, "schedule") / parameters(run, "constant")).values.ravel()
    worst = max(share.tolist(), key=lambda each: abs(each - 1))
    return Estimate(worst, remark=f"all {share.size} schedules, the one that misses it most")


def _of(budget: int, statistic: Callable[[xr.Dataset], xr.DataArray]) -> Callable[[xr.Dataset], Estimate]:
    return lambda run: over_seeds(statistic(run.isel(budget=budget)))


def _early_tells(run: xr.Dataset) -> xr.DataArray:
    return _alike(run, "schedule", "hindsight") - _alike(run, "constant", "hindsight")


def _better(run: xr.Dataset) -> xr.DataArray:
    return _gain(run, "schedule") - _gain(run, "constant")


def _worth_it(run: xr.Dataset) -> xr.DataArray:
    return _gain(run, "schedule") / _gain(run, "constant")


def _claims_at(budget: int, name: str, source: str) -> tuple[Claim, ...]:
    return (
        Claim(
            name=f"early-tells-{name}",
            says=f"Early spectra tell the late ones, {name} budget: share of parameters that the schedule places as "
            "hindsight does, minus that of the constant rank",
            source=f"Sections 1.1 and 6, the connection to LoRA; above 0 is this project's reading{source}",
            statistic=_of(budget, _early_tells),
            low=0.0,
        ),
        Claim(
            name=f"better-{name}",
            says=f"The schedule beats the constant rank at equal parameters and steps, {name} budget: how much further "
            "its test loss falls",
            source=f"this project's question; above 0{source}",
            statistic=_of(budget, _better),
            low=0.0,
            unit="nats",
        ),
        Claim(
            name=f"worth-it-{name}",
            says=f"It is worth the trouble, {name} budget: fall of the test loss over that of the constant rank",
            source=f"this project's bar: 5 % more{source}",
            statistic=_of(budget, _worth_it),
            low=1.05,
        ),
    )


claims = (
    Claim(
        name="task-is-learnt",
        says="LoRA learns the task: fall of the test loss with the large constant rank",
        source="needed for the comparison to mean something",
        statistic=_of(LARGE, lambda run: _gain(run, "constant")),
        low=0.1,
        unit="nats",
    ),
    Claim(
        name="rank-matters",
        says="Rank matters here: fall of the test loss with the large constant rank over that with the small one",
        source="needed for ranks to be worth allotting; a pilot on seed 1000 had 1.33",
        statistic=_rank_matters,
        low=1.1,
    ),
    Claim(
        name="equal-parameters",
        says="Both LoRAs have as many parameters: the schedule's over the constant's",
        source="the comparison's own rule; ranks are whole, so that a little may be left over",
        statistic=_budget_is_used,
        low=0.95,
        high=1.0,
    ),
    *_claims_at(LARGE, "large", ""),
    *_claims_at(
        SMALL, "small", "; posed after a pilot on seed 1000, in which rank hardly mattered at the large budget"
    ),
)


def figures(run: xr.Dataset) -> list[Figure]:
    """The losses of the arms with a table of the outcome, the ranks that were allotted, the spectra behind them."""
    return [losses(run), ranks(run), spectra(run)]
