"""Do the first steps of full fine-tuning tell LoRA where to spend its ranks?   (Discussion, beyond the paper)

If what is learnt is low-rank, adapters of low rank can learn it, and the spectra of an early part of training say how
many directions each matrix wants. Here that is put to the test. A GPT-2 trained on one text is adapted to another:

    full            all weights of the blocks and embeddings train; the tracker records the spectra of its updates
    schedule        LoRA whose ranks are allotted, by energy per parameter, from the spectra after `probe` steps of
                    full fine-tuning; then it starts again from the trained GPT-2
    constant        LoRA of one rank everywhere, with as many parameters; it makes `probe` steps more, so that both
                    have had the same number of steps in all
    hindsight       the ranks that the spectra at the end of full fine-tuning would have allotted (not trained)

All arms of a seed start from the same trained GPT-2. The learning rate of adapters was chosen in a pilot on another
seed so that the constant rank does best.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from saddlescope.errors import InputError
from saddlescope.papers.checks import at_least, positive
from saddlescope.papers.claim import Claim, Measured
from saddlescope.papers.context import RunContext
from saddlescope.papers.gradual_rank._gpt2 import GPT2Params, fresh_model, over_seeds, read_text, training

if TYPE_CHECKING:
    import xarray as xr

    from saddlescope.plot.figure import Figure
    from saddlescope.train.text import TokenData

ARMS = ("full", "constant", "schedule")
TABLES = ("constant", "schedule", "hindsight")
MATRICES = "transformer.h.*"  # the four weight matrices of each block


@dataclass(frozen=True, kw_only=True)
class Params(GPT2Params):
    """Help texts that come with Python first, then the source of its library: minutes on two cores."""

    seeds: tuple[int, ...] = (0, 1, 2, 3)  # of everything: trained GPT-2, adapters, order of the blocks
    epochs: int = 1  # passes through the first text
    tests: int = 4  # measurements of the test loss in each training
    task: Literal["python-library", "wikitext-2"] = "python-library"  # the text to adapt to
    task_characters: int = 400_000  # of its training part, from its start
    task_test_characters: int = 60_000  # of its test part, from its start
    steps: int = 120  # of full fine-tuning, and of the schedule's LoRA
    probe: int = 20  # steps of full fine-tuning after which ranks are allotted
    rank: int = 4  # of the constant LoRA; its number of parameters is the budget of the schedule
    adapter_learning_rate: float = 1e-2  # of both LoRAs, at the start; it falls linearly to 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, self, "task_characters", "task_test_characters", "steps", "probe", "rank")
        positive(self, "adapter_learning_rate")
        if self.probe >= self.steps:
            raise InputError(f"probe must be below steps={self.steps}; got {self.probe!r}.")
        if self.rank > self.embedding:
            raise InputError(f"rank must be at most embedding={self.embedding}; got {self.rank!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: two blocks, two heads, the start of both texts."""
        return cls(
            characters=4000, vocabulary=300, seeds=(0, 1), block=16, depth=2, embedding=32, heads=2,
            tests=1, task_characters=4000, task_test_characters=1000, steps=12, probe=3, rank=2,
            learning_rate=1e-2,
        )  # fmt: skip

    @classmethod
    def paper(cls) -> "Params":
        """GPT-2 small, first on WikiText-103 as in Figure 20; for a GPU."""
        return cls(
            text="wikitext-103", vocabulary=50257, seeds=(0, 1, 2), block=256, depth=12, embedding=768, heads=12,
            epochs=3, learning_rate=3e-4, tests=30, task_characters=4_000_000, task_test_characters=400_000, steps=2000,
            probe=200, rank=8, adapter_learning_rate=1e-3, precision="bf16", compiled=True, threads=8,
        )  # fmt: skip


def run(params: Params, context: RunContext) -> "xr.Dataset":
    """Four trainings a seed; each keeps its own checkpoints in the scratch folder."""
    import xarray as xr

    from saddlescope.train.text import learn_vocabulary, tokenize

    first = read_text(params.text, context, params.characters)
    task = read_text(params.task, context).first(params.task_characters, params.task_test_characters)
    vocabulary = learn_vocabulary(first, params.vocabulary)
    data = [tokenize(text, vocabulary, block=params.block) for text in (first, task)]
    runs = []
    for k, seed in enumerate(params.seeds):
        part = context.part(k / len(params.seeds), (k + 1) / len(params.seeds))

        def report(fraction: float, note: str, part=part, seed=seed) -> None:
            part(fraction, f"seed {seed}, {note}")

        runs.append(
            context.kept(f"seed-{seed}", lambda seed=seed, report=report: _one(params, context, data, seed, report))
        )
    together = xr.concat(runs, dim="seed", combine_attrs="override").assign_coords(seed=list(params.seeds))
    return together.assign_attrs(
        text=first.name, text_digest=first.digest(), task=task.name, task_digest=task.digest(), probe=params.probe
    )


def _one(
    params: Params,
    context: RunContext,
    data: "list[TokenData]",
    seed: int,
    report: "Callable[[float, str], None]",
) -> "xr.Dataset":
    """All trainings of one seed."""
    import copy
    import functools

    import numpy as np
    import xarray as xr

    from saddlescope.train import AtSteps, RankTracker
    from saddlescope.train.hugging_face import RankTrackerCallback
    from saddlescope.train.language import fit_language
    from saddlescope.train.lora import allocate_ranks, matrix_spectra, with_adapters

    stages = ("first text", *ARMS)

    def fit(stage: str, model: Any, tracker: Any = None, **how: Any) -> Any:
        start = stages.index(stage) / len(stages)
        return fit_language(
            model,
            data[0] if stage == "first text" else data[1],
            training(params, seed, **how),
            tracker=tracker,
            checkpoint=context.scratch / f"seed-{seed}-{stage.replace(' ', '-')}",
            report=lambda fraction, note: report(start + fraction / len(stages), f"{stage}, {note}"),
        )

    trained = fresh_model(params, data[0], seed)
    fit("first text", trained, steps=params.epochs * -(-len(data[0].train) // params.batch))
    tracker = RankTrackerCallback(
        functools.partial(RankTracker, attention=False, matrices=MATRICES, schedule=AtSteps(params.probe))
    )
    histories = {"full": fit("full", copy.deepcopy(trained), tracker, steps=params.steps)}
    spectra = tracker.tracker.to_xarray()
    weights = dict(trained.named_parameters())
    shapes = {name: (weights[name].shape[0], weights[name].shape[1]) for name in spectra.matrix.values.tolist()}
    budget = sum(params.rank * sum(shape) for shape in shapes.values())
    ranks = {
        "constant": dict.fromkeys(shapes, params.rank),
        "schedule": allocate_ranks(matrix_spectra(spectra, step=params.probe), shapes, parameters=budget),
        "hindsight": allocate_ranks(matrix_spectra(spectra), shapes, parameters=budget),
    }
    for arm, extra in (("constant", params.probe), ("schedule", 0)):
        adapted = with_adapters(trained, ranks[arm], seed=seed)
        rate = params.adapter_learning_rate
        histories[arm] = fit(arm, adapted, steps=params.steps + extra, learning_rate=rate)
    return xr.Dataset(
        {
            "test_loss": (("arm", "test"), np.array([histories[arm].test_loss for arm in ARMS])),
            "test_step": (("arm", "test"), np.array([histories[arm].steps for arm in ARMS])),
            "rank": (("table", "matrix"), np.array([[ranks[table][name] for name in shapes] for table in TABLES])),
            "parameters_a_rank": ("matrix", np.array([sum(shape) for shape in shapes.values()])),
            "spectrum": (("record", "matrix", "index"), spectra.matrix_update_spectrum.values),
        },
        coords={"arm": list(ARMS), "table": list(TABLES), "matrix": list(shapes), "record": ["probe", "end"]},
    )


def _gain(run: "xr.Dataset", arm: str) -> "xr.DataArray":
    """By how much the test loss fell, in nats a token."""
    loss = run.test_loss.sel(arm=arm)
    return loss.isel(test=0) - loss.isel(test=-1)


def _parameters(run: "xr.Dataset", table: str) -> "xr.DataArray":
    return (run["rank"].sel(table=table) * run.parameters_a_rank).sum("matrix")


def _alike(run: "xr.Dataset", one: str, other: str) -> "xr.DataArray":
    """The share of the constant arm's parameters that two tables of ranks place in the same matrices."""
    common = run["rank"].sel(table=[one, other]).min("table")
    return (common * run.parameters_a_rank).sum("matrix") / _parameters(run, "constant")


def _task_is_learnt(run: "xr.Dataset") -> Measured:
    return over_seeds(_gain(run, "constant"))


def _budget_is_used(run: "xr.Dataset") -> Measured:
    share = _parameters(run, "schedule") / _parameters(run, "constant")
    worst = float(share[abs(share - 1).argmax("seed")])
    return Measured(worst, remark=f"all {run.sizes['seed']} schedules, the one that misses it most")


def _early_tells(run: "xr.Dataset") -> Measured:
    return over_seeds(_alike(run, "schedule", "hindsight") - _alike(run, "constant", "hindsight"))


def _better(run: "xr.Dataset") -> Measured:
    return over_seeds(_gain(run, "schedule") - _gain(run, "constant"))


def _worth_it(run: "xr.Dataset") -> Measured:
    return over_seeds(_gain(run, "schedule") / _gain(run, "constant"))


claims = (
    Claim(
        name="task-is-learnt",
        says="Constant-rank LoRA learns the task: fall of its test loss",
        source="needed for the comparison to mean something",
        statistic=_task_is_learnt,
        low=0.1,
        unit="nats",
    ),
    Claim(
        name="equal-parameters",
        says="Both LoRAs have as many parameters: the schedule's over the constant's",
        source="the comparison's own rule; ranks are whole, so that a little may be left over",
        statistic=_budget_is_used,
        low=0.95,
        high=1.0,
    ),
    Claim(
        name="early-tells",
        says="Early spectra tell the late ones: share of parameters that the schedule places as hindsight does, minus"
        " that of the constant rank",
        source="Sections 1.1 and 6, the connection to LoRA; above 0 is this project's reading",
        statistic=_early_tells,
        low=0.0,
    ),
    Claim(
        name="better",
        says="The schedule beats the constant rank at equal parameters and steps: how much further its test loss falls",
        source="this project's question; above 0",
        statistic=_better,
        low=0.0,
        unit="nats",
    ),
    Claim(
        name="worth-it",
        says="It is worth the trouble: fall of the test loss over that of the constant rank",
        source="this project's bar: 5 % more",
        statistic=_worth_it,
        low=1.05,
    ),
)


def traces(run: "xr.Dataset") -> "list[Figure]":
    """The losses of the arms with a table of the outcome, the ranks that were allotted, the spectra behind them."""
    return [_losses(run), _ranks(run), _spectra(run)]


NAMES = {
    "full": "full fine-tuning",
    "constant": "constant rank",
    "schedule": "schedule from early spectra",
    "hindsight": "ranks from the last spectra",
}
COLORS = {"full": 2, "constant": 1, "schedule": 0, "hindsight": 3}


def _losses(run: "xr.Dataset") -> "Figure":
    from saddlescope.plot import Axis, Figure, Line, Panel, Table

    def curves(arms: tuple[str, ...]) -> tuple[Line, ...]:
        marks = []
        for arm in arms:
            one, name = run.sel(arm=arm), NAMES[arm]
            for seed in run.seed.values:
                x, y = one.test_step.sel(seed=seed).values, one.test_loss.sel(seed=seed).values
                marks.append(Line(x=x, y=y, group=name, color=COLORS[arm], opacity=0.35, width=1.0))
            x, y = one.test_step.isel(seed=0).values, one.test_loss.mean("seed").values
            marks.append(Line(x=x, y=y, label=name, group=name, color=COLORS[arm]))
        return tuple(marks)

    rows = [
        (
            f"seed {seed}",
            *(float(run.test_loss.sel(seed=seed, arm=arm).isel(test=-1)) for arm in ARMS),
            *(int(_parameters(run.sel(seed=seed), arm)) for arm in ARMS[1:]),
        )
        for seed in run.seed.values
    ]
    tail = Axis("optimiser steps"), Axis("test loss", "nats")
    return Figure(
        name="losses",
        title="Adapting to another text",
        caption=f"Test loss on {run.attrs['task']} of a GPT-2 trained on {run.attrs['text']}; thick: mean over seeds. "
        f"The constant rank makes the {run.attrs['probe']} steps more that the schedule spent on looking.",
        panels=(
            Panel(title="all arms", x=tail[0], y=tail[1], marks=curves(ARMS)),
            Panel(title="the two LoRAs", x=tail[0], y=tail[1], marks=curves(ARMS[1:])),
        ),
        table=Table(
            columns=("", *(f"final test loss, {NAMES[arm]}" for arm in ARMS), "parameters, constant", "schedule"),
            rows=tuple(rows),
        ),
    )


def _kinds(run: "xr.Dataset") -> "dict[str, list[str]]":
    """The matrices by kind, in the order of their layers."""
    found: dict[str, list[str]] = {}
    for name in run.matrix.values.tolist():
        found.setdefault(".".join(name.split(".")[3:5]), []).append(name)
    return found


def _ranks(run: "xr.Dataset") -> "Figure":
    import numpy as np

    from saddlescope.plot import Axis, Band, Figure, Line, Panel

    panels = []
    for kind, names in _kinds(run).items():
        layers, marks = np.arange(1, len(names) + 1), []
        for table in TABLES:
            ranks, name, color = run["rank"].sel(table=table, matrix=names), NAMES[table], COLORS[table]
            if table != "constant":
                low, high = ranks.min("seed").values, ranks.max("seed").values
                marks.append(Band(x=layers, low=low, high=high, group=name, color=color))
            marks.append(Line(x=layers, y=ranks.mean("seed").values, label=name, group=name, color=color))
        panels.append(Panel(title=kind, x=Axis("layer"), y=Axis("rank"), marks=tuple(marks)))
    return Figure(
        name="ranks",
        title="Where the ranks go",
        caption="Rank allotted to each matrix: mean over seeds, and their whole range.",
        panels=tuple(panels),
    )


def _spectra(run: "xr.Dataset") -> "Figure":
    from saddlescope.plot import Axis, Figure, Line, Panel

    index = Axis("index of the singular value", scale="log")
    size = Axis("singular value / largest", scale="log", range=(1e-2, 1.3))
    panels = []
    for kind, names in _kinds(run).items():
        relative = run.spectrum.sel(matrix=names)
        relative = (relative / relative.isel(index=0)).mean("seed")
        marks, x = [], run.index.values + 1
        for color, name in enumerate(names):
            early, late = (
                relative.sel(matrix=name, record="probe").values,
                relative.sel(matrix=name, record="end").values,
            )
            group = f"layer {color + 1}"
            marks.append(Line(x=x, y=early, group=group, color=color, style="dashed", width=1.1))
            marks.append(Line(x=x, y=late, label=group, group=group, color=color))
        panels.append(Panel(title=kind, x=index, y=size, marks=tuple(marks)))
    return Figure(
        name="spectra",
        title="The spectra behind the ranks",
        caption="Singular values of the updates of full fine-tuning over the largest, mean over seeds: dashed after "
        f"{run.attrs['probe']} steps, solid at the end.",
        panels=tuple(panels),
    )
