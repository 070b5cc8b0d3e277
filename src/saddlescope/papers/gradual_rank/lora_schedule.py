"""LoRA with ranks allotted from the first steps of full fine-tuning.

If what is learned has low rank, adapters of low rank can learn it, and the spectra of an early part of training show
how many directions each matrix needs. This entry tests that. A GPT-2 trained on one text is adapted to another:

    full            all weights train; the tracker records the spectra of the updates of the blocks' matrices
    constant        LoRA of one rank everywhere; it makes `probe` steps more than the others, as many as the schedule
                    and its `probe` steps of full fine-tuning make together
    schedule        LoRA with as many parameters, whose ranks are allotted, by energy per parameter, from the spectra
                    after `probe` steps of full fine-tuning; it starts again from the trained GPT-2
    hindsight       the ranks allotted from the spectra at the end of full fine-tuning (not trained)

All of that for two budgets: the parameters of a small and of a large constant rank. The large one came first, alone, in
a run that found no gain (-0.003 ± 0.009 nats). A pilot on another seed then showed that four times its rank gains only
8 %, so that no schedule can gain much there, while a quarter of it loses 25 %; hence the small one. The learning rate
of adapters is the one at which, in a pilot on another seed, the constant rank does best.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.gpt2_training import (
    PAPER,
    QUICK,
    GPT2Params,
    fresh_model,
    over_seeds,
    read_text,
    read_whole_text,
    training,
)
from saddlescope.plot import Axis, Band, Figure, Line, Panel, Table
from saddlescope.reproduction.claim import Claims, Estimate, Size
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.data_sets import DataSets
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import param

if TYPE_CHECKING:
    from saddlescope.train.data.text import TokenizedText
    from saddlescope.train.language_training import LanguageHistory

ARMS = ("constant", "schedule")
TABLES = ("constant", "schedule", "hindsight")


class Params(GPT2Params):
    """Help texts that come with Python first, then the source of its library: minutes on two cores."""

    seeds: tuple[int, ...] = param(
        (0, 1, 2, 3), "seeds of the trained GPT-2, its adapters and the order of the blocks", ge=0, order="distinct"
    )
    epochs: int = param(1, "passes through the first text", ge=1)
    tests: int = param(3, "measurements of the test loss in each training", ge=1)
    task: Literal["python-library", "wikitext-2"] = param("python-library", "second text, to which GPT-2 is adapted")
    task_characters: int = param(400_000, "characters of the second text's training part, from its start", ge=1)
    task_test_characters: int = param(40_000, "characters of the second text's test part, from its start", ge=1)
    steps: int = param(100, "training steps of full fine-tuning and of the schedule's LoRA", ge=1)
    probe: int = param(20, "steps of full fine-tuning after which ranks are allotted", ge=1)
    ranks: tuple[int, ...] = param(
        (1, 4), "small and large constant rank; their LoRAs' parameters are the budgets", ge=1, order="increasing"
    )
    adapter_learning_rate: float = param(
        1e-2, "initial learning rate of both LoRAs; it decays linearly to 0", gt=0, scale="log"
    )

    def check(self) -> None:
        super().check()
        if self.probe >= self.steps:
            raise InputError(f"probe must be below steps={self.steps}; got {self.probe!r}.")
        if len(self.ranks) != 2 or self.ranks[1] > self.embedding:
            raise InputError(
                f"ranks must be two, increasing, from 1 to embedding={self.embedding}, such as 1,4; got {self.ranks!r}."
            )


SHORT = QUICK | {
    "characters": 4000, "tests": 1, "task_characters": 4000, "task_test_characters": 1000, "steps": 12, "probe": 3,
    "ranks": (1, 2),
}  # fmt: skip
FULL = PAPER | {
    "seeds": (0, 1, 2), "epochs": 3, "tests": 30, "task_characters": 4_000_000, "task_test_characters": 400_000,
    "steps": 2000, "probe": 200, "ranks": (1, 8), "adapter_learning_rate": 1e-3,
}  # fmt: skip


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run six trainings per seed; each stores its checkpoints in the scratch folder."""
    from saddlescope.train.data.text import learn_vocabulary, tokenize

    first = read_text(params.text, context, params.characters)
    task = read_text(params.task, context).first(params.task_characters, params.task_test_characters)
    vocabulary = learn_vocabulary(first, params.vocabulary)
    data = [tokenize(text, vocabulary, block=params.block) for text in (first, task)]
    runs = []
    for seed, step in context.steps(params.seeds):
        step = replace(step, report=step.note(f"seed {seed}"))
        runs.append(context.cached(f"seed-{seed}", partial(_one_seed, params, data, seed, step)))
    together = xr.concat(runs, dim="seed", combine_attrs="override").assign_coords(seed=list(params.seeds))
    return together.assign_attrs(
        text=first.name, text_digest=first.digest(), task=task.name, task_digest=task.digest(), probe=params.probe
    )


def _one_seed(params: Params, data: "list[TokenizedText]", seed: int, context: RunContext) -> xr.Dataset:
    """Run all trainings of one seed."""
    from saddlescope.train import AtSteps, RankTracker
    from saddlescope.train.language_training import fit_language
    from saddlescope.train.lora import allocate_ranks, matrix_spectra, with_adapters
    from saddlescope.train.tracker.hugging_face import RankTrackerCallback

    parts = iter(context.split(*[1.0] * (2 + len(params.ranks) * len(ARMS))))

    def fit(stage: str, model: Any, tracker: Any = None, **how: Any) -> "LanguageHistory":
        return fit_language(
            model,
            data[0] if stage == "first text" else data[1],
            training(params, seed, **how),
            tracker=tracker,
            checkpoint=context.scratch / f"seed-{seed}-{stage.replace(' ', '-')}",
            report=next(parts).note(stage),
        )

    trained = fresh_model(params, data[0], seed)
    fit("first text", trained, steps=params.epochs * -(-len(data[0].train) // params.batch))
    matrices = "transformer.h.*"  # the four weight matrices of each block
    tracker = RankTrackerCallback(
        partial(RankTracker, attention=False, matrices=matrices, schedule=AtSteps(params.probe))
    )
    histories = [fit("full", copy.deepcopy(trained), tracker, steps=params.steps)]
    records = tracker.tracker.to_xarray()
    weights = dict(trained.named_parameters())
    shapes = {name: (weights[name].shape[0], weights[name].shape[1]) for name in records.matrix.values.tolist()}
    steps = {"constant": params.steps + params.probe, "schedule": params.steps}
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
    losses = [history.test_loss[which] for history, which in zip(histories, kept, strict=True)]
    tested = [history.steps[which] for history, which in zip(histories, kept, strict=True)]
    return xr.Dataset(
        {
            "full_loss": ("test", losses[0]),
            "full_step": ("test", tested[0]),
            "test_loss": (("budget", "arm", "test"), np.reshape(losses[1:], (len(params.ranks), len(ARMS), -1))),
            "test_step": (("arm", "test"), np.array(tested[1 : 1 + len(ARMS)])),
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


claims = Claims()
BUDGETS = {"large": -1, "small": 0}
LONG: tuple[Size, ...] = ("default", "paper")  # twelve steps of the quick models adapt to nothing


def _parameters(run: xr.Dataset, table: str) -> xr.DataArray:
    """Return the number of parameters of adapters with the ranks in this table."""
    return (run["rank"].sel(table=table) * run.parameters_a_rank).sum("matrix")


def _fall(run: xr.Dataset, arm: str) -> xr.DataArray:
    """Return the fall of the test loss, in nats per token."""
    loss = run.test_loss.sel(arm=arm)
    return loss.isel(test=0) - loss.isel(test=-1)


@claims.add(
    "task-is-learnt",
    "Adapting a freshly trained GPT-2 by LoRA of the larger constant rank lowers second-text test loss by 0.1 nats",
    quantity="fall of GPT-2's test loss on the second text during LoRA of the larger constant rank, mean over seeds",
    kind="own", source="check of this project that there is something to compare", low=0.1, unit="nats", sizes=LONG,
    evidence="sample", over="seeds",
    why="Schedules differ in how far they lower this loss, so that it has to fall by more than they could differ",
    doubt="A tenth of a nat is ours, and a hundred steps on source code are little adaptation",
)  # fmt: skip
def _task_learned(run: xr.Dataset) -> Estimate:
    return over_seeds(_fall(run, "constant").isel(budget=BUDGETS["large"]))


@claims.add(
    "rank-matters",
    "In GPT-2, LoRA of the larger constant rank lowers the test loss at least 10 % further than the smaller",
    quantity="fall of GPT-2's test loss during LoRA, larger over smaller constant rank, mean over seeds", kind="own",
    source="check of this project that ranks are worth allotting; 1.33 in a pilot on seed 1000", low=1.1, sizes=LONG,
    evidence="sample", over="seeds", needs=("task-is-learnt",),
    why="If four times the rank gained nothing, no way to allot ranks could",
    doubt="One learning rate serves both ranks, and it was tuned for one of them in a pilot",
)  # fmt: skip
def _rank_gain(run: xr.Dataset) -> Estimate:
    fall = _fall(run, "constant")
    return over_seeds(fall.isel(budget=BUDGETS["large"]) / fall.isel(budget=BUDGETS["small"]))


@claims.add(
    "equal-parameters",
    "LoRA with ranks allotted by early spectra has 95 % to 100 % of constant-rank LoRA's parameters",
    quantity="number of parameters of LoRA with allotted ranks over constant-rank LoRA, value with the largest "
        "distance from 1 over seeds and budgets", kind="own",
    source="rule of this comparison; ranks are integers, so that a few parameters may be left over", low=0.95,
    high=1.0, evidence="cases", over="schedules (a seed and a budget)",
    why="Parameters are the budget that both arms may spend, so that neither gains by having more",
    doubt="Equal parameters are not equal cost: the probe's full fine-tuning takes more memory than LoRA",
)  # fmt: skip
def _budget_used(run: xr.Dataset) -> Estimate:
    share = (_parameters(run, "schedule") / _parameters(run, "constant")).values.ravel()
    worst = max(share.tolist(), key=lambda each: abs(each - 1))
    return Estimate(worst, remark=f"The value farthest from 1 of {share.size} schedules.", n=share.size)


def _early_agreement(run: xr.Dataset) -> xr.DataArray:
    def common(table: str) -> xr.DataArray:
        """Return the share of parameters that a table and hindsight place in the same matrices."""
        shared = run["rank"].sel(table=[table, "hindsight"]).min("table")
        return (shared * run.parameters_a_rank).sum("matrix") / _parameters(run, "constant")

    return common("schedule") - common("constant")


def _gain(run: xr.Dataset) -> xr.DataArray:
    return _fall(run, "schedule") - _fall(run, "constant")


def _relative_gain(run: xr.Dataset) -> xr.DataArray:
    return _fall(run, "schedule") / _fall(run, "constant")


def _at_budget(run: xr.Dataset, budget: str, statistic: Callable[[xr.Dataset], xr.DataArray]) -> Estimate:
    return over_seeds(statistic(run.isel(budget=BUDGETS[budget])))


for _budget in BUDGETS:
    _posed = "; posed after a pilot on seed 1000, in which rank hardly mattered at the large budget"
    _posed = _posed if _budget == "small" else ""
    claims.add(
        f"early-spectra-{_budget}",
        f"At the {_budget} parameter budget, LoRA ranks by early fine-tuning spectra resemble ranks by final spectra "
            "more than constant ranks",
        quantity="share of parameters in the same matrices as under ranks by final spectra, ranks by early spectra "
            "minus constant rank", kind="own",
        source=f"connection to LoRA in Sections 1.1 and 6; above 0: reading of this project{_posed}",
        low=0.0, sizes=LONG, evidence="sample", over="seeds", needs=("task-is-learnt",),
        why="Early spectra help only if they place parameters where the final ones do, more than an even division does",
        doubt="Final spectra are those of full fine-tuning, which need not be what LoRA needs",
    )(partial(_at_budget, budget=_budget, statistic=_early_agreement))  # fmt: skip
    claims.add(
        f"better-{_budget}",
        f"At the {_budget} parameter budget, LoRA ranks from early fine-tuning spectra lower the test loss further "
        "than a constant rank",
        quantity="fall of GPT-2's test loss during LoRA, ranks from early spectra minus constant rank, mean over seeds",
        kind="own", source=f"question of this project{_posed}", low=0.0, unit="nats", sizes=LONG,
        evidence="sample", over="seeds", needs=("task-is-learnt", "equal-parameters"),
        why="Both arms start from one trained model, have equal parameters and cost as many steps, so that only ranks "
            "differ",
        doubt="The constant rank's steps of compensation are worth more to a short training, and its learning rate was "
            "tuned",
    )(partial(_at_budget, budget=_budget, statistic=_gain))  # fmt: skip
    claims.add(
        f"worth-it-{_budget}",
        f"At the {_budget} parameter budget, early-spectra LoRA ranks cut the test loss at least 5 % further than "
        "constant ranks",
        quantity="fall of GPT-2's test loss during LoRA, ranks from early spectra over constant rank, mean over seeds",
        kind="own", source=f"bar of this project: 5 % more{_posed}", low=1.05, sizes=LONG,
        evidence="sample", over="seeds", needs=("task-is-learnt", "equal-parameters"),
        why="A gain that pays for the trouble of a schedule is a share of what LoRA gains at all",
        doubt="Four seeds of a ratio, on one pair of texts and one model of four blocks",
    )(partial(_at_budget, budget=_budget, statistic=_relative_gain))  # fmt: skip


NAMES = {
    "full": "full fine-tuning",
    "constant": "constant rank",
    "schedule": "schedule from early spectra",
    "hindsight": "ranks from the final spectra",
}
COLORS = {"full": 2, "constant": 1, "schedule": 0, "hindsight": 3}


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the losses of the arms with a table of the outcome, the allotted ranks, the spectra behind them."""
    kinds: dict[str, list[str]] = {}  # the matrices by kind, in the order of their layers
    for name in run.matrix.values.tolist():
        kinds.setdefault(".".join(name.split(".")[3:5]), []).append(name)
    return [_losses(run), _ranks(run, kinds), _spectra(run, kinds)]


def _losses(run: xr.Dataset) -> Figure:
    def panel(title: str, *arms: tuple[str, xr.DataArray, xr.DataArray]) -> Panel:
        marks = []
        for arm, steps, values in arms:
            x, name, color = steps.isel(seed=0).values, NAMES[arm], COLORS[arm]
            marks += [
                Line(x=x, y=values.sel(seed=seed).values, group=name, color=color, opacity=0.35, width=1.0)
                for seed in run.seed.values
            ]
            marks.append(Line(x=x, y=values.mean("seed").values, label=name, group=name, color=color))
        return Panel(title=title, x=Axis("optimiser steps"), y=Axis("test loss", "nats"), marks=tuple(marks))

    budgets, seeds = run.budget.values.tolist(), run.seed.values.tolist()
    both = [
        panel(
            f"parameters of rank {rank} everywhere",
            *((arm, run.test_step.sel(arm=arm), run.test_loss.sel(budget=rank, arm=arm)) for arm in ARMS),
        )
        for rank in budgets
    ]
    columns: dict[str, xr.DataArray] = {"last loss, full": run.full_loss.isel(test=-1)}
    arms = [(rank, arm) for rank in budgets for arm in ARMS]
    columns |= {f"last loss, {arm}, rank {k}": run.test_loss.sel(budget=k, arm=arm).isel(test=-1) for k, arm in arms}
    columns |= {f"parameters, {arm}, rank {k}": _parameters(run.sel(budget=k), arm) for k, arm in arms}
    return Figure(
        name="losses",
        title="Test loss while adapting to another text",
        caption=f"Test loss on {run.attrs['task']} of a GPT-2 trained on {run.attrs['text']}; thin: one seed, thick: "
        f"mean. The constant rank makes {run.attrs['probe']} more steps, as many as the schedule spent on full "
        "fine-tuning.",
        panels=(*both, panel("all weights", ("full", run.full_step, run.full_loss))),
        columns=3,
        table=Table(
            columns=("", *columns),
            rows=tuple((f"seed {s}", *(each.sel(seed=s).item() for each in columns.values())) for s in seeds),
        ),
    )


def _ranks(run: xr.Dataset, kinds: dict[str, list[str]]) -> Figure:
    panels = []
    for kind, names in kinds.items():
        layers, marks = np.arange(1, len(names) + 1), []
        for table in TABLES:
            name, color = NAMES[table], COLORS[table]
            allotted = run["rank"].isel(budget=-1).sel(table=table, matrix=names)
            if table != "constant":
                low, high = allotted.min("seed").values, allotted.max("seed").values
                marks.append(Band(x=layers, low=low, high=high, group=name, color=color))
            marks.append(Line(x=layers, y=allotted.mean("seed").values, label=name, group=name, color=color))
        panels.append(Panel(title=kind, x=Axis("layer"), y=Axis("rank"), marks=tuple(marks)))
    return Figure(
        name="ranks",
        title="Ranks allotted to each matrix",
        caption="Rank of each matrix's adapter at the large budget: mean and range over seeds.",
        panels=tuple(panels),
    )


def _spectra(run: xr.Dataset, kinds: dict[str, list[str]]) -> Figure:
    index = Axis("index of the singular value", scale="log")
    size = Axis("singular value / largest", scale="log", range=(1e-2, 1.3))
    panels = []
    for kind, names in kinds.items():
        relative = run.spectrum.sel(matrix=names)
        relative = (relative / relative.isel(index=0)).mean("seed")
        marks, x = [], run.index.values + 1
        for color, name in enumerate(names):
            early, late = (relative.sel(matrix=name, record=record).values for record in ("probe", "end"))
            group = f"layer {color + 1}"
            marks.append(Line(x=x, y=early, group=group, color=color, style="dashed", width=1.1))
            marks.append(Line(x=x, y=late, label=group, group=group, color=color))
        panels.append(Panel(title=kind, x=index, y=size, marks=tuple(marks)))
    return Figure(
        name="spectra",
        title="Spectra from which the ranks are allotted",
        caption="Singular values of the updates of full fine-tuning over the largest, mean over seeds: dashed after "
        f"{run.attrs['probe']} steps, solid at the end.",
        panels=tuple(panels),
    )


entry = Entry(
    "gradual-rank/lora-schedule", "LoRA with ranks allotted from the first steps of full fine-tuning",
    citation=CITATION, source="Discussion, beyond the paper", params=Params, quick=SHORT, paper=FULL, run=run,
    claims=claims, figures=figures, data=DataSets(read_whole_text, parameters=("text", "task")),
)  # fmt: skip
