"""Assumptions 4.3, 4.4 and 4.5 in every stage of ten instances of the toy task.

The paper checks one instance. Here Algorithm 1 runs on several, and each assumption is checked in every stage.

    θ^k         the saddle (u, s u) of stage k, with the signs s
    margin      how much later than the first coordinate the second would arrive, over T_k
    c_k         the constant of Assumption 4.4: half the smallest eigenvalue of the Hessian of L(u, s u) on the support
    growth      (L(ũ, s ũ) - L(θ^k)) / |ũ - u|² for ũ near u on the support; Assumption 4.4 requires growth >= c_k

Assumption 4.4 is printed without - L(θ^k). If L(θ^k) > 0, that holds at any point, minimum or not, with a small enough
ball. Assumption 4.5 requires small enough noise: where it fails, less noise is tried.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report, silent
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.plot import Axis, Figure, Mark, Panel, Table, lines
from saddlescope.reproduction.claim import Claims, Estimate
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
NEAR = 0.01  # epsilon of Assumption 4.5, in units of the transition's size, the largest entry of |beta^k - beta^(k-1)|


class Params(EntryParams):
    """A small head: the paper's size takes an hour with the same code."""

    seeds: tuple[int, ...] = param(
        tuple(range(10)), "seeds of the instances: data, teacher and initial weights", ge=0, order="distinct"
    )
    samples: int = param(200, "sequences in the data set", ge=1)
    tokens: int = param(8, "tokens in a sequence", ge=1)
    dim: int = param(16, "dimension of a token", ge=1)
    draws: int = param(3, "noisy starts of each transition", ge=1)
    tolerance: float = param(1e-4, "relative tolerance of the flow's times", ge=1e-11, le=1e-2, scale="log")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1 and the checks of its stages on each seed; finished seeds are cached."""
    import jax

    parts = []
    with jax.enable_x64(True):
        for seed, step in context.steps(params.seeds):
            parts.append(step.cached(f"seed{seed}", partial(_instance, params, seed, step)))
            step.report(1.0, f"seed {seed} done")
    return xr.concat(parts, dim="seed", join="outer", combine_attrs="drop").assign_coords(seed=list(params.seeds))


def _instance(params: Params, seed: int, context: RunContext) -> xr.Dataset:
    """Run Algorithm 1 on one instance and check every stage; over `stage`, NaN where nothing is defined."""
    from saddlescope.models import attention_teacher_task
    from saddlescope.theory import incremental_learning

    algorithm, flows = context.split(0.2, 0.8)
    task = attention_teacher_task(seed, samples=params.samples, tokens=params.tokens, dim=params.dim)
    learned = incremental_learning(task.network, 2 * params.dim, report=algorithm.note(f"seed {seed}"))
    rng = np.random.default_rng([seed, 45])
    scale = abs(learned.stages[0].gradient).max()
    transitions, stages = list(pairwise(learned.stages)), learned.stages[1:]

    # Less noise is tried for the transitions at which a noisy start fails.
    delta, ends = np.full(len(transitions), np.nan), np.full((len(transitions), params.draws), np.inf)
    for noise in NOISES:
        failed = np.flatnonzero((ends > NEAR).any(axis=1))
        if not failed.size:
            break
        delta[failed] = noise
        report = flows.note(f"seed {seed}, all transitions with noise") if noise == NOISES[0] else silent
        chosen = [transitions[int(k)] for k in failed]
        ends[failed] = noisy_ends(task.network, chosen, noise, params.draws, params.tolerance, rng, report)

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
    """Return the margin over the stage's time: 0 if several entered at once, NaN if no coordinate remained."""
    if len(stage.entered) > 1:
        return 0.0
    return float("nan") if stage.runner_up is None else stage.margin / stage.time


def _growth(network: "DiagonalNetwork", stage: "GreedyStage", rng: np.random.Generator) -> float:
    """Return the least growth of the loss at points of the ball around θ^k on its support, in units of c_k."""
    rise, squared = _around(network, stage.beta, rng)
    return float((rise / squared).min() / stage.curvature)


def _printed_holds_elsewhere(network: "DiagonalNetwork", stage: "GreedyStage", rng: np.random.Generator) -> float:
    """Return 1 if a point that is no minimum fulfils Assumption 4.4 as printed, else 0.

    As printed: for a c > 0, L >= c |ũ - u|² in the ball.
    """
    import jax.numpy as jnp

    elsewhere = stage.beta * np.exp(0.3 * rng.standard_normal(stage.beta.size))
    rise, squared = _around(network, elsewhere, rng)
    loss = float(network(jnp.asarray(elsewhere)))
    c = loss / (4 * BALL**2)
    return float((rise < 0).any() and (loss + rise >= c * squared).all())


def _around(network: "DiagonalNetwork", beta: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return L(ũ, s ũ) - L(u, s u) and |ũ - u|² at random ũ in the ball around u = sqrt|beta|, on its support."""
    import jax.numpy as jnp

    u, s = np.sqrt(abs(beta)), np.sign(beta)
    away = rng.standard_normal((POINTS, u.size)) * (u > 0)
    away *= BALL * rng.uniform(0.3, 1.0, (POINTS, 1)) / np.linalg.norm(away, axis=1, keepdims=True)
    losses = _losses()(network, jnp.asarray(np.vstack([u, u + away]) ** 2 * s))
    return np.asarray(losses[1:] - losses[0]), (away**2).sum(axis=1)


@cache
def _losses() -> "Callable[[DiagonalNetwork, Array], Array]":
    """Return the function of the losses at many points, compiled once for all instances."""
    import jax

    return jax.jit(lambda network, betas: jax.lax.map(network, betas))


def noisy_ends(
    network: "DiagonalNetwork",
    transitions: "Sequence[tuple[GreedyStage, GreedyStage]]",
    noise: float,
    draws: int,
    tolerance: float,
    rng: np.random.Generator,
    report: Report,
) -> np.ndarray:
    """Follow gradient flow from noisy starts near the saddle before each transition, all at once.

    Each start is u = |u^k + noise|, on the support of θ^k and on the entering coordinates, with v = s u: nonnegative
    and balanced, as in Assumption 4.5.

    Returns:
        Distance of each draw to the saddle after the transition, in units of its size, shape (transitions, draws).
    """
    from saddlescope.flow import LogDiagonalInit, gradient_flow_batched

    starts = []
    for before, after in transitions:
        entered = list(after.entered)
        s = np.sign(before.beta)
        s[entered] = after.signs
        # Three times tau of Assumption 4.5: the times of growing and of settling, from the theory.
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


_FAILED = "Algorithm 1 did not converge on all seeds; leave out the others."


def _smallest_value(name: str, run: xr.Dataset) -> Estimate:
    """Return the smallest value of one variable over seeds and stages."""
    if not run.converged.all():
        return Estimate.unresolved(_FAILED)
    values = run[name]
    if not values.notnull().any():
        return Estimate.unresolved("No coordinate left the support in any stage; take more seeds.")
    found = values.values[values.notnull().values]
    return Estimate.smallest(found, f"over {found.size} values of {run.sizes['seed']} seeds")


def _share_of_stages(run: xr.Dataset, condition: xr.DataArray) -> Estimate:
    """Return the share of stages, of all seeds, in which a condition holds."""
    if not run.converged.all():
        return Estimate.unresolved(_FAILED)
    stages = int(run.time.notnull().sum())
    held = float(condition.where(run.time.notnull(), False).sum())
    return Estimate(held / stages, remark=f"{held:.0f} of {stages} stages", n=stages)


# The bounds. Numbers count as different from 0, and times as different from each other, beyond 1e-9: Algorithm 1 takes
# rounding errors of the gradient to be 1e-11. Growth is measured in a ball of radius 1e-3, where terms of third order
# may be a per cent of it.
claims = Claims()

claims.add(
    "imbalance",
    "At initialization, the magnitudes of paired attention weights u_i and v_i differ for every pair in every task "
        "instance", quantity="smallest |log |u_i(0) / v_i(0)|| over weight pairs and task instances", kind="stand-in",
    source="Assumption 4.3; beyond 1e-9", low=1e-9,
    evidence="cases", over="seeds",
    why="Assumption 4.3 requires that paired weights differ in magnitude, and the smallest difference over all pairs "
        "decides that",
    doubt="Continuous random weights differ with probability one, so that only an error of the draw could fail this",
)(partial(_smallest_value, "imbalance"))  # fmt: skip

claims.add(
    "unique", "In every stage of Algorithm 1, one diagonal attention entry becomes active strictly before all others",
    quantity="smallest time gap between the first and second entry to become active, relative to the stage time, "
        "over stages and instances", kind="stand-in", source="Assumption 4.3; beyond 1e-9", low=1e-9,
    evidence="cases", over="stages of all seeds",
    why="A unique minimiser of the activation times is a positive gap between the first two of them, relative to the "
        "time itself",
    doubt="Gaps of any size count as unique, though a gap of 1e-4 needs scales that no computer reaches",
)(partial(_smallest_value, "margin"))  # fmt: skip


@claims.add(
    "nobody-leaves",
    "In no instance of a small toy task does a learned diagonal attention entry become zero again in Algorithm 1",
    quantity="number of task instances in which a learned diagonal entry of W_K W_Qᵀ or W_V W_Oᵀ becomes zero again",
    kind="own", source="Appendix A says so of the paper's instance alone (claim of figure-2); here of ten", high=0.0,
    evidence="cases", over="seeds",
    why="If the remark held beyond the paper's instance, other draws of the same family would have no leaving "
        "coordinate either",
    doubt="The instances have 16 dimensions and 200 samples, and the paper speaks of one instance only",
)  # fmt: skip
def _seeds_with_leaving(run: xr.Dataset) -> Estimate:
    if not run.converged.all():
        return Estimate.unresolved(_FAILED)
    leaving = run.left.sum("stage") > 0
    named = ", ".join(map(str, run.seed.values[leaving.values])) or "none"
    return Estimate.number(leaving, f"of {run.sizes['seed']} seeds: {named}")


claims.add(
    "leaving",
    "Every diagonal attention entry that becomes zero again in Algorithm 1 has a nonzero loss gradient at the new "
    "plateau",
    quantity="smallest gradient magnitude of such an entry, relative to the largest gradient at the origin, over "
    "stages and instances",
    kind="stand-in",
    source="Assumption 4.3: g_i(θ^k) ≠ 0; beyond 1e-9",
    low=1e-9,
    sizes=("default", "paper"),  # in the two instances of the quick size no coordinate leaves
    evidence="cases",
    over="leaving coordinates of all seeds",
    why="Assumption 4.3 asks of each coordinate that leaves that its gradient does not vanish, so the smallest such "
    "gradient decides",
    doubt="Five coordinates leave in all instances together, and the algorithm removes one only where its gradient "
    "pushes it",
)(partial(_smallest_value, "left_gradient"))

claims.add(
    "strict-minima",
    "Every plateau of Algorithm 1 for attention heads is a strict local loss minimum over its nonzero weights",
    quantity="half the smallest eigenvalue of the loss's Hessian in the nonzero weights u, with v = ±u, smallest "
        "over stages and instances",
    kind="stand-in", source="Assumption 4.4, with the term −L(θ^k) that is missing in print; beyond 1e-9", low=1e-9,
    evidence="cases", over="stages of all seeds",
    why="On its support a stationary point is a strict local minimum if the Hessian's smallest eigenvalue there is "
        "positive",
    doubt="The assumption is read with the term that is missing in print, and curvature near 1e-4 of the scale "
        "counts as strict",
)(partial(_smallest_value, "curvature"))  # fmt: skip

claims.add(
    "growth",
    "Near every plateau of Algorithm 1, the attention loss rises by at least 99 % of its least quadratic growth",
    quantity="smallest rise of the loss over half the smallest Hessian eigenvalue times squared distance, at points "
        "near plateaus on the support", kind="stand-in",
    source="Assumption 4.4, with the term −L(θ^k) that is missing in print; 1 % for terms of third order", low=0.99,
    evidence="cases", over="stages of all seeds",
    why="The assumption is an inequality at points around the saddle, tested at such points against the constant "
        "that the Hessian gives",
    doubt="32 points in a ball of radius 1e-3 are no proof for a ball, and the constant comes from the same loss",
)(partial(_smallest_value, "growth"))  # fmt: skip


@claims.add(
    "printed-4.4", "The condition printed for strict minima, L(ũ) ≥ c |ũ − u|² near u, also holds at non-minima",
    quantity="share of stages of Algorithm 1 for attention heads in which it holds at a random point u that is no "
        "minimum",
    kind="own", source="Assumption 4.4 as printed, without −L(θ^k), holds anywhere that the loss is not 0", low=1.0,
    evidence="cases", over="stages of all seeds",
    why="A condition that also holds at points that are no minima cannot express that a point is one",
    doubt="The missing term is plainly a slip of the pen, since the proof of Lemma C.5 uses the right condition",
)  # fmt: skip
def _printed_elsewhere(run: xr.Dataset) -> Estimate:
    return _share_of_stages(run, run.printed_elsewhere == 1)


@claims.add(
    "noise-robust",
    "With small enough noise on its start, every transition of an attention head ends at Algorithm 1's next plateau",
    quantity="share of stages whose plateau all noisy starts reach within 1 % of the transition's largest change, "
        "over task instances",
    kind="stand-in", source="Assumption 4.5; noise δ down to 1e-7, ε 1 % of the transition's size", low=1.0,
    evidence="cases", over="stages of all seeds",
    why="The assumption asks that every slightly noisy start near a saddle ends at the next one, and a start that "
        "ends elsewhere fails it",
    doubt="Three noisy starts per stage and noise down to 1e-7 sample a statement about all starts in a ball",
)  # fmt: skip
def _noise_robust(run: xr.Dataset) -> Estimate:
    return _share_of_stages(run, (run.end_distance <= NEAR).all("draw"))


def figures(run: xr.Dataset) -> list[Figure]:
    """Draw each assumption's number in every stage of every seed, with a table of the seeds."""

    def panel(values: xr.DataArray, y: str, title: str, bound: float | None = None, points: bool = False) -> Panel:
        style = "points" if points else "solid"
        marks = lines(values, x="stage", hue="seed", label="seed {}", grouped=True, style=style, width=1.2)
        bounds = () if bound is None else (Mark(at=bound, axis="y"),)
        return Panel(title=title, x=Axis("stage k"), y=Axis(y, scale="log"), marks=(*marks, *bounds))

    ends = run.end_distance.max("draw")
    here = (run.sel(seed=seed) for seed in run.seed.values)
    return [
        Figure(
            name="stages",
            title="Quantities of the assumptions, stage by stage",
            caption="Each line is one seed. The second coordinate would arrive later than the first by the margin, "
            "over the stage's time. c_k is the constant of Assumption 4.4, and the least growth of the loss near "
            "θ^k is in units of it. The last panel has the worst of the noisy starts. Dotted: the bounds.",
            panels=(
                panel(run.margin, "margin over time", "4.3: lead of the first coordinate"),
                panel(run.curvature, "c_k", "4.4: curvature of the loss on the support"),
                panel(run.growth, "least growth of the loss, over c_k", "4.4: growth of the loss", 1.0),
                panel(ends, "distance to θ^k, over size", "4.5: ends of noisy starts", NEAR, points=True),
            ),
            table=Table(
                columns=("seed", "stages", "smallest margin", "coordinates that leave", "smallest c_k", "least growth",
                         "worst end", "least noise"),
                rows=tuple(
                    (
                        int(one.seed),
                        int(one.time.notnull().sum()),
                        f"{float(one.margin.min()):.1e}",
                        int(one.left.sum()),
                        float(one.curvature.min()),
                        float(one.growth.min()),
                        f"{float(one.end_distance.max()):.1e}",
                        f"{float(one.delta.min()):.0e}",
                    )
                    for one in here
                ),
            ),
        )
    ]  # fmt: skip


entry = Entry(
    "gradual-rank/assumptions", "Assumptions 4.3, 4.4 and 4.5 in every stage of ten instances of the toy task",
    citation=CITATION, source="Section 4.2", params=Params,
    quick=dict(seeds=(0, 1), samples=100, tokens=5, dim=5, draws=1), paper=dict(samples=1000, tokens=10, dim=50),
    run=run, claims=claims, figures=figures,
)  # fmt: skip
