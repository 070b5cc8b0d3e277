"""Proposition 2.2: how fast, and when, weights along an escape direction leave the origin.

Gradient flow on the localised loss is simulated from known escape directions and compared with the growth law,
corrected and as printed; then from random weights, compared with the paper's formulas for the norm and the time; then,
on the loss itself, from initial norms down to 1e-300; last, digits are learned by SGD with the paper's learning rate
from several initial standard deviations.

    L        depth; X inputs, all positive; G gradients of the cost at output 0
    theta    weights; u = theta / |theta|
    rho      escape direction with |rho|^2 = L; s* its speed. On positive data and negative G, one positive neuron
             per layer along the leading singular vectors of -G X^T is one, of speed |G X^T|, at every depth
    L_0      localised loss Tr[G^T Y]
    t, s     time of the gradient flow, and the paper's time, ds = |theta|^(L-2) dt
    r        norm, at which an escape is timed

"Independent of the initial scale" can mean two things. The path of the direction in the time s is independent, and so
is the time at which it has aligned with an escape direction, as the paper says. From then on log |theta| grows at the
rate s* L^(1-L/2), so a given norm is reached later by log(1/scale) over that rate.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.papers.deep_relu import CITATION
from saddlescope.papers.deep_relu.proposition_2_2.claims import ALIGNED, claims
from saddlescope.papers.deep_relu.proposition_2_2.figures import figures
from saddlescope.papers.deep_relu.shared.image_training import image_loss, train_on_images
from saddlescope.papers.deep_relu.shared.recorded_training import TrainingSetup
from saddlescope.papers.deep_relu.shared.sequence_checks import require_distinct
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.flow import EscapeFlow

TOLERANCE = 1e-13  # of the flow along escape directions, where the growth law is held to 1e-9

RADIUS = 0.1  # |theta| at which an escape from the origin is timed: outputs are of order RADIUS^L

FALLEN = 2.2  # loss below which digits have escaped from the origin, where it is log 10 = 2.303


class Params(EntryParams):
    """Sizes for seconds a flow and half a minute for the digits; the paper has no experiment on this."""

    depths: tuple[int, ...] = param((2, 3, 4, 5, 6, 7, 8), "numbers of layers L of the flows along escape directions")
    growth: float = param(3.0, "factor by which |theta| grows along them")
    path_depth: int = param(4, "L of the flows from random weights", ge=3)
    log10_scales: tuple[float, ...] = param(
        (-6.0, -12.0, -50.0, -300.0),
        "log10 of their initial norms |theta|, decreasing",
        lt=0,
        order="decreasing",
        least=2,
    )
    width: int = param(8, "of their hidden layers", ge=1)
    samples: int = param(20, "in their data set", ge=1)
    seed: int = param(0, "of data and initial weights", ge=0)
    interval: float = param(0.25, "time s between two records", gt=0)
    deviations: tuple[float, ...] = param((0.03, 0.01, 0.003, 0.001), "of the initial weights on digits, decreasing")
    digits_depth: int = param(6, "L on digits", ge=3)
    digits_width: int = param(50, "of the hidden layers on digits", ge=1)
    steps: int = param(25_000, "of SGD with minibatches of 32 and learning rate 10 |theta|^(2-L)", ge=1)
    marks: int = param(64, "steps that are recorded, for each doubling of the step", ge=1)

    def check(self) -> None:
        if not 1 < self.growth < float("inf"):
            raise InputError(f"growth must be above 1 and finite; got {self.growth!r}.")
        require_distinct(2, self, "depths", example="2,4,6")
        deviations = self.deviations
        if len(deviations) < 2 or min(deviations) <= 0 or list(deviations) != sorted(set(deviations), reverse=True):
            raise InputError(f"deviations must be two or more, positive and decreasing; got {deviations!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Simulate flows along escape directions, flows from random weights, and training on digits."""
    import jax

    with jax.enable_x64(True):
        parts = [
            context.cached("growth", partial(_grow_along_directions, params, context.part(0.0, 0.3))),
            context.cached("paths", partial(_follow_random_weights, params, context.part(0.3, 0.5))),
        ]
    for n, deviation in enumerate(params.deviations):
        share = context.part(0.5 + 0.5 * n / len(params.deviations), 0.5 + 0.5 * (n + 1) / len(params.deviations))
        parts.append(context.cached(f"digits-{n}", partial(_train_on_digits, params, n, context, share)))
        share(1.0, f"deviation {deviation:g}")
    return xr.merge([*parts[:2], xr.concat(parts[2:], dim="deviation")], combine_attrs="drop_conflicts")


def _draw_positive_data(params: Params, samples: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw positive inputs (4, N) and targets (outputs, N)."""
    draw = np.random.default_rng(params.seed)
    return np.abs(draw.standard_normal((4, samples))), np.abs(draw.standard_normal((outputs, samples)))


def _grow_along_directions(params: Params, report: Report) -> xr.Dataset:
    """Follow an escape direction of each depth until |theta| has grown by the factor."""
    import jax
    import jax.numpy as jnp

    from saddlescope.flow import escape_flow
    from saddlescope.models.deep import LayeredLoss
    from saddlescope.theory.escape.norm_growth import escape_time, norm_at

    X, T = _draw_positive_data(params, params.samples, 2)
    loss = LayeredLoss(jnp.asarray(X.T), jnp.asarray(T.T))
    left, speeds, right = np.linalg.svd(-np.asarray(loss.gradient_at_origin()).T @ X.T)
    speed, rows = float(speeds[0]), []
    for n, depth in enumerate(params.depths):
        report(n / len(params.depths), f"escape direction of depth {depth}")
        neuron = np.ones((1, 1))
        rho = (np.abs(right[:1]), *[neuron] * (depth - 2), np.abs(left[:, :1]))
        slope = jax.grad(lambda w: jnp.sum(loss.gradient_at_origin() * loss.output(w)))(tuple(map(jnp.asarray, rho)))
        duration = np.log(params.growth) / (speed * depth ** (1 - depth / 2))
        flow = escape_flow(
            loss.output, loss.cost_of, rho, degree=depth, until=duration, record=np.linspace(0, duration, 51),
            localised=True, tolerance=TOLERANCE,
        )  # fmt: skip
        times, norms = np.exp(flow.log_times), np.exp(flow.log_norms)
        row = {
            "definition_error": max(float(np.abs(g + speed * w).max()) for g, w in zip(slope, rho, strict=True)),
            "direction_error": max(float(np.abs(path - path[:1]).max()) for path in flow.directions),
            "measured_time": times[-1],
        }
        for name, printed in (("corrected", False), ("printed", True)):
            predicted = norm_at(times, norm=depth**0.5, speed=speed, depth=depth, printed=printed)
            row[f"{name}_error"] = float(np.max(np.abs(norms / predicted - 1)))  # 1 where infinite
            row[f"{name}_time"] = escape_time(
                float(norms[-1]), norm=depth**0.5, speed=speed, depth=depth, printed=printed
            )
            row[f"{name}_norm"] = np.where(np.isfinite(predicted), predicted, np.nan)
        rows.append(
            xr.Dataset({name: (("record",) if np.ndim(value) else (), value) for name, value in row.items()}).assign(
                growth_time=("record", times), measured_norm=("record", norms)
            )
        )
    report(1.0, "escape directions")
    return xr.concat(rows, dim="depth").assign_coords(depth=list(params.depths)).assign_attrs(speed=speed)


def _follow_random_weights(params: Params, report: Report) -> xr.Dataset:
    """Follow one random direction from each initial norm on the loss, and once on the localised loss."""
    import jax.numpy as jnp
    from scipy.integrate import cumulative_simpson

    from saddlescope.flow import escape_flow
    from saddlescope.models.deep import LayeredLoss, layered_weights

    depth = params.path_depth
    X, T = _draw_positive_data(params, params.samples, 2)
    loss = LayeredLoss(jnp.asarray(X.T), jnp.asarray(T.T))
    start = layered_weights((4, *(depth - 1) * (params.width,), 2), seed=params.seed)
    flows = []
    for n, scale in enumerate(params.log10_scales):
        report(n / (1 + len(params.log10_scales)), f"random weights of norm 1e{scale:g}")
        flows.append(
            escape_flow(
                loss.output, loss.cost_of, start, degree=depth, log_norm=scale * np.log(10), stop=float(np.log(RADIUS)),
                until=1e6, record=np.arange(0, 1000, params.interval), tolerance=1e-6,
            )
        )  # fmt: skip
    last = _stack_directions(flows[-1])[-1]
    away = [np.linalg.norm(_stack_directions(flow) - last, axis=1) for flow in flows]
    aligned = [
        flow.times[np.argmax(of < ALIGNED)] if of.min() < ALIGNED else np.nan
        for flow, of in zip(flows, away, strict=True)
    ]
    common = min(map(len, away)) - 1
    until = float(np.nanmax(aligned)) * 2
    dense = np.linspace(0, until, 4001)
    local = escape_flow(
        loss.output,
        loss.cost_of,
        start,
        degree=depth,
        log_norm=0.0,
        until=until,
        record=dense,
        localised=True,
        tolerance=1e-6,
    )
    # L_0(u) from the loss, not from the rates that the solver integrates.
    zero = float(loss.cost_of(jnp.zeros((params.samples, 2))))
    unit_loss = (local.losses - zero) * np.exp(-depth * local.log_norms)
    integral = cumulative_simpson(unit_loss, x=local.times, initial=0.0)
    times = {
        name: cumulative_simpson(np.exp((depth - 2) * factor * integral), x=local.times, initial=0.0)[-1]
        for name, factor in (("corrected", depth), ("printed", 1))
    }
    return xr.Dataset(
        {
            "away": (("scale", "time"), [of[:common] for of in away]),
            "aligned_time": ("scale", aligned),
            "radius_time": ("scale", [flow.times[-1] for flow in flows]),
            "path_rate": ("scale", [flow.rates[-1] for flow in flows]),
            "gained": local.log_norms[-1] - local.log_norms[0],
            "gained_corrected": -depth * integral[-1],
            "gained_printed": -integral[-1],
            "spent": np.exp(local.log_times[-1]),
            **{f"spent_{name}": value for name, value in times.items()},
        },
        coords={"scale": list(params.log10_scales), "time": flows[0].times[:common]},
        attrs={"interval": params.interval, "path_depth": depth},
    )


def _stack_directions(flow: "EscapeFlow") -> np.ndarray:
    """Return the directions as vectors, (records, P)."""
    return np.concatenate([path.reshape(len(path), -1) for path in flow.directions], axis=1)


def _train_on_digits(params: Params, number: int, context: RunContext, report: Report) -> xr.Dataset:
    """Train on digits by SGD from one initial standard deviation."""
    setup = TrainingSetup(
        depth=params.digits_depth, width=params.digits_width, deviation=params.deviations[number], rate=10.0, batch=32,
        steps=params.steps, seed=params.seed,
    )  # fmt: skip
    options = {"name": f"digits-{number}", "per_doubling": params.marks, "report": report}
    found = train_on_images(image_loss("digits", context), setup, context, **options)
    fallen = np.flatnonzero(found.loss.values < FALLEN)
    k = int(fallen[0]) if len(fallen) else 0
    return (
        found[["loss", "norm"]]
        .rename(loss="digits_loss", norm="digits_norm")
        .assign(
            escape_step=float(found.step[k]) if k else np.nan,
            escape_interval=float(found.step[k] - found.step[k - 1]) if k else np.nan,
        )
        .assign_coords(deviation=params.deviations[number])
    )


entry = Entry(
    "deep-relu/proposition-2-2",
    "Proposition 2.2: how fast, and when, weights along an escape direction leave the origin",
    citation=CITATION,
    source="Section 2",
    params=Params,
    quick=dict(depths=(4,), deviations=(0.1, 0.02), digits_width=16, digits_depth=4, steps=1000, marks=16),
    paper=dict(digits_width=100, steps=80_000),
    run=run,
    claims=claims,
    figures=figures,
)
