"""Escape time of deep smooth networks against the initial scale: the exponent counts the small layers alone.

f(x) = W_L φ(W_{L-1} ... φ(W_1 x)) with φ = tanh and He-normal weights, of which the first r layers are multiplied by ε.
While the output is small, each small layer's relative rate is of order ε^(r-2): the product of the r - 2 others and of
layers of order 1. So the loss leaves its plateau after a time of order ε^-(r-2) for r > 2, and log(1/ε) for r = 2,
whatever the depth L.

    τ       time at which the loss has fallen by a tenth
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.plot import Axis, Figure, Figures, Line, Panel, Table
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

SOURCE = "Rawal and DeWeese 2026, abstract: escape time of order ε^-(r-2)"
_FALLEN = 0.9  # of the initial loss


class Params(EntryParams):
    """Small networks on random data; time is that of gradient flow."""

    depths: tuple[int, ...] = param((3, 4, 5), "numbers of layers L", ge=2, le=12, order="increasing")
    small: tuple[int, ...] = param((2, 3, 4), "numbers of small layers r, at most L", ge=2, le=6, order="increasing")
    log10_scales: tuple[float, ...] = param(
        (-1.5, -2.0, -2.5), "log10 of the scale ε of the small layers", ge=-6, lt=0, order="decreasing", least=2
    )
    seeds: tuple[int, ...] = param((0, 1, 2), "seeds of data and weights", ge=0, order="distinct")
    width: int = param(8, "width of the hidden layers", ge=1)
    inputs: int = param(4, "dimension of the inputs", ge=1)
    samples: int = param(16, "samples in the data set", ge=1)

    def check(self) -> None:
        if self.small[-1] > self.depths[-1]:
            raise InputError(f"small must be at most the largest depth, {self.depths[-1]}; got {self.small!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Measure the escape time of each network from each scale."""
    import jax

    axes = {"small": params.small, "seed": params.seeds}
    times: list[xr.Dataset] = []
    with jax.enable_x64(True):
        for depth, step in context.steps(params.depths):
            axes["small"] = tuple(r for r in params.small if r <= depth)
            times += step.cells(axes, partial(_escape_times, params, depth), name=f"{depth} layers")
    return xr.concat(times, dim="case", coords="all").assign_coords(scale=list(params.log10_scales))


def _escape_times(params: Params, depth: int, small: int, seed: int, step: RunContext) -> xr.Dataset:
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng([seed, depth])
    X = rng.standard_normal((params.samples, params.inputs))
    y = np.sin(X @ rng.standard_normal(params.inputs)) + X[:, 0]
    widths = (params.inputs, *[params.width] * (depth - 1), 1)
    layers = [rng.standard_normal((o, i)) * np.sqrt(2 / i) for i, o in pairwise(widths)]

    def loss(weights: Sequence[jax.Array]) -> jax.Array:
        hidden = jnp.asarray(X)
        for weight in weights[:-1]:
            hidden = jnp.tanh(hidden @ weight.T)
        return jnp.mean(((hidden @ weights[-1].T)[:, 0] - jnp.asarray(y)) ** 2) / 2

    times = [_escape_time(loss, layers, small, 10.0**scale) for scale in params.log10_scales]
    return xr.Dataset({"escape_time": ("scale", times)}, {"depth": depth, "small": small, "seed": seed})


def _escape_time(loss, layers: list[np.ndarray], small: int, scale: float) -> float:
    """Follow gradient flow by an explicit method until the loss has fallen by a tenth."""
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree
    from scipy.integrate import solve_ivp

    start, shaped = ravel_pytree([jnp.asarray(w) * (scale if k < small else 1.0) for k, w in enumerate(layers)])
    value_and_grad = jax.jit(jax.value_and_grad(lambda flat: loss(shaped(flat))))
    level = _FALLEN * float(value_and_grad(start)[0])

    def fallen(t: float, flat: np.ndarray) -> float:
        return float(value_and_grad(flat)[0]) - level

    def velocity(t: float, flat: np.ndarray) -> np.ndarray:
        return -np.asarray(value_and_grad(flat)[1])

    fallen.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    policies = {"method": "DOP853", "rtol": 1e-6, "atol": 1e-9 * scale, "events": fallen}
    found = solve_ivp(velocity, (0.0, 1e3 * scale ** (1.5 - small)), np.asarray(start), **policies).t_events[0]
    return float(found[0]) if len(found) else np.nan


def exponents(run: xr.Dataset) -> xr.DataArray:
    """Return for each case the slope of log τ over log(1/ε) between the two smallest scales."""
    last = np.log(run.escape_time).isel(scale=slice(-2, None))
    step = np.log(10) * (run.scale[-2] - run.scale[-1])
    return (last.isel(scale=1, drop=True) - last.isel(scale=0, drop=True)) / step.drop_vars("scale", errors="ignore")


claims = Claims(
    limits="Width 8 and scales of one decade, of which the last half gives the exponents; corrections of higher order "
    "in ε are judged by the bars, which are ours. Every depth is held to the same exponent r - 2. With r = 2 a very "
    "small power could pass for a logarithm."
)


@claims.reading(
    "exponent",
    "In tanh networks of 3 to 5 layers, the first r = 3 or 4 of scale ε, the escape time grows as ε^-(r - 2)",
    f"{SOURCE}, governed by r rather than the total depth; bar: this project",
    high=0.1,
)
def _exponent(run: xr.Dataset) -> Estimate:
    """Largest difference of the slope of log τ over log(1/ε), at the smallest scales, from r - 2."""
    deep = run.isel(case=(run.small > 2).values)
    return Estimate.largest(abs(exponents(deep) - (deep.small - 2)), over="networks")


@claims.extension(
    "logarithm",
    "In tanh networks of 3 to 5 layers, the first two of scale ε, the escape time grows as log(1/ε)",
    f"{SOURCE}, at the critical number r = 2; derived in the module",
    high=1.1,
)
def _logarithm(run: xr.Dataset) -> Estimate:
    """Largest ratio of the extra times of the last two steps in log ε, or its inverse: 1 for a logarithm."""
    two = run.isel(case=(run.small == 2).values)
    if run.sizes["scale"] < 3:
        return Estimate.unresolved("Give three scales or more.")
    steps = two.escape_time.diff("scale") / abs(two.scale.diff("scale"))
    ratio = steps.isel(scale=-1, drop=True) / steps.isel(scale=-2, drop=True)
    return Estimate.largest(np.maximum(ratio, 1 / ratio), over="networks")


def figures(run: xr.Dataset) -> Figures:
    """Draw escape times against the scale, one panel per number of small layers."""
    panels, found = [], exponents(run).values
    for r in np.unique(run.small):
        some = run.isel(case=(run.small == r).values)
        marks = tuple(
            Line(x=10.0**-some.scale.values, y=times, group=f"{depth} layers", color=depth)
            for depth, times in zip(some.depth.values.tolist(), some.escape_time.values, strict=True)
        )
        x, y = Axis("1/ε", scale="log"), Axis("τ", scale="linear" if r == 2 else "log")
        panels.append(Panel(title=f"{int(r)} small layers", x=x, y=y, marks=marks))
    cases = zip(*(run[name].values.tolist() for name in ("depth", "small", "seed")), strict=True)
    rows = tuple((L, r, seed, float(slope), float(r - 2)) for (L, r, seed), slope in zip(cases, found, strict=True))
    yield Figure(
        name="times",
        title="Escape time against the initial scale",
        caption="Time at which the loss has fallen by a tenth, against one over the scale of the small layers. "
        "With two of them the axis of times is linear, and a logarithm is a straight line; with more, the slope is "
        "r - 2.",
        panels=tuple(panels),
        columns=3,
        table=Table(columns=("layers", "small layers", "seed", "exponent", "r - 2"), rows=rows),
    )


entry = Entry(
    "beyond/escape-time",
    "Escape time of deep smooth networks: the exponent counts the small layers",
    source="Rawal and DeWeese, escape time law",
    quick={"depths": (3, 4), "small": (3,), "log10_scales": (-1.5, -2.0), "seeds": (0,), "width": 4},
)
