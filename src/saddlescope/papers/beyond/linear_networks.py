"""Fully connected linear networks as sums of units: singular modes are learned in order, at known times and levels.

The unit is one hidden neuron, f(x) = v (u · x), and the inputs are white, XᵀX = n 1.

    M         target map, Y = X M with singular values s_1 > s_2 > ...
    T_k       1 / s_k: direction k of all units together grows at the rate s_k until it is learned
    L_k       sum of s_j² / 2 over j > k
"""

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.beyond import CITATION
from saddlescope.papers.beyond.shared.stage_claims import AGF, SADDLES, add_stage_claims, over_stages, stage_figure
from saddlescope.papers.beyond.shared.stage_comparison import compare_stages, over_seeds, record_times
from saddlescope.plot import Figure
from saddlescope.reproduction.claim import Claims, Estimate
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Random target maps with given singular values."""

    seeds: tuple[int, ...] = param(tuple(range(10)), "seeds of data and initial weights", ge=0, order="distinct")
    inputs: int = param(4, "dimension of the inputs", ge=1)
    outputs: int = param(3, "dimension of the outputs", ge=1)
    singular_values: tuple[float, ...] = param(
        (3.0, 2.0, 1.0), "singular values of the target map", gt=0, order="decreasing"
    )
    log10_scales: tuple[float, ...] = param(
        (-32.0, -128.0, -512.0), "log10 of the initial scales α", ge=-4096, le=-1, order="decreasing", least=2
    )
    tolerance: float = param(1e-6, "relative tolerance of the flow's stage times", ge=1e-10, le=1e-3, scale="log")

    def check(self) -> None:
        if len(self.singular_values) > min(self.inputs, self.outputs):
            raise InputError(
                f"singular_values must be at most {min(self.inputs, self.outputs)}, the smaller of inputs and outputs; "
                f"got {self.singular_values!r}."
            )


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Predict the stages of each network from one neuron, and follow its flow from every scale."""
    return over_seeds(params.seeds, context, lambda seed, step: _solve(params, seed, step))


def _solve(params: Params, seed: int, context: RunContext) -> xr.Dataset:
    import jax.numpy as jnp

    from saddlescope.flow import FactorInit, factored_flow
    from saddlescope.papers.beyond.shared.units import MapLoss, half_square, linear_neuron
    from saddlescope.theory import unit_learning

    rng = np.random.default_rng(seed)
    d, o, s = params.inputs, params.outputs, np.array(params.singular_values)
    n = 4 * d
    X = np.linalg.qr(rng.standard_normal((n, d)))[0] * np.sqrt(n)
    U, V = (np.linalg.qr(rng.standard_normal((size, len(s))))[0] for size in (d, o))
    Y = X @ (U * s) @ V.T
    parameters = {"in": np.zeros(d), "out": np.zeros(o)}
    learned = unit_learning(linear_neuron, (X, Y), half_square, parameters=parameters)
    left, right = rng.standard_normal((d, d + o)), rng.standard_normal((o, d + o))
    loss = MapLoss(jnp.asarray(X), jnp.asarray(Y))
    until, curves, ranks = 1.3 / s[-1] + 1 / s[0], {}, []
    for scale, step in context.steps(params.log10_scales):
        start = FactorInit(pairs=[(left, right)], log_scale=scale * np.log(10))
        flow = factored_flow(
            loss,
            start,
            until=until,
            tolerance=params.tolerance,
            record=record_times(learned.staircase.times, until, -1 / start.log_scale),
            report=step.report,
        )
        curves[scale] = flow.times, flow.losses
        middles = (1 / s + np.append(1 / s[1:], until)) / 2
        values = np.array([np.linalg.svd(B, compute_uv=False) for B in flow(middles)[0]])
        ranks.append(np.sum(values > 1e-3 * s[0], axis=1))
    modes = [_map(stage.thetas, d) - (U[:, :k] * s[:k]) @ V[:, :k].T for k, stage in enumerate(learned.stages)]
    stages = np.arange(1, len(s) + 1)
    compared = compare_stages(learned, curves)
    if compared.sizes["stage"] != len(s):
        raise RuntimeError(f"The prediction ended at stage {compared.sizes['stage']}: {learned.message}")
    return compared.assign(
        exact_time=("stage", 1 / s),
        exact_loss=("stage", np.array([0.5 * np.sum(s[k:] ** 2) for k in stages])),
        mode_error=("stage", np.array([np.abs(error).max() / s[0] for error in modes[1:]])),
        rank=(("scale", "stage"), np.array(ranks)),
    )


def _map(thetas: np.ndarray, inputs: int) -> np.ndarray:
    """Return the map of active neurons; leaves are in the order of their names: in, out."""
    return thetas[:, :inputs].T @ thetas[:, inputs:]


claims = Claims()


@claims.add(
    "modes", "The features that fully connected linear networks learn one after another are singular modes",
    quantity="largest entry of the difference of a predicted plateau's map from the truncated singular value "
        "decomposition of the target, in units of its largest singular value", kind="printed", source=AGF, high=1e-8,
    evidence="cases", over="seeds",
    why="On white inputs the target map has known singular modes, which the prediction from one neuron does not use",
    doubt="On correlated inputs the modes mix, and the printed statement needs its own definition of modes",
)  # fmt: skip
def _modes(run: xr.Dataset) -> Estimate:
    return over_stages(run, run.mode_error)


@claims.add(
    "closed-form", "Linear networks on white inputs learn mode k at the time 1 / s_k, and lose half of s_k squared",
    quantity="largest relative difference of a predicted time or level from the closed form", kind="reading",
    source="Derived in the module: dormant neurons of a linear network obey a linear equation; the bound allows for "
    "rounding", high=1e-8, evidence="cases", over="seeds",
    why="Times and levels follow from the singular values alone, while the prediction works on neurons and data",
    doubt="Only white inputs have this closed form",
)  # fmt: skip
def _closed_form(run: xr.Dataset) -> Estimate:
    times = abs(run.predicted_time / run.exact_time - 1)
    return over_stages(run, np.maximum(times, abs(run.predicted_loss - run.exact_loss) / run.initial_loss))


@claims.add(
    "rank", "Linear networks learn solutions of increasing rank: on plateau k, the learned map has rank k",
    quantity="largest difference of the rank on a plateau of the flow from the number of its stage, at the smallest "
        "scale", kind="reading",
    source=f"{SADDLES}; rank: singular values above a thousandth of the target's largest", high=0.0,
    evidence="cases", over="seeds",
    why="The rank is counted in the map of the flow, halfway between two predicted times",
    doubt="The threshold decides what counts, though at this scale the next singular value is far below it",
)  # fmt: skip
def _rank(run: xr.Dataset) -> Estimate:
    return over_stages(run, abs(run["rank"].isel(scale=-1) - run.stage))


add_stage_claims(claims, "fully connected linear networks")


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw the losses and the errors."""
    caption = "Gradient flow of two-layer linear networks, and the prediction from one hidden neuron."
    return [stage_figure(run, title="Singular modes of linear networks are learned in order", caption=caption)]


entry = Entry(
    "beyond/linear-networks", "Fully connected linear networks: singular modes in order, in closed form",
    citation=CITATION, source="Kunin et al., linear networks; Zhang et al., rank", params=Params,
    quick=dict(seeds=(0, 1), log10_scales=(-32.0, -128.0), inputs=3, outputs=2, singular_values=(3.0, 1.5)), run=run,
    claims=claims, figures=figures,
)  # fmt: skip
