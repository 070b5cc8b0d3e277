"""Assumption 4.3 with two heads in one layer: it never holds, and they learn together.

At the origin all heads of a layer attend alike, to the mean token, so the output depends on the sum of their values
alone, and their gradients are identical. The first two coordinates to become active, one a head, tie: the minimiser
that Assumption 4.3 asks for is never unique. Nor is the stationary point they reach strict (Assumption 4.4): any
division of the sum between the heads gives the same loss.

What happens instead follows from the initial weights. With x' = g for every coordinate (equation 6 in slope
coordinates) and the same g, the two grow by the same factor for as long as no key or query has grown, which start from
a gradient of exactly 0. So the heads divide what a single head would learn in a ratio that never moves, at any alpha:

    j         the entry of W_V W_O^T that becomes active first; s its sign
    b^i       entry j of head i: w_V^i w_O^i
    r         b^1 : b^2, predicted: ((w_V^1 + s w_O^1) / (w_V^2 + s w_O^2))^2 of the initial weights at entry j
    B         b^1 + b^2 on the first plateau: what Algorithm 1 predicts for one head on the same data
    t_1       measured time at which b^1 + b^2 passes B / 2, in units of log(1/alpha)

The first keys break the tie: on the plateau, a head's key and query coordinates have gradients in proportion to its b.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.gradual_rank import CITATION
from saddlescope.papers.gradual_rank.shared.stage_times import passings
from saddlescope.papers.gradual_rank.tied_heads.claims import HEADS, claims
from saddlescope.papers.gradual_rank.tied_heads.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.flow import Trajectory
    from saddlescope.models import TransformerNetwork, TransformerTeacherTask


class Params(EntryParams):
    """One layer of two heads with residuals and a feedforward layer, learning a teacher of the same form."""

    seeds: tuple[int, ...] = param((0, 1, 2, 3, 4), "of data, teacher and initial weights; the first one is drawn")
    log10_scales: tuple[float, ...] = param(
        (-8.0, -32.0, -128.0, -256.0), "log10 of the initial scales alpha, decreasing"
    )
    samples: int = param(200, "sequences in the data set", ge=1)
    tokens: int = param(5, "tokens in a sequence", ge=1)
    dim: int = param(6, "dimension of a token", ge=1)
    hidden: int = param(12, "width of the feedforward layer", ge=1)
    until: float = param(3.0, "end of the simulation, in units of the first stage time T_1")
    tolerance: float = param(1e-5, "relative, of stage times; see `saddlescope.flow.gradient_flow`", ge=1e-12, le=1e-2)
    level: float = param(1e-6, "|beta_i| above which coordinate i counts as learned: small, as a head's share may be")
    points: int = param(601, "times at which the curves are stored", ge=2)

    def check(self) -> None:
        scales = self.log10_scales
        if not scales or max(scales) > -4 or any(a <= b for a, b in pairwise(scales)):
            raise InputError(f"log10_scales must be at most -4 and decreasing, such as -8,-32; got {scales!r}.")
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds must be different integers of at least 0; got {self.seeds!r}.")
        if not 1.5 <= self.until < float("inf"):
            raise InputError(f"until must be at least 1.5 times T_1 and finite; got {self.until!r}.")
        if not 0 < self.level < 1e-2:
            raise InputError(f"level must be between 0 and 1e-2; got {self.level!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Run the prediction at the origin, then the flow from each scale, seed by seed."""
    import jax

    from saddlescope.models import transformer_teacher_task

    seeds = []
    with jax.enable_x64(True):
        for k, seed in enumerate(params.seeds):
            task = transformer_teacher_task(
                seed, layers=1, heads=HEADS, samples=params.samples, tokens=params.tokens, dim=params.dim,
                hidden=params.hidden,
            )  # fmt: skip
            theory = context.cached(f"theory-{seed}", partial(_predict, task))
            flows = []
            for n, log10_scale in enumerate(params.log10_scales):
                done = k + n / len(params.log10_scales)
                part = context.part(done / len(params.seeds), (done + 1 / len(params.log10_scales)) / len(params.seeds))
                part(0.0, f"seed {seed}, alpha = 1e{log10_scale:g}")
                flow = partial(_simulate, task, theory, params, log10_scale, part)
                flows.append(context.cached(f"flow-{seed}-{log10_scale}", flow))
            flow = xr.concat(flows, dim="scale").assign_coords(scale=list(params.log10_scales))
            seeds.append(xr.merge([theory, flow]))
    context.report(1.0, "done")
    return xr.concat(seeds, dim="seed").assign_coords(seed=list(params.seeds), head=[1, 2])


def _predict(task: "TransformerTeacherTask") -> xr.Dataset:
    """Predict who ties, when, and how the sum is divided: from the loss at the origin and the initial weights."""
    import jax.numpy as jnp

    from saddlescope.models import Coordinate
    from saddlescope.theory import incremental_learning

    network, transformer = task.network, task.network.h
    gradient = -np.asarray(network.value_and_gradient(jnp.zeros(transformer.size))[1])
    with np.errstate(divide="ignore"):
        arrivals = np.sort(1 / np.abs(gradient))
    # With no keys there, both heads act as one head with the sum of their values.
    single = replace(network, h=replace(transformer, heads=1))
    stage = incremental_learning(single, single.h.size, max_stages=1).stages[1]
    (entered,), (sign,) = stage.entered, stage.signs
    entry = single.h.coordinate(entered).entry
    pair = np.array([transformer.index(Coordinate(0, head, "VO", entry)) for head in range(HEADS)])
    weights = (task.u0 + sign * task.v0)[pair]
    shares = weights**2 / (weights**2).sum()
    total = float(stage.beta[entered])
    return xr.Dataset(
        {
            "first_time": stage.time,
            "second_time": arrivals[1],
            "pair": ("head", pair),
            "total": total,
            "predicted_share": ("head", shares),
            "flatness": _flatness(network, pair, total * shares),
        },
        coords={"coordinate": np.arange(transformer.size)},
    )


def _flatness(network: "TransformerNetwork", pair: np.ndarray, shares: np.ndarray) -> float:
    """Return the ratio of the extreme eigenvalues of the Hessian of L(u, s u) at the stationary point (Ass. 4.4)."""
    import jax
    import jax.numpy as jnp

    def loss(u: "jax.Array") -> "jax.Array":
        return network(jnp.zeros(network.h.size).at[jnp.asarray(pair)].set(jnp.asarray(np.sign(shares)) * u**2))

    eigenvalues = np.linalg.eigvalsh(np.asarray(jax.hessian(loss)(jnp.asarray(np.sqrt(np.abs(shares))))))
    return float(eigenvalues[0] / eigenvalues[-1])


def _simulate(
    task: "TransformerTeacherTask",
    theory: xr.Dataset,
    params: Params,
    log10_scale: float,
    report: Report,
) -> xr.Dataset:
    """Follow gradient flow from one scale: the tied pair, the number of learned coordinates, the growth of keys."""
    from saddlescope.flow import DiagonalInit, gradient_flow

    first = float(theory.first_time)
    time = np.linspace(0, params.until, params.points)  # in units of T_1
    trajectory = gradient_flow(
        task.network,
        DiagonalInit(task.u0, task.v0, log_scale=log10_scale * np.log(10)),
        until=params.until * first,
        tolerance=params.tolerance,
        level=params.level,
        report=lambda fraction, note: report(fraction, f"alpha = 1e{log10_scale:g}, {note}"),
    )
    pair, sum_half = theory.pair.values, float(theory.total) / 2
    half = _first(trajectory, lambda beta: beta[:, pair].sum(1) / sum_half)
    each = [
        _first(trajectory, lambda beta, i=i, share=share: beta[:, i] / (share * sum_half))
        for i, share in zip(pair, theory.predicted_share.values, strict=True)
    ]
    beta = trajectory(np.array([half]))[0] if np.isfinite(half) else np.full(theory.sizes["coordinate"], np.nan)
    return xr.Dataset(
        {
            "found_time": half,
            "found_times": ("head", each),
            "found_pair": ("head", beta[pair]),
            "learned": int((np.abs(beta) > params.level).sum()),
            "key_growth": ("head", _key_growth(trajectory, pair, half)),
            "gradients": trajectory.evaluations.gradients,
            "beta": (("time", "coordinate"), trajectory(time * first)),
            "log_abs_pair": (("time", "head"), trajectory.log_abs(time * first)[:, pair]),
        },
        coords={"time": ("time", time, {"units": "T_1"})},
    )


def _first(trajectory: "Trajectory", share: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the first time at which `share` of beta, shape (times, coordinates), passes 1; NaN if it never does."""
    times = passings(trajectory, share)
    return float(times[0]) if times.size else float("nan")


def _key_growth(trajectory: "Trajectory", pair: np.ndarray, half: float) -> np.ndarray:
    """Return the e-folds of each head's fastest key half-way between t_1 and the next coordinate to be learned.

    It is the same entry in both heads, the one that grows fastest in either. NaN where there is no first plateau.
    """
    following = min((cross.time for cross in trajectory.crossings if cross.index not in pair), default=np.nan)
    if not half < following:
        return np.full(HEADS, np.nan)
    grown = trajectory.path(np.array([(half + following) / 2]))[0]
    keys = grown.reshape(HEADS, 2, -1)[:, 0]
    return keys[:, np.abs(keys).max(0).argmax()]


entry = Entry(
    "gradual-rank/tied-heads",
    "Assumption 4.3 with two heads in one layer: it never holds, and they learn together",
    citation=CITATION,
    source="Section 4.2",
    params=Params,
    quick=dict(seeds=(1,), log10_scales=(-8.0, -128.0), samples=40, tokens=4, dim=3, hidden=4, points=201),
    paper=dict(samples=1000, tokens=10, dim=50, hidden=100),
    run=run,
    claims=claims,
    figures=figures,
)
