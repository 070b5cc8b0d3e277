"""Deep linear networks: stages of exactly known levels and ranks, found in runs.

The paper's hope for ReLU networks is drawn from linear ones, where the complete path is known: from small weights they
go from saddle to saddle, the k-th of rank k in every layer, at the level of the best fit of rank k to the data.
Networks of two depths are trained on data that are not white, their stages are found in loss and spectra alone, and
compared with these levels (`saddlescope.theory.deep_linear`). Synthetic staircases, whose stages are known too, show
how much noise the finder of stages tolerates.

    level     of stage k: loss of the best linear fit of rank k, from the data alone
    range     loss at the origin less the last level
    visible   a stage after a drop of at least 2 % of the range; the finder looks for no other
    speed     -Tr[G^T Y] of the leading singular pairs u_l v_l^T of all layers, a network of norm |theta|^2 = L; at most
              s* = |G X^T|, at any depth

Escape along the optimal direction needs small initial weights, the smaller the deeper: at depth 4 a third
of the deviation brings the slowest network from 0.56 to 0.80 of s*. Levels and ranks do not depend on it.
"""

from functools import partial
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.deep_linear.claims import claims
from saddlescope.papers.deep_relu.deep_linear.figures import figures
from saddlescope.papers.deep_relu.shared.sequence_checks import require_distinct
from saddlescope.papers.deep_relu.shared.staircase_metrics import STAIRCASE_METRICS
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.measure import Staircase
    from saddlescope.theory.deep_linear import DeepLinearStages

_MOST = 12  # stages that are stored

_MIN_DROP = 0.02  # of the range: what counts as a drop

_FIRST_SYNTHETIC = 20_000  # seeds of the synthetic staircases: none on which the finder was tuned


class Params(EntryParams):
    """Sizes at which a network trains in seconds; the paper has no experiment on this."""

    depths: tuple[int, ...] = param((3, 4), "numbers of layers L")
    deviations: tuple[float, ...] = param((0.002, 0.02), "standard deviation of the initial weights at each depth")
    seeds: tuple[int, ...] = param((0, 1, 2, 3, 4), "of data and initial weights")
    strengths: tuple[float, ...] = param((4.0, 2.5, 1.5), "singular values of the teacher, a matrix")
    noise: float = param(
        0.1, "standard deviation of the targets' noise, which makes them of full rank", ge=0.0, le=10.0
    )
    inputs: int = param(6, "dimension of the inputs", ge=1)
    outputs: int = param(5, "dimension of the targets", ge=1)
    samples: int = param(40, "in the data set", ge=1)
    width: int = param(10, "of the hidden layers", ge=1)
    rate: float = param(0.01, "learning rate", gt=0)
    steps: int = param(150_000, "of gradient descent, on all samples", ge=1)
    marks: int = param(16, "steps that are stored, for each doubling of the step", ge=1)
    staircases: int = param(300, "synthetic ones at each noise and sampling", ge=1)
    noises: tuple[float, ...] = param((0.0, 1e-4, 1e-3, 1e-2), "of the synthetic losses, in units of their range")

    def check(self) -> None:
        require_distinct(2, self, "depths", example="3,4")
        if len(self.deviations) != len(self.depths) or not all(0 < one < 1 for one in self.deviations):
            raise InputError(
                f"deviations must be {len(self.depths)} numbers between 0 and 1, one per depth; got "
                f"{self.deviations!r}."
            )
        require_distinct(0, self, "seeds")
        most = min(self.inputs, self.outputs, self.samples)
        if not 1 <= len(self.strengths) <= most or min(self.strengths) <= 0:
            raise InputError(f"strengths must be 1 to {most} positive numbers; got {self.strengths!r}.")
        if not self.noises or not all(0 <= noise < 1 for noise in self.noises):
            raise InputError(f"noises must be numbers of at least 0 and below 1; got {self.noises!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train network by network, then find the stages of the synthetic staircases."""
    import jax

    from saddlescope.papers.deep_relu.shared.staircase_dataset import concatenate_networks

    networks = list(product(zip(params.depths, params.deviations, strict=True), params.seeds))
    found = []
    with jax.enable_x64(True):
        for n, ((depth, deviation), seed) in enumerate(networks):
            report = context.part(0.8 * n / len(networks), 0.8 * (n + 1) / len(networks))
            make = partial(_train_network, params, depth, deviation, seed, report)
            found.append(context.cached(f"network-{depth}-{seed}", make))
    table = context.cached("synthetic", partial(_find_synthetic_staircases, params, context.part(0.8, 1.0)))
    context.report(1.0, "done")
    return concatenate_networks(found).merge(table).assign_attrs(rate=params.rate)


def _draw_data(params: Params, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw X (inputs, samples), not white, and T (outputs, samples)."""
    draw = np.random.default_rng(seed)
    scales = np.exp(draw.uniform(-0.5, 0.5, params.inputs))
    X = scales[:, None] * draw.standard_normal((params.inputs, params.samples))
    U, V = (np.linalg.qr(draw.standard_normal((size, size)))[0] for size in (params.outputs, params.inputs))
    rank = len(params.strengths)
    teacher = (U[:, :rank] * params.strengths) @ V[:, :rank].T
    return X, teacher @ X + params.noise * draw.standard_normal((params.outputs, params.samples))


def _train_network(params: Params, depth: int, deviation: float, seed: int, report: Report) -> xr.Dataset:
    """Predict the stages of one network, train it, and find its stages."""
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import geometric_steps, sgd
    from saddlescope.measure import find_plateaus
    from saddlescope.models.deep import LayeredLoss, half_squared_error, layered_weights
    from saddlescope.papers.deep_relu.shared.staircase_dataset import staircase_dataset
    from saddlescope.theory.deep_linear import deep_linear_stages

    X, T = _draw_data(params, seed)
    predicted = deep_linear_stages(X.T, T.T, width=params.width)
    loss = LayeredLoss(jnp.asarray(X.T), jnp.asarray(T.T), half_squared_error, relu=False)
    widths = (params.inputs, *(depth - 1) * (params.width,), params.outputs)
    every = max(1, params.steps // 500)
    recording = sgd(
        loss,
        layered_weights(widths, seed=seed, deviation=deviation),
        steps=params.steps,
        learning_rate=params.rate,
        record=geometric_steps(params.steps, per_doubling=params.marks, every=every),
        observe=jax.tree_util.Partial(_observe, loss),
        report=lambda fraction, note: report(fraction, f"depth {depth}, seed {seed}: {note}"),
    )
    seen = recording.observed
    staircase = find_plateaus(
        recording.steps, seen["loss"], seen["singular_values"], time_unit="steps", min_drop=_MIN_DROP
    )
    drops = -np.diff(predicted.losses)
    visible = 1 + int(np.sum(drops >= _MIN_DROP * (predicted.losses[0] - predicted.losses[-1])))
    before = seen["loss"] > predicted.losses[0] - 0.01 * drops[0]  # the weights still small
    spectra = [np.pad(s, ((0, 0), (0, max(widths) - s.shape[1]))) for s in seen["singular_values"]]
    level = np.full(_MOST, np.nan)
    level[: len(predicted.losses)] = predicted.losses[:_MOST]
    return staircase_dataset(staircase, layers=depth, most=_MOST).merge(
        xr.Dataset(
            {
                "loss": ("step", seen["loss"]),
                "singular_values": (("layer", "step", "value"), np.stack(spectra)[..., : visible + 1]),
                "level": ("stage", level),
                "visible": ((), visible),
                "depth": ((), depth),
                "seed": ((), seed),
                "fitted": ((), _distance_from_saddles(staircase, predicted)),
                "speed_share": ((), float(np.max(seen["speed"][before]) / predicted.speeds[0])),
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
        "speed": jnp.abs(jnp.sum(loss.gradient_at_origin().T * loss.output(leading).T)),  # signs of pairs are arbitrary
        "singular_values": [s for _, s, _ in decompositions],
    }


def _distance_from_saddles(staircase: "Staircase", predicted: "DeepLinearStages") -> float:
    """Return the largest distance of a level from the nearest saddle of its rank, in units of the range."""
    worst = 0.0
    for stage in staircase.stages:
        saddles = [predicted.saddle_loss(S) for S in combinations(range(len(predicted.strengths)), stage.rank)]
        worst = max(worst, min((abs(stage.loss - saddle) for saddle in saddles), default=float("inf")))
    return worst / float(predicted.losses[0] - predicted.losses[-1])


def _find_synthetic_staircases(params: Params, report: Report) -> xr.Dataset:
    """Count the synthetic staircases that are found right, at each noise and sampling."""
    from saddlescope.measure import find_plateaus
    from saddlescope.papers.deep_relu.deep_linear.synthetic_staircases import synthetic_run

    right = np.zeros((len(params.noises), 2), int)
    for (i, noise), geometric in product(enumerate(params.noises), (False, True)):
        report((2 * i + geometric) / right.size, f"synthetic staircases with noise {noise:g}")
        for seed in range(_FIRST_SYNTHETIC, _FIRST_SYNTHETIC + params.staircases):
            case = synthetic_run(seed, noise=noise, geometric=geometric)
            found = find_plateaus(case.times, case.losses, case.singular_values, time_unit="t")
            right[i, int(geometric)] += case.matches(found)
    return xr.Dataset(
        {"right": (("loss_noise", "sampling"), right), "staircases": ((), params.staircases)},
        coords={"loss_noise": list(params.noises), "sampling": ["linear", "geometric"]},
    )


metrics = STAIRCASE_METRICS

entry = Entry(
    "deep-relu/deep-linear",
    "Deep linear networks: stages of exactly known levels and ranks, found in runs",
    citation=CITATION,
    source="Section 5, references 27 and 32",
    params=Params,
    quick=dict(depths=(3,), deviations=(0.01,), seeds=(0,), steps=20_000, staircases=10, noises=(0.0, 1e-3)),
    paper=dict(seeds=tuple(range(20)), staircases=2000),
    run=run,
    claims=claims,
    figures=figures,
    metrics=metrics,
)
