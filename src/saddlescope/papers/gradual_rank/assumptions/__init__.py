"""Assumptions 4.3, 4.4 and 4.5 in every stage of ten instances of the toy task.

The paper looks at one instance. Here Algorithm 1 runs on several, and each assumption is looked at in every stage.

    theta^k     the saddle (u, s u) of stage k, with the signs s
    margin      how much later than the first coordinate the second would arrive, over T_k
    c_k         the constant of Assumption 4.4: half the smallest eigenvalue of the Hessian of L(u, s u) on the support
    growth      (L(u~, s u~) - L(theta^k)) / |u~ - u|^2 for u~ near u on the support; Assumption 4.4 asks for >= c_k

Assumption 4.4 is printed without - L(theta^k). As long as L(theta^k) > 0 that holds at any point whatever, minimum or
not, with a small enough ball. Assumption 4.5 asks for small enough noise: where it fails it is tried again with less.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.assumptions.claims import NEAR, claims
from saddlescope.papers.gradual_rank.assumptions.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from jax import Array

    from saddlescope.models import DiagonalNetwork
    from saddlescope.theory import GreedyStage

BALL = 1e-3  # radius of the ball around u in which growth is measured

POINTS = 32  # points in it

NOISES = (1e-3, 1e-5, 1e-7)  # delta of Assumption 4.5: the next is tried where the one before is too large


class Params(EntryParams):
    """A small head: the paper's size takes the same code an hour."""

    seeds: tuple[int, ...] = param(
        (0, 1, 2, 3, 4, 5, 6, 7, 8, 9), "each of the data, the teacher and the initial weights"
    )
    samples: int = param(200, "sequences in the data set", ge=1)
    tokens: int = param(8, "tokens in a sequence", ge=1)
    dim: int = param(16, "dimension of a token", ge=1)
    draws: int = param(3, "noisy starts of each transition", ge=1)
    tolerance: float = param(
        1e-4, "relative, of the flow's times; it ends at a stationary point in any case", ge=1e-11, le=1e-2
    )

    def check(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise InputError(f"seeds must be distinct and at least 0, such as 0,1,2; got {self.seeds!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1 and the checks of its stages on each seed; finished seeds are cached."""
    import jax

    with jax.enable_x64(True):
        parts = []
        for n, seed in enumerate(params.seeds):
            part = context.part(n / len(params.seeds), (n + 1) / len(params.seeds))
            parts.append(context.cached(f"seed{seed}", partial(_instance, params, seed, part)))
            part(1.0, f"seed {seed} done")
    return xr.concat(parts, dim="seed", join="outer", combine_attrs="drop").assign_coords(seed=list(params.seeds))


def _instance(params: Params, seed: int, report: Report) -> xr.Dataset:
    """Run Algorithm 1 on one instance and check every stage; over `stage`, NaN where nothing is defined."""
    from saddlescope.models import attention_teacher_task
    from saddlescope.theory import incremental_learning

    task = attention_teacher_task(seed, samples=params.samples, tokens=params.tokens, dim=params.dim)
    learned = incremental_learning(
        task.network, 2 * params.dim, report=lambda fraction, note: report(0.2 * fraction, f"seed {seed}, {note}")
    )
    rng = np.random.default_rng([seed, 45])
    scale = abs(learned.stages[0].gradient).max()
    transitions = list(pairwise(learned.stages))
    delta, ends = _noisy_ends(
        task.network,
        transitions,
        params,
        rng,
        lambda fraction, note: report(0.2 + 0.8 * fraction, f"seed {seed}, all transitions with noise, {note}"),
    )
    stages = learned.stages[1:]
    rows = {
        "time": [stage.time for stage in stages],
        "margin": [_margin(stage) for stage in stages],
        "left": [float(len(stage.left)) for stage in stages],
        "left_gradient": [
            min((abs(stage.gradient[i]) / scale for i in stage.left), default=np.nan) for stage in stages
        ],
        "curvature": [stage.curvature for stage in stages],
        "growth": [_growth(task.network, stage, rng) for stage in stages],
        "printed_elsewhere": [_printed_holds_elsewhere(task.network, stage, rng) for stage in stages],
        "delta": delta,
    }
    return xr.Dataset(
        {
            **{name: ("stage", np.asarray(values)) for name, values in rows.items()},
            "end_distance": (("stage", "draw"), ends),
            "imbalance": float(abs(np.log(abs(task.u0 / task.v0))).min()),
            "converged": learned.status.value == "converged",
        },
        coords={"stage": np.arange(1, len(stages) + 1)},
    )


def _margin(stage: "GreedyStage") -> float:
    """Return the margin over the stage's time: 0 where several entered at once, NaN where none was left to enter."""
    if len(stage.entered) > 1:
        return 0.0
    return float("nan") if stage.runner_up is None else stage.margin / stage.time


def _growth(network: "DiagonalNetwork", stage: "GreedyStage", rng: np.random.Generator) -> float:
    """Return the least growth of the loss at points of the ball around theta^k on its support, in units of c_k."""
    rise, squared = _around(network, stage.beta, rng)
    return float((rise / squared).min() / stage.curvature)


def _printed_holds_elsewhere(network: "DiagonalNetwork", stage: "GreedyStage", rng: np.random.Generator) -> float:
    """Return 1 if a point that is no minimum fulfils Assumption 4.4 as printed, else 0.

    As printed: for a c > 0, L >= c |u~ - u|^2 in the ball.
    """
    import jax.numpy as jnp

    elsewhere = stage.beta * np.exp(0.3 * rng.standard_normal(stage.beta.size))
    rise, squared = _around(network, elsewhere, rng)
    loss = float(network(jnp.asarray(elsewhere)))
    c = loss / (4 * BALL**2)
    return float((rise < 0).any() and (loss + rise >= c * squared).all())


def _around(network: "DiagonalNetwork", beta: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return L(u~, s u~) - L(u, s u) and |u~ - u|^2 at random u~ in the ball around u = sqrt|beta|, on its support."""
    import jax.numpy as jnp

    u, s = np.sqrt(abs(beta)), np.sign(beta)
    away = rng.standard_normal((POINTS, u.size)) * (u > 0)
    away *= BALL * rng.uniform(0.3, 1.0, (POINTS, 1)) / np.linalg.norm(away, axis=1, keepdims=True)
    losses = _losses()(network, jnp.asarray(np.vstack([u, u + away]) ** 2 * s))
    return np.asarray(losses[1:] - losses[0]), (away**2).sum(axis=1)


@cache
def _losses() -> "Callable[[DiagonalNetwork, Array], Array]":
    """Return the losses at many points, compiled once for all instances."""
    import jax

    return jax.jit(lambda network, betas: jax.lax.map(network, betas))


def _noisy_ends(
    network: "DiagonalNetwork",
    transitions: "Sequence[tuple[GreedyStage, GreedyStage]]",
    params: Params,
    rng: np.random.Generator,
    report: Report,
) -> tuple[np.ndarray, np.ndarray]:
    """Follow gradient flow from noisy starts near the saddle before each transition, with less noise where it fails.

    Returns:
        The noise delta, shape (transitions,), and the distance of each draw to the saddle after it in units of the
        transition's size, shape (transitions, draws).
    """
    delta, ends = np.full(len(transitions), np.nan), np.full((len(transitions), params.draws), np.inf)
    for noise in NOISES:
        open_ones = np.flatnonzero((ends > NEAR).any(axis=1))
        if not open_ones.size:
            break
        delta[open_ones] = noise
        chosen = [transitions[int(k)] for k in open_ones]
        told = report if noise == NOISES[0] else silent  # progress does not go back
        ends[open_ones] = noisy_ends(network, chosen, noise, params.draws, params.tolerance, rng, told)
    return delta, ends


def noisy_ends(
    network: "DiagonalNetwork",
    transitions: "Sequence[tuple[GreedyStage, GreedyStage]]",
    noise: float,
    draws: int,
    tolerance: float,
    rng: np.random.Generator,
    report: Report,
) -> np.ndarray:
    """Return the distances of `_noisy_ends` at one noise, from all flows at once.

    Each start is u = |u^k + noise|, on the support of theta^k and on what enters, with v = s u: nonnegative and
    balanced, as Assumption 4.5 has it.
    """
    from saddlescope.flow import LogDiagonalInit, gradient_flow_batched

    starts = []
    for before, after in transitions:
        entered = list(after.entered)
        s = np.sign(before.beta)
        s[entered] = after.signs
        # tau of Assumption 4.5, thrice over: what has to grow and to settle, as the theory knows it.
        settling = np.log(1e3 / NEAR) / min([after.curvature, *abs(after.gradient[list(after.left)])])
        for _ in range(draws):
            u = np.abs(np.sqrt(abs(before.beta)) + noise * rng.standard_normal(s.size)) * (s != 0)
            growing = -np.log(u[entered]).min() / abs(before.gradient[entered]).min()
            tau = 3 * (growing + settling)
            starts.append(LogDiagonalInit.at_weights(u, s * u, log_scale=-float(tau)))  # so that it ends at time 1
    flows = gradient_flow_batched(network, starts, until=1.0, tolerance=tolerance, record=np.ones(1), report=report)
    goals = np.repeat([after.beta for _, after in transitions], draws, axis=0)
    sizes = np.repeat([abs(after.beta - before.beta).max() for before, after in transitions], draws)
    distances = abs(flows.beta[:, -1] - goals).max(axis=1) / sizes
    return distances.reshape(len(transitions), draws)


entry = Entry(
    "gradual-rank/assumptions",
    "Assumptions 4.3, 4.4 and 4.5 in every stage of ten instances of the toy task",
    citation=CITATION,
    source="Section 4.2",
    params=Params,
    quick=dict(seeds=(0, 1), samples=100, tokens=5, dim=5, draws=1),
    paper=dict(samples=1000, tokens=10, dim=50),
    run=run,
    claims=claims,
    figures=figures,
)
