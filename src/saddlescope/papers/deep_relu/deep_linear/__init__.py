"""Deep linear networks: stages of exactly known levels and ranks, found in runs   (Section 5, references 27 and 32)

The paper's hope for ReLU networks is drawn from linear ones, where the whole path is known: from small weights they go
from saddle to saddle, the k-th of rank k in every layer, at the level of the best fit of rank k to the data. Networks
of two depths are trained on data that are not white, their stages are found in loss and spectra alone, and held against
these levels (`saddlescope.theory.deep_linear`). Synthetic staircases, whose stages are known too, tell how much noise
the finder of stages bears.

    level     of stage k: loss of the best linear fit of rank k, from the data alone
    range     loss at the origin less the last level
    visible   a stage after a drop of at least 2 % of the range; the finder looks for no other
    speed     -Tr[G^T Y] of the leading singular pairs u_l v_l^T of all layers, a network of norm |theta|^2 = L; at most
              s* = |G X^T|, at any depth

That the escape is along the optimal direction needs small initial weights, the smaller the deeper: at depth 4 a third
of the deviation brings the slowest network from 0.56 to 0.80 of s*. Levels and ranks do not depend on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu.shared.stored_staircases import QUANTITIES
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.reproduction.claim import Claim, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.parameter_checks import at_least, between, positive

if TYPE_CHECKING:
    from saddlescope.measure import Staircase
    from saddlescope.theory.deep_linear import DeepLinearStages

_MOST = 12  # stages that are stored
_MIN_DROP = 0.02  # of the range: what counts as a drop
_FIRST_SYNTHETIC = 20_000  # seeds of the synthetic staircases: none on which the finder was tuned
_BARS = {0.0: 1.0, 1e-4: 0.97, 1e-3: 0.90}  # noise, and the least part of staircases found right


@dataclass(frozen=True, kw_only=True)
class Params:
    """Sizes at which a network trains in seconds; the paper has no experiment on this."""

    depths: tuple[int, ...] = (3, 4)  # numbers of layers L
    deviations: tuple[float, ...] = (0.002, 0.02)  # standard deviation of the initial weights at each depth
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)  # of data and initial weights
    strengths: tuple[float, ...] = (4.0, 2.5, 1.5)  # singular values of the teacher, a matrix
    noise: float = 0.1  # standard deviation of the targets' noise, which makes them of full rank
    inputs: int = 6  # dimension of the inputs
    outputs: int = 5  # dimension of the targets
    samples: int = 40  # in the data set
    width: int = 10  # of the hidden layers
    rate: float = 0.01  # learning rate
    steps: int = 150_000  # of gradient descent, on all samples
    marks: int = 16  # steps that are stored, for each doubling of the step
    staircases: int = 300  # synthetic ones at each noise and sampling
    noises: tuple[float, ...] = (0.0, 1e-4, 1e-3, 1e-2)  # of the synthetic losses, in units of their range

    def __post_init__(self) -> None:
        at_least(1, self, "inputs", "outputs", "samples", "width", "steps", "marks", "staircases")
        positive(self, "rate")
        between(0.0, 10.0, self, "noise")
        if not self.depths or min(self.depths) < 2 or len(set(self.depths)) < len(self.depths):
            raise InputError(f"depths must be different integers of at least 2, such as 3,4; got {self.depths!r}.")
        if len(self.deviations) != len(self.depths) or not all(0 < one < 1 for one in self.deviations):
            raise InputError(
                f"deviations must be {len(self.depths)} numbers between 0 and 1, one a depth; got {self.deviations!r}."
            )
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds must be different integers of at least 0; got {self.seeds!r}.")
        most = min(self.inputs, self.outputs, self.samples)
        if not 1 <= len(self.strengths) <= most or min(self.strengths) <= 0:
            raise InputError(f"strengths must be 1 to {most} positive numbers; got {self.strengths!r}.")
        if not self.noises or not all(0 <= noise < 1 for noise in self.noises):
            raise InputError(f"noises must be numbers of at least 0 and below 1; got {self.noises!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: one network, few staircases."""
        return cls(depths=(3,), deviations=(0.01,), seeds=(0,), steps=20_000, staircases=10, noises=(0.0, 1e-3))

    @classmethod
    def paper(cls) -> "Params":
        """More networks and staircases; the paper has none."""
        return cls(seeds=tuple(range(20)), staircases=2000)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Network by network, then the synthetic staircases."""
    import jax

    from saddlescope.papers.deep_relu.shared.stored_staircases import together

    networks = list(product(zip(params.depths, params.deviations, strict=True), params.seeds))
    found = []
    with jax.enable_x64(True):
        for n, ((depth, deviation), seed) in enumerate(networks):
            report = context.part(0.8 * n / len(networks), 0.8 * (n + 1) / len(networks))
            make = partial(_network, params, depth, deviation, seed, report)
            found.append(context.cached(f"network-{depth}-{seed}", make))
    table = context.cached("synthetic", partial(_synthetic, params, context.part(0.8, 1.0)))
    context.report(1.0, "done")
    return together(found).merge(table).assign_attrs(rate=params.rate)


def _data(params: Params, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """X (inputs, samples), not white, and T (outputs, samples)."""
    draw = np.random.default_rng(seed)
    scales = np.exp(draw.uniform(-0.5, 0.5, params.inputs))
    X = scales[:, None] * draw.standard_normal((params.inputs, params.samples))
    U, V = (np.linalg.qr(draw.standard_normal((size, size)))[0] for size in (params.outputs, params.inputs))
    rank = len(params.strengths)
    teacher = (U[:, :rank] * params.strengths) @ V[:, :rank].T
    return X, teacher @ X + params.noise * draw.standard_normal((params.outputs, params.samples))


def _network(
    params: Params, depth: int, deviation: float, seed: int, report: Callable[[float, str], None]
) -> xr.Dataset:
    """Theory, and one run with the stages found in it."""
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import geometric_marks, sgd
    from saddlescope.measure import find_plateaus
    from saddlescope.models.deep import LayeredLoss, half_squared_error, layered_weights
    from saddlescope.papers.deep_relu.shared.stored_staircases import stored_staircase
    from saddlescope.theory.deep_linear import deep_linear_stages

    X, T = _data(params, seed)
    told = deep_linear_stages(X, T, width=params.width)
    loss = LayeredLoss(jnp.asarray(X.T), jnp.asarray(T.T), half_squared_error, relu=False)
    widths = (params.inputs, *(depth - 1) * (params.width,), params.outputs)
    every = max(1, params.steps // 500)
    recording = sgd(
        loss,
        layered_weights(widths, seed=seed, deviation=deviation),
        steps=params.steps,
        learning_rate=lambda _: jnp.asarray(params.rate),
        marks=geometric_marks(params.steps, per_doubling=params.marks, every=every),
        observe=jax.tree_util.Partial(_observe, loss),
        report=lambda fraction, note: report(fraction, f"depth {depth}, seed {seed}: {note}"),
    )
    seen = recording.observed
    staircase = find_plateaus(
        recording.steps, seen["loss"], seen["singular_values"], time_unit="steps", min_drop=_MIN_DROP
    )
    drops = -np.diff(told.losses)
    visible = 1 + int(np.sum(drops >= _MIN_DROP * (told.losses[0] - told.losses[-1])))
    before = seen["loss"] > told.losses[0] - 0.01 * drops[0]  # the weights still small
    spectra = [np.pad(s, ((0, 0), (0, max(widths) - s.shape[1]))) for s in seen["singular_values"]]
    level = np.full(_MOST, np.nan)
    level[: len(told.losses)] = told.losses[:_MOST]
    return stored_staircase(staircase, layers=depth, most=_MOST).merge(
        xr.Dataset(
            {
                "loss": ("step", seen["loss"]),
                "singular_values": (("layer", "step", "value"), np.stack(spectra)[..., : visible + 1]),
                "level": ("stage", level),
                "visible": ((), visible),
                "depth": ((), depth),
                "seed": ((), seed),
                "fitted": ((), _on_a_saddle(staircase, told)),
                "speed_share": ((), float(np.max(seen["speed"][before]) / told.speeds[0])),
            },
            coords={"step": recording.steps, "value": np.arange(1, visible + 2)},
        )
    )


def _observe(loss: Any, weights: Any) -> dict[str, Any]:
    import jax.numpy as jnp

    decompositions = [jnp.linalg.svd(weight, full_matrices=False) for weight in weights]
    leading = tuple(jnp.outer(U[:, 0], Vt[0]) for U, _, Vt in decompositions)
    return {
        "loss": loss(weights),
        "speed": jnp.abs(jnp.sum(loss.gradient_at_origin() * loss.output(leading))),  # signs of pairs are arbitrary
        "singular_values": [s for _, s, _ in decompositions],
    }


def _on_a_saddle(staircase: "Staircase", told: "DeepLinearStages") -> float:
    """The largest distance of a level from that of the nearest saddle of its rank, in units of the range."""
    worst = 0.0
    for stage in staircase.stages:
        saddles = [told.saddle_loss(S) for S in combinations(range(len(told.strengths)), stage.rank)]
        worst = max(worst, min((abs(stage.loss - saddle) for saddle in saddles), default=float("inf")))
    return worst / float(told.losses[0] - told.losses[-1])


def _synthetic(params: Params, report: Callable[[float, str], None]) -> xr.Dataset:
    """How many synthetic staircases are found right, at each noise and sampling."""
    from saddlescope.measure import find_plateaus
    from saddlescope.papers.deep_relu.deep_linear.synthetic_staircases import synthetic_run

    right = np.zeros((len(params.noises), 2), int)
    for (i, noise), geometric in product(enumerate(params.noises), (False, True)):
        report((2 * i + geometric) / right.size, f"synthetic staircases with noise {noise:g}")
        for seed in range(_FIRST_SYNTHETIC, _FIRST_SYNTHETIC + params.staircases):
            case = synthetic_run(seed, noise=noise, geometric=geometric)
            found = find_plateaus(case.times, case.losses, case.singular_values, time_unit="t")
            right[i, int(geometric)] += case.found_right(found)
    return xr.Dataset(
        {"right": (("loss_noise", "sampling"), right), "staircases": ((), params.staircases)},
        coords={"loss_noise": list(params.noises), "sampling": ["linear", "geometric"]},
    )


def _wrong(run: xr.Dataset) -> Estimate:
    """Networks in which another number of stages is found, or a layer of another rank in one."""
    expected = run.stage.where(run.stage < run.visible, -1)
    ranks = (run.stage_layer_rank == expected) | (run.layer > run.depth)
    wrong = (run.stages_found != run.visible) | ~ranks.all(["stage", "layer"])
    return Estimate(float(wrong.sum()), remark=f"{run.sizes['network']} networks, {int(run.visible.sum())} stages")


def _level_error(run: xr.Dataset) -> Estimate:
    span = run.level.isel(stage=0) - run.level.min("stage")
    error = abs(run.stage_loss - run.level) / span
    return Estimate(float(error.max()), remark=f"median {float(error.median()):.2g}")


def _off_saddles(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.fitted.max()))


def _speed(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.speed_share.min()), remark=f"largest {float(run.speed_share.max()):.6f}")


def _success(noise: float) -> Callable[[xr.Dataset], Estimate]:
    def statistic(run: xr.Dataset) -> Estimate:
        if noise not in run.loss_noise.values:
            return Estimate.unresolved(f"The noise {noise:g} was not among those tried.")
        tried = 2 * int(run.staircases)
        share = float(run.right.sel(loss_noise=noise).sum()) / tried
        # Agresti and Coull's interval, of 95 %; without noise every staircase counts.
        centre = (share * tried + 2) / (tried + 4)
        uncertainty = abs(share - centre) + 2 * (centre * (1 - centre) / (tried + 4)) ** 0.5 if noise else 0.0
        return Estimate(share, uncertainty, f"{tried} staircases")

    return statistic


claims = (
    Claim(
        name="stages",
        says="As many stages are found as are visible, in each of which every layer has the rank of the best fit: "
        "networks where not",
        source="Section 5 on linear networks; exact theory",
        statistic=_wrong,
        high=0.0,
    ),
    Claim(
        name="levels",
        says="The levels of the plateaus found are those of the best fits: largest distance, as a part of the range",
        source="exact theory; the bound from runs on other seeds, the plateaus being of finite length",
        statistic=_level_error,
        high=1e-3,
    ),
    Claim(
        name="saddles",
        says="Every plateau lies at the level of a saddle of its rank, the best one or another: largest distance",
        source="exact theory; the same bound",
        statistic=_off_saddles,
        high=1e-3,
    ),
    Claim(
        name="speed",
        says="The leading singular pairs of the weights escape from the origin in the optimal direction, whose speed "
        "is |G X^T| at any depth: the part of it that they reach before the loss falls by 1 % of the drop, in the "
        "slowest network",
        source="Section 2.2 with linear layers; the bound from runs on other seeds, the initial scale being finite",
        statistic=_speed,
        low=0.85,
        high=1.0 + 1e-9,
    ),
    *(
        Claim(
            name=f"synthetic-{noise:g}",
            says=f"Of synthetic staircases with noise {noise:g} of the range, found right in every stage, time, level "
            "and rank",
            source="this project's bar; staircases that no setting of the finder was made on",
            statistic=_success(noise),
            low=bar,
        )
        for noise, bar in _BARS.items()
    ),
)

metrics = QUANTITIES


def figures(run: xr.Dataset) -> list[Figure]:
    """The loss and the spectrum of a middle layer of one network a depth, and the finder's success."""
    return [_runs(run), _finder(run)]


def _runs(run: xr.Dataset) -> Figure:

    seed = int(run.seed[0])
    first = run.isel(network=(run.seed == seed).values)
    panels = [panel for n in range(first.sizes["network"]) for panel in _panels(first.isel(network=n))]
    return Figure(
        name="runs",
        title="Linear networks learn one singular direction at a time, at levels known exactly",
        caption=f"Training loss against the step of gradient descent, and the largest singular values of the second "
        f"layer, with seed {seed}. Dashed: the loss of the best linear fit of rank 0, 1, 2, ..., from the data alone. "
        "Dotted: where stages begin, found from loss and spectra alone.",
        panels=tuple(panels),
        table=_table(run),
    )


def _panels(one: xr.Dataset) -> list[Panel]:

    step, starts = one.step.values, one.stage_start.dropna("stage").values[1:]
    shown = slice(int(np.searchsorted(step, starts[0] / 4)) if len(starts) else 1, None)
    x = Axis("step", scale="log")
    begins = [Mark(at=float(start), group="stages found", color=7) for start in starts]
    loss = Line(x=step[shown], y=one.loss.values[shown], group="loss", color=0)
    levels = [
        Line(
            x=step[shown][[0, -1]], y=np.full(2, float(level)), group="best fits of rank k", style="dashed", width=0.9,
            color=3,
        )
        for level in one.level.values[: int(one.visible)]
    ]  # fmt: skip
    values = [
        Line(x=step[shown], y=one.singular_values.sel(layer=2, value=k).values[shown], group=f"s_{k}", color=k)
        for k in one.value.values.tolist()
        if one.singular_values.sel(layer=2, value=k).notnull().any()
    ]
    name = f"depth {int(one.depth)}"
    return [
        Panel(title=name, x=x, y=Axis("loss", scale="log"), marks=(loss, *levels, *begins)),
        Panel(title=f"{name}, layer 2", x=x, y=Axis("singular value"), marks=(*values, *begins)),
    ]


def _table(run: xr.Dataset) -> Table:

    rows = []
    for n in range(run.sizes["network"]):
        one = run.isel(network=n)
        for k in range(min(int(one.stages_found), one.sizes["stage"])):
            stage = one.isel(stage=k)
            ranks = [int(rank) for rank in stage.stage_layer_rank.values if rank >= 0]
            rows.append(
                (
                    int(one.depth), int(one.seed), float(stage.stage_start), ", ".join(map(str, ranks)),
                    float(stage.stage_loss), float(stage.level),
                )
            )  # fmt: skip
    return Table(columns=("depth", "seed", "begins at step", "ranks of layers", "loss", "best fit"), rows=tuple(rows))


def _finder(run: xr.Dataset) -> Figure:

    share = run.right / run.staircases
    noisy = run.loss_noise.values > 0
    lines = [
        Line(
            x=run.loss_noise.values[noisy], y=share.sel(sampling=sampling).values[noisy], group=f"{sampling} sampling",
            color=color, style="points" if color else "solid",
        )
        for color, sampling in enumerate(run.sampling.values)
    ]  # fmt: skip
    bars = [Mark(at=noise, label=f"bar: {bar:.0%}") for noise, bar in _BARS.items() if noise]
    rows = tuple(
        (float(noise), *(float(one) for one in share.sel(loss_noise=noise).values), int(run.staircases))
        for noise in run.loss_noise.values
    )
    return Figure(
        name="finder",
        title="How much noise the finder of stages bears",
        caption="Share of synthetic staircases (2 to 6 stages of varied lengths, heights and widths) that are found "
        "right in every stage, time, level and rank, against the noise of the loss in units of its range.",
        panels=(
            Panel(
                x=Axis("noise of the loss / range", scale="log"), y=Axis("found right", range=(0.0, 1.02)),
                marks=(*lines, *bars),
            ),
        ),
        table=Table(columns=("noise", "linear sampling", "geometric sampling", "staircases each"), rows=rows),
    )  # fmt: skip
