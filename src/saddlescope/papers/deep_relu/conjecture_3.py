"""Conjecture 3: do layers of rank one remain so until the next saddle?   (Section 5, hypothesis 3)

Networks are followed from the saddle at the origin to the next one: on digits, as in Figure 1, and on teachers of known
bottleneck rank, where the second saddle and the escape from it are resolved. The conjecture is about layers that are
approximately of rank one at the escape; Theorem 3.1 makes these the deeper ones. Here they are layers 3 and on.

    escape    when the loss has made 10 % of the first drop
    arrival   when it has made 95 %
    passage   from escape to arrival
    bulk      singular values up to 1.5 times the largest initial one of the layer: what training has not touched

Where initial weights are not much smaller than learned ones, the frozen bulk makes the stable rank of a layer of rank
one read 1.2 to 1.5 (the table shows it); so rank is told by s_2/s_1 and by counts above the bulk.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu.shared.recorded_training import Training
from saddlescope.papers.deep_relu.shared.saddle_paths import fallen, followed, teacher_loss
from saddlescope.papers.deep_relu.shared.stored_staircases import QUANTITIES, together
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.parameter_checks import at_least, positive

_ESCAPE, _ARRIVAL = 0.10, 0.95
_DEEP = 3  # layers from here on count as deep


@dataclass(frozen=True, kw_only=True)
class Params:
    """Digits with the paper's network, narrower; teachers that train in seconds."""

    seed: int = 0  # of the first teacher, its student and the first network on digits; the others have the next ones
    digits: int = 3  # networks of depth 6 on the digits; 0: teachers alone
    digits_width: int = 100  # of their hidden layers
    digits_steps: int = 80_000  # of stochastic gradient descent at learning rate 10 / |theta|^4, batch 32
    teachers: int = 3  # teachers with ReLU, and as many with the absolute value
    strengths: tuple[float, ...] = (3.0, 2.0, 1.2)  # of the teachers' inner dimensions
    samples: int = 200  # of a teacher
    depth: int = 4  # of the teachers' students
    width: int = 30  # of their hidden layers
    deviation: float = 0.02  # standard deviation of their initial weights
    rate: float = 0.1  # of their learning rate rate |theta|^(2 - L)
    steps: int = 20_000  # of gradient descent on all samples

    def __post_init__(self) -> None:
        at_least(1, self, "digits_width", "digits_steps", "samples", "width", "steps")
        at_least(_DEEP, self, "depth")
        positive(self, "deviation", "rate")
        at_least(1, self, "teachers")
        at_least(0, self, "seed", "digits")
        if not 2 <= len(self.strengths) <= 6 or not all(0 < one < float("inf") for one in self.strengths):
            raise InputError(f"strengths must be 2 to 6 positive numbers; got {self.strengths!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: one teacher of either kind."""
        return cls(digits=0, teachers=1, samples=60, width=16, deviation=0.03, steps=8_000)

    @classmethod
    def paper(cls) -> "Params":
        """Wider networks and more of them; the paper has no experiment on this."""
        return cls(digits=5, digits_width=300, digits_steps=600_000, teachers=10)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Network by network."""
    from saddlescope.papers.deep_relu.shared.image_training import image_loss

    jobs: list[tuple[str, Callable[[], Any], Training]] = []
    for seed in range(params.seed, params.seed + params.teachers):
        for kind in ("relu", "abs"):
            training = Training(
                depth=params.depth, width=params.width, deviation=params.deviation, rate=params.rate,
                steps=params.steps, batch=None, seed=seed,
            )  # fmt: skip
            make = partial(teacher_loss, kind, params.strengths, samples=params.samples, seed=seed)
            jobs.append((f"{kind} teacher, seed {seed}", make, training))
    for seed in range(params.seed, params.seed + params.digits):
        training = Training(
            depth=6, width=params.digits_width, deviation=0.01, rate=10.0, steps=params.digits_steps, batch=32,
            seed=seed,
        )  # fmt: skip
        jobs.append((f"digits, seed {seed}", partial(image_loss, "digits", context), training))
    paths = []
    for n, (name, make, training) in enumerate(jobs):
        report = context.part(n / len(jobs), (n + 1) / len(jobs))
        paths.append(context.cached(f"path-{n}", partial(followed, make, training, context, report, name)))
    context.report(1.0, "done")
    return together(paths)


def _passages(run: xr.Dataset) -> list[xr.Dataset]:
    """For each network that reaches the second saddle: its own layers, from escape to arrival."""
    passages = []
    for n in range(run.sizes["network"]):
        one = run.isel(network=n)
        if int(one.stages_found) < 2:
            continue
        one = one.sel(layer=slice(1, int(one.depth)))
        made = fallen(one, 1).values
        first, last = (int(np.argmax(made >= part)) for part in (_ESCAPE, _ARRIVAL))
        passages.append(one.isel(mark=slice(first, last + 1)))
    return passages


def _over_passages(statistic: Callable[[xr.Dataset], float]) -> Callable[[xr.Dataset], Estimate]:
    """The largest of a statistic over all passages."""

    def largest(run: xr.Dataset) -> Estimate:
        passages = _passages(run)
        if not passages:
            return Estimate.unresolved("No network reaches the second saddle; take more steps.")
        marks = min(one.sizes["mark"] for one in passages)
        found = f"{len(passages)} of {run.sizes['network']} networks, {marks} or more stored steps in a passage"
        return Estimate(float(max(statistic(one) for one in passages)), remark=found)

    return largest


def _deep(one: xr.Dataset) -> xr.Dataset:
    return one.sel(layer=slice(_DEEP, None))


def _most_above_bulk(one: xr.Dataset) -> float:
    return float(_deep(one).above_bulk.max())


def _below_deep(one: xr.Dataset) -> float:
    return float(one.above_bulk.sel(layer=slice(2, _DEEP - 1)).max())


def _plateau_rank(one: xr.Dataset) -> float:
    return float(abs(_deep(one).stage_layer_rank.sel(stage=1) - 1).max())


def _growth(one: xr.Dataset) -> float:
    ratio = _deep(one).second_ratio
    return float((ratio.isel(mark=-1) / ratio.isel(mark=0)).max())


def _tail(one: xr.Dataset) -> float:
    return float(_deep(one).tail_activations.max())


def _nonlinear(one: xr.Dataset) -> float:
    return float(_deep(one).nonlinearity.isel(mark=-1).max())


def _first_layer(one: xr.Dataset) -> float:
    return -float(one.second_ratio.sel(layer=1).isel(mark=-1))


def _least_of_first_layer(run: xr.Dataset) -> Estimate:
    largest = _over_passages(_first_layer)(run)
    return Estimate(-largest.value, largest.uncertainty, largest.remark)


_PILOT = "section 5, hypothesis 3; the bound from runs on other seeds"

claims = (
    Claim(
        name="rank-one",
        says="From the escape to the arrival at the second saddle no layer from the third on has more than one "
        "singular value above its initial bulk: the most that one has",
        source="section 5, hypothesis 3: layers of rank one remain so",
        statistic=_over_passages(_most_above_bulk),
        high=1.0,
    ),
    Claim(
        name="plateau",
        says="On the plateau of the second saddle the layers from the third on are found to have rank one: the largest "
        "difference",
        source="section 5, hypothesis 3",
        statistic=_over_passages(_plateau_rank),
        high=0.0,
    ),
    Claim(
        name="sharper",
        says="They even come nearer to rank one on the way: s_2/s_1 at the arrival over that at the escape, largest",
        source="beyond the paper; this project's bar",
        statistic=_over_passages(_growth),
        high=1.0,
    ),
    Claim(
        name="activations",
        says="So do the activations: the largest tail energy sum_(i>=2) s_i^2 / sum s_i^2 of Z^s in layers from the "
        "third on during the passage",
        source=_PILOT,
        statistic=_over_passages(_tail),
        high=0.01,
    ),
    Claim(
        name="linear",
        says="And the layers stay nearly linear: largest |Z^s - Z| / |Z| at the arrival in layers from the third on",
        source=_PILOT,
        statistic=_over_passages(_nonlinear),
        high=0.15,
    ),
    Claim(
        name="second-layer",
        says="The same for the second layer, which Theorem 3.1 does not bring near rank one: singular values above its "
        "initial bulk during the passage, most",
        source="a sharper form than the paper's: all layers but the first",
        statistic=_over_passages(_below_deep),
        high=1.0,
    ),
    Claim(
        name="first-layer",
        says="The first layer is not of rank one at the second saddle: least s_2/s_1 at the arrival",
        source="section 4 and Figure 1: the first layers have a higher rank; the bound from runs on other seeds",
        statistic=_least_of_first_layer,
        low=0.15,
    ),
)

metrics = QUANTITIES


def figures(run: xr.Dataset) -> list[Figure]:
    """How near to rank one the layers are along the way, and what the activations do."""
    shown = _shown(run)
    return [_ratios(run, shown), _activations(run, shown)]


def _shown(run: xr.Dataset) -> list[int]:
    """The first network of every task that reaches the second saddle."""
    tasks: dict[str, int] = {}
    for n, name in enumerate(run.network.values.tolist()):
        if int(run.stages_found[n]) > 1:
            tasks.setdefault(name.partition(",")[0], n)
    return list(tasks.values()) or [0]


def _panel(run: xr.Dataset, n: int, key: str, label: str, least: float) -> Panel:

    one = run.isel(network=n)
    starts = one.stage_start.dropna("stage").values[1:]
    step = one.step.values
    end = 1.4 * starts[1] if len(starts) > 1 else np.inf
    inside = (step >= (starts[0] / 2 if len(starts) else 1)) & (step <= end)
    curves = [
        Line(x=step[inside], y=one[key].sel(layer=layer).values[inside], group=f"layer {layer}", color=layer - 1)
        for layer in one.layer.values.tolist()
        if one[key].sel(layer=layer).notnull().any()
    ]
    drops = [Mark(at=float(start), group="drops of the loss", color=7) for start in starts if start <= end]
    return Panel(
        title=str(one.network.item()),
        x=Axis("step"),
        y=Axis(label, scale="log", range=(least, 1.0)),
        marks=(*curves, *drops),
    )


def _ratios(run: xr.Dataset, shown: list[int]) -> Figure:

    return Figure(
        name="ratios",
        title="Deep layers come nearer to rank one until the next saddle",
        caption="s_2/s_1 of the weights of each layer, from before the escape from the origin (first dotted line) to "
        "the escape from the second saddle (second one, if the run has it), where the next singular value grows. The "
        "table has every network at the arrival at the second saddle: s_2/s_1, and the stable rank, which the bulk "
        "raises.",
        panels=tuple(_panel(run, n, "second_ratio", "s_2/s_1 of W_l", 0.03) for n in shown),
        table=_table(run),
    )


def _activations(run: xr.Dataset, shown: list[int]) -> Figure:

    panels = []
    for n in shown:
        panels.append(_panel(run, n, "tail_activations", "tail energy of Z^s_l", 1e-6))
        panels.append(_panel(run, n, "nonlinearity", "|Z^s_l - Z_l| / |Z_l|", 0.01))
    return Figure(
        name="activations",
        title="Behind the first layers, activations are of rank one and hardly cut by the ReLU",
        caption="Tail energy sum over i >= 2 of s_i^2 / sum of s_i^2 of the activations of each layer, and the part of "
        "the preactivations that the ReLU takes away. Below 1e-6 the tail energies are rounding errors of float32.",
        panels=tuple(panels),
    )


def _table(run: xr.Dataset) -> Table:

    rows = []
    for one in _passages(run):
        last = one.isel(mark=-1)
        ratios, stable = (
            ", ".join(f"{value:.2f}" for value in last[key].values) for key in ("second_ratio", "stable_rank")
        )
        counts = ", ".join(str(int(value)) for value in one.above_bulk.max("mark").values)
        rows.append((str(one.network.item()), int(last.step), ratios, stable, counts))
    columns = ("network", "arrival at step", "s_2/s_1 of layers 1..L", "stable ranks", "most above the bulk")
    return Table(columns=columns, rows=tuple(rows))
