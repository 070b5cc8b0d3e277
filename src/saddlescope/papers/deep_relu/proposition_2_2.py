"""Proposition 2.2: growth of weights along an escape direction, and the time at which they leave the origin.

Gradient flow on the localised loss starts from known escape directions and from random weights; flow on the loss itself
starts from one random direction at norms down to 1e-300. The printed rate is L^(L/2) times the true one,
d|theta|/dt = s L^(1-L/2) |theta|^(L-1), since its proof takes -s for L_0 on the unit sphere.

    L      depth; X inputs, all positive; G gradients of the cost at output 0; L_0 the localised loss Tr[G^T Y]
    theta  weights; u = theta / |theta|
    rho    escape direction with |rho|^2 = L; s its speed. On positive data and negative G, one positive neuron per
           layer along the leading singular vectors of -G X^T is one, of speed |G X^T|, at every depth
    t, s   time of the gradient flow, and the paper's time, ds = |theta|^(L-2) dt
"""

import math
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope.papers.deep_relu.shared.network_ensembles import draw_networks
from saddlescope.plot import Axis, Figure, Figures, Line, Mark, Panel, Table, lines
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

if TYPE_CHECKING:
    from jax import Array

    from saddlescope.models.deep import LayeredLoss

ALIGNED = 0.05  # |u - u*| at which a direction counts as aligned with its limit u*

RADIUS = 0.1  # |theta| at which an escape from the origin is timed: outputs are of order RADIUS^L


class Params(EntryParams):
    """Parameters, for seconds per flow; the paper has no experiment on this."""

    depths: tuple[int, ...] = param((2, 3, 4, 5, 6, 7, 8), "numbers of layers L", ge=2, order="distinct")
    growth: float = param(3.0, "factor by which |theta| grows along escape directions", gt=1)
    path_depth: int = param(4, "number of layers L of the flows from random weights", ge=3)
    log10_scales: tuple[float, ...] = param(
        (-6.0, -12.0, -50.0, -300.0), "log10 of the norms of the random weights", lt=0, order="decreasing", least=2
    )
    width: int = param(8, "width of the hidden layers from random weights", ge=1)
    samples: int = param(20, "samples in the data set of the flows", ge=1)
    seed: int = param(0, "seed of the data and the initial weights", ge=0)
    interval: float = param(0.25, "time s between two records", gt=0)
    balance_starts: int = param(6, "random weights of each sign pattern whose balance is followed", ge=2)
    networks: int = param(200, "random networks of each depth and kind whose outputs are bounded", ge=1)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Simulate flows along escape directions and from random weights, and evaluate random networks."""
    import jax

    paths, growth, balance, networks = context.split(1, 1, 1, 1)
    starts = {"signs": ("mixed", "non-negative"), "start": range(params.balance_starts)}
    with jax.enable_x64(True):
        flows = paths.over({"scale": params.log10_scales}, partial(_follow_random_weights, params), join="outer")
        found = [
            growth.over({"depth": params.depths}, partial(_grow_along_direction, params)),
            _alignment(flows).assign_attrs(interval=params.interval),
            balance.over(starts, partial(_follow_balance, params)),
            networks.over({"depth": params.depths}, partial(_evaluate_networks, params), name="networks"),
        ]
    return xr.merge(found, combine_attrs="drop_conflicts")


def _positive_data_loss(params: Params) -> "tuple[np.ndarray, LayeredLoss]":
    """Draw positive inputs X (4, N) and targets (2, N); return X and half the mean squared error."""
    import jax.numpy as jnp

    from saddlescope.models.deep import LayeredLoss

    draw = np.random.default_rng(params.seed)
    X, T = (np.abs(draw.standard_normal((size, params.samples))) for size in (4, 2))
    return X, LayeredLoss(jnp.asarray(X.T), jnp.asarray(T.T))


def _draw_weights(params: Params, depth: int, seed: int) -> "tuple[Array, ...]":
    from saddlescope.models.deep import layered_weights

    return layered_weights((4, *(depth - 1) * (params.width,), 2), seed=seed)


def _grow_along_direction(params: Params, depth: int, step: RunContext) -> xr.Dataset:
    """Follow an escape direction until |theta| has grown by the factor."""
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import escape_flow
    from saddlescope.theory.escape.norm_growth import norm_at

    X, loss = _positive_data_loss(params)
    left, speeds, right = np.linalg.svd(-np.asarray(loss.gradient_at_origin()).T @ X.T)
    speed = float(speeds[0])
    local = jax.grad(lambda weights: jnp.sum(loss.gradient_at_origin() * loss.output(weights)))
    rho = (np.abs(right[:1]), *[np.ones((1, 1))] * (depth - 2), np.abs(left[:, :1]))
    slope = local(tuple(map(jnp.asarray, rho)))
    duration = np.log(params.growth) / (speed * depth ** (1 - depth / 2))
    follow = partial(escape_flow, loss.output, loss.cost_of, degree=depth, localised=True, tolerance=1e-13)
    flow = follow(rho, until=duration, record=np.linspace(0, duration, 51))
    times = np.exp(flow.log_times)
    law = partial(norm_at, times, norm=depth**0.5, speed=speed, depth=depth)
    printed = law(printed=True)
    rate = -sum(float(np.sum(g * w)) for g, w in zip(slope, rho, strict=True)) / depth**0.5
    return xr.Dataset(
        {
            "definition_error": max(float(np.abs(g + speed * w).max()) for g, w in zip(slope, rho, strict=True)),
            "direction_error": max(float(np.abs(path - path[:1]).max()) for path in flow.directions),
            "rate_ratio": depth * speed * depth ** ((depth - 1) / 2) / rate,
            "growth_time": ("record", times),
            "measured_norm": ("record", np.exp(flow.log_norms)),
            "corrected_norm": ("record", law(printed=False)),
            "printed_norm": ("record", np.where(np.isfinite(printed), printed, np.nan)),
        }
    )


def _follow_random_weights(params: Params, scale: float, step: RunContext) -> xr.Dataset:
    """Follow one random direction from an initial norm on the loss."""
    from saddlescope.flow import escape_flow

    (_, loss), depth = _positive_data_loss(params), params.path_depth
    start = _draw_weights(params, depth, params.seed)
    follow = partial(escape_flow, loss.output, loss.cost_of, start, degree=depth, tolerance=1e-6, until=1e6)
    follow = partial(follow, stop=float(np.log(RADIUS)), record=np.arange(0, 1000, params.interval))
    flow = follow(log_norm=scale * np.log(10))
    directions = np.concatenate([path.reshape(len(path), -1) for path in flow.directions], axis=1)
    return xr.Dataset(
        {"direction": (("time", "weight"), directions), "end": ("weight", directions[-1])}, {"time": flow.times}
    )


def _alignment(flows: xr.Dataset) -> xr.Dataset:
    """Return distances from the end of the flow from the smallest weights at common times, and when they are small."""
    away = ((flows.direction - flows.end.isel(scale=-1)) ** 2).sum("weight", skipna=False) ** 0.5
    aligned = flows.time.where(away < ALIGNED).min("time")
    return xr.Dataset({"away": away, "aligned_time": aligned}).dropna("time", subset=["away"])


def _follow_balance(params: Params, signs: str, number: int, step: RunContext) -> xr.Dataset:
    """Follow random weights on the localised loss until |theta| has tripled; return how much balances change."""
    import jax.numpy as jnp

    from saddlescope.flow import escape_flow

    depth, (_, loss) = params.path_depth, _positive_data_loss(params)
    follow = partial(escape_flow, loss.output, loss.cost_of, degree=depth, localised=True, tolerance=1e-7, log_norm=0.0)
    follow = partial(follow, stop=float(np.log(3)), until=1e4, record=np.linspace(0, 100, 401))
    start = _draw_weights(params, depth, params.seed + 1 + number)
    flow = follow(start if signs == "mixed" else tuple(map(jnp.abs, start)))
    norms = np.exp(flow.log_norms)
    layers, changes = [norms[:, None, None] * np.asarray(path) for path in flow.directions], []
    for out, into in pairwise(layers):
        gram = np.einsum("tki,tkj->tij", into, into) - np.einsum("tik,tjk->tij", out, out)
        changes.append(abs(gram - gram[0]) / norms[-1] ** 2)
    weak = max(change.diagonal(axis1=1, axis2=2).max() for change in changes)
    return xr.Dataset({"weak": weak, "strong": max(change.max() for change in changes)})


def _evaluate_networks(params: Params, depth: int, step: RunContext) -> xr.Dataset:
    """Return errors of Proposition A.1 at random weights, and the largest factors of the output bound."""
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    _, loss = _positive_data_loss(params)
    errors, factors = [], []
    flat, unravel = ravel_pytree(_draw_weights(params, depth, params.seed + depth))
    u = np.asarray(flat / jnp.linalg.norm(flat))
    local = jax.value_and_grad(lambda w: jnp.sum(loss.gradient_at_origin() * loss.output(unravel(w))))
    value, slope = (np.asarray(part) for part in local(u))
    for norm in (0.3, 3.0):
        moved = -np.asarray(local(norm * u)[1])  # d theta/dt at theta = norm u
        along = u @ moved
        errors.append(abs(along + depth * norm ** (depth - 1) * value) / abs(along))
        sideways = (moved - u * along) / norm
        printed = -(norm ** (depth - 2)) * (slope - u * (u @ slope))
        errors.append(np.linalg.norm(sideways - printed) / np.linalg.norm(sideways))
    rng = np.random.default_rng([params.seed, depth])
    for kind in ("random", "extreme"):
        for weights, X, _ in draw_networks(kind, depth=depth, count=params.networks, seed=params.seed):
            uneven = [weight * np.exp(rng.normal()) if kind == "random" else weight for weight in weights]
            factors.append(_bound_factors(uneven, X.T))
    return xr.Dataset({"decomposition": ("equation", errors), "bound_factor": (("network", "factor"), factors)})


def _bound_factors(weights: list[np.ndarray], X: np.ndarray) -> tuple[float, float]:
    """Return |Y|_F over the product of operator norms and |X|_F, and that product over (|theta| / sqrt L)^L."""
    hidden, product = X, math.prod(float(np.linalg.norm(weight, 2)) for weight in weights)
    for weight in weights[:-1]:
        hidden = np.maximum(weight @ hidden, 0)
    mean = sum(float(np.sum(weight**2)) for weight in weights) / len(weights)
    output = float(np.linalg.norm(weights[-1] @ hidden))
    return output / (product * float(np.linalg.norm(X))), product / mean ** (len(weights) / 2)


claims = Claims(
    limits="The escape directions are one neuron per layer on positive data, without kinks; weights of other neurons "
    "stay 0 there, so that an instability of the direction cannot show. The printed law would be right if s were -L_0 "
    "on the unit sphere, which Definition 2.1 excludes. On the localised loss the path in s is the same from every "
    "norm; `alignment` tests the loss itself, at depth 4, to 0.05 from where the flow from 1e-300 ends. The paper "
    "writes balancedness as an equality; its error is conserved, here to the solver's tolerance, 1e-5 of |θ|². Where "
    "Z ≥ 0, from non-negative weights on positive data, the network is linear."
)


def is_escape_direction(run: xr.Dataset) -> bool:
    """The localised loss has the gradient -s ρ at every starting ρ, to 1e-12"""
    return bool(run.definition_error.max() < 1e-12)


@claims.printed(
    "decomposition",
    "Gradient flow on a homogeneous loss L₀ of degree L has d|θ|/dt = -L |θ|^(L-1) L₀(u) and du/dt = "
    "-|θ|^(L-2) (I - uuᵀ) ∇L₀(u), with u = θ/|θ|",
    "Proposition A.1, both equations; 1e-10 for rounding",
    high=1e-10,
)
def largest_decomposition_error(run: xr.Dataset) -> Estimate:
    """Largest relative error of one of the two equations at random weights."""
    return Estimate.largest(run.decomposition, over="equations at random weights")


@claims.printed(
    "direction",
    "Gradient flow on the localised loss that starts at an escape direction keeps the direction",
    "Proposition 2.2; 1e-9 for the solver",
    high=1e-9,
    requires=[is_escape_direction],
)
def largest_direction_change(run: xr.Dataset) -> Estimate:
    """Largest change of an entry of the normalised weights θ/|θ| along the flow."""
    error = run.direction_error
    return Estimate(
        float(error.max()), remark=f"worst at L = {int(run.depth[int(error.argmax('depth'))])}", n=error.size
    )


@claims.printed(
    "growth-printed",
    "On the localised loss, along an escape direction of speed s, the norm grows as d|θ|/dt = L s |θ|^(L-1)",
    "Proposition 2.2, whose formulas solve this equation of its proof; a correct rate is within 1 %",
    low=0.99,
    high=1.01,
    requires=[is_escape_direction],
)
def printed_rate_ratio(run: xr.Dataset) -> Estimate:
    """Printed over true growth rate of |θ| at the escape direction, at the depth where it is farthest from 1."""
    ratio = run.rate_ratio
    remark = ", ".join(f"{float(r):.4g} at L = {int(d)}" for d, r in zip(run.depth, ratio, strict=True))
    return Estimate(float(ratio[int(abs(ratio - 1).argmax("depth"))]), remark=f"L^(L/2): {remark}", n=ratio.size)


@claims.printed(
    "output-bound",
    "At weights of norm |θ| = r, |Y|_F ≤ |W_L|_op ⋯ |W_1|_op |X|_F ≤ (r/√L)^L |X|_F",
    "Section 2.2, after Proposition 2.2; 1e-12 for rounding",
    high=1 + 1e-12,
)
def largest_bound_factor(run: xr.Dataset) -> Estimate:
    """Largest quotient of neighbouring terms of the two inequalities, over networks."""
    attained = int((run.bound_factor.min("factor") > 0.99).sum())
    return Estimate.largest(run.bound_factor.max("factor"), f"{attained} networks attain both to 1 %", over="networks")


@claims.reading(
    "alignment",
    "From norms 1e-6 to 1e-300, one random direction aligns with its limit at the same s, ds = |θ|^(L-2) dt",
    "Section 2.2: 'the time s_1 of convergence to an escape direction is independent of alpha'",
    high=1.0,
)
def alignment_spread(run: xr.Dataset) -> Estimate:
    """Spread of the alignment times s over initial norms from 1e-6 to 1e-300, in intervals between two records."""
    if bool(run.aligned_time.isnull().any()):
        return Estimate.unresolved("At one of the scales the norm was reached before the direction had aligned.")
    spread = float(run.aligned_time.max() - run.aligned_time.min()) / run.attrs["interval"]
    return Estimate(spread, remark=f"at s = {float(run.aligned_time.min()):.4g}", n=run.aligned_time.size)


@claims.reading(
    "weak-balance",
    "Flow on the localised loss conserves diag(WᵀW - WWᵀ) of neighbouring layers, and WᵀW - WWᵀ where Z ≥ 0",
    "Section 5, hypothesis 3: weak balancedness, and the stronger one where Z >= 0; 1e-5 for the solver",
    high=1e-5,
)
def largest_imbalance(run: xr.Dataset) -> Estimate:
    """Largest change of what is conserved, over the final squared weight norm."""
    changes = run.weak.sel(signs="mixed"), run.strong.sel(signs="non-negative")
    return Estimate.largest(np.concatenate(changes), over="random weights")


@claims.reading(
    "only-weak",
    "From random weights of both signs, ReLU flow does not conserve all of WᵀW - WWᵀ of neighbouring layers",
    "Section 5, hypothesis 3: 'ReLU networks only satisfy weak balancedness in general'; 1e-3 is this project's",
    low=1e-3,
)
def smallest_full_imbalance(run: xr.Dataset) -> Estimate:
    """Smallest over random weights of the largest change of an entry, over the final squared weight norm."""
    return Estimate.smallest(run.strong.sel(signs="mixed"), over="random weights")


def figures(run: xr.Dataset) -> Figures:
    """Draw growth along escape directions, and alignment at every scale."""
    panels, laws = [], {"measured": "gradient flow", "corrected": "corrected", "printed": "printed"}
    for depth in run.depth.values.tolist():
        one = run.sel(depth=depth)
        x, start = one.growth_time.values / float(one.growth_time[-1]), float(one.measured_norm[0])
        curves = tuple(
            Line(x=x, y=one[f"{law}_norm"].values / start, group=group, color=color, style=style)
            for color, ((law, group), style) in enumerate(zip(laws.items(), ("points", "solid", "dashed"), strict=True))
        )
        norm = Axis("|θ(t)| / |θ(0)|", range=(0.9, 1.1 * float(one.measured_norm[-1]) / start))
        panels.append(Panel(title=f"L = {depth}", x=Axis("t / time of the growth shown"), y=norm, marks=curves))
    away = lines(run.away, x="time", hue="scale", label="from norm 1e{:g}", grouped=True)
    threshold = Mark(at=ALIGNED, axis="y", label="aligned")
    rows = tuple(zip(run.depth.values.tolist(), run.rate_ratio.values.tolist(), strict=True))
    yield Figure(
        name="growth",
        title="Norm along an escape direction, with the corrected and the printed law",
        caption="Gradient flow on the localised loss from an escape direction with |θ|² = L: norm against time. "
        "The table has the printed over the true growth rate at the start, L^(L/2).",
        panels=tuple(panels),
        columns=3,
        table=Table(columns=("L", "printed / true rate"), rows=rows),
    )
    yield Figure(
        name="scales",
        title="Alignment in the time s from several initial norms",
        caption="Distance of the direction from its limit, from random weights of each initial norm, against the "
        "time s.",
        panels=(Panel(x=Axis("time s"), y=Axis("|u − u*|", scale="log"), marks=(*away, threshold)),),
    )


entry = Entry(
    "deep-relu/proposition-2-2",
    "Proposition 2.2: growth of weights along an escape direction",
    source="Section 2",
    quick=dict(depths=(4,), balance_starts=2, networks=20),
    paper=dict(networks=1000),
)
