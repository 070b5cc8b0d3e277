"""Gradient flow of losses of a homogeneous output, in the time in which the escape from the origin is scale-free.

    theta   parameters, theta = exp(l) u with the direction u, |u| = 1, and the log norm l
    f       the output, homogeneous of degree L: f(theta) = exp(L l) f(u) = Y
    C       a cost of the output; the loss is C(Y), and the localised loss is C(0) + Tr[G^T Y] with G = grad C(0)
    t       time of the gradient flow d theta / dt = -grad C(f(theta))
    s       the paper's time, ds = |theta|^(L-2) dt

With g = grad_u <grad C(Y), f(u)>, Y held fixed in the bracket,

    du/ds = -(g - <u, g> u)      dl/ds = -<u, g>      dt/ds = exp((2 - L) l)

in which nothing under- or overflows at any initial norm: where Y vanishes, grad C(Y) is G. On the localised loss u does
not depend on l, so c theta_0 takes the same path at the same times s, and its log norm is shifted by log c for ever.
Section 2.1 of Bantzis, Simon and Jacot (2025).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import xarray as xr
from jaxtyping import Array, Float, PyTree

from saddlescope._shared.arguments import calling, shown, validate_arguments
from saddlescope._shared.compiled_functions import compiled, eval_shape, inlined
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Axis, Line, Panel
from saddlescope.flow.status import REACHED, FlowError, Status, exhausted, require_run
from saddlescope.loss.checks import require_float64_throughout, require_numbers, shapes_of
from saddlescope.numerics.tree_layout import TreeLayout

_RECORDS = 201
_PER_STEP = 6  # evaluations of the right-hand side in a step of Tsitouras' method
_REPORTS = 100  # progress reports in a run, at most
_HOMOGENEOUS = 1e-9  # relative difference between f(2 u) and 2^L f(u) that is rounding


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EscapeFlow(ReprMixin, PlotMixin):
    """A path in the time s.

    Attributes:
        times: s, ascending from 0, shape (k,); the last is where the flow ended.
        log_norms: log |theta|, shape (k,).
        directions: theta / |theta|, a pytree like the weights, with a leading axis of length k.
        rates: d log|theta| / ds, shape (k,). At an escape direction of speed s* it is s* L^(1 - L/2) as long as the
            output is small.
        losses: C(Y), or the localised loss, shape (k,).
        log_times: log t, -inf at the start, shape (k,): t itself is beyond float64 for small starts.
        steps: number of steps of the solver.
        status: termination status.
    """

    times: Float[np.ndarray, "k"]
    log_norms: Float[np.ndarray, "k"]
    directions: PyTree
    rates: Float[np.ndarray, "k"]
    losses: Float[np.ndarray, "k"]
    log_times: Float[np.ndarray, "k"]
    steps: int
    status: Status

    def __repr__(self) -> str:
        return (
            f"EscapeFlow({len(self.times)} records to s = {self.times[-1]:.6g}, log|theta| {self.log_norms[0]:.6g} to "
            f"{self.log_norms[-1]:.6g}; {self.status})"
        )

    def panel(self) -> Panel:
        """Return the logarithm of the norm of the weights over time."""
        line = Line(x=self.times, y=self.log_norms / np.log(10), color=0, width=2.0)
        return Panel(x=Axis("time s"), y=Axis("log₁₀ of the norm of the weights"), marks=(line,))

    def to_xarray(self) -> xr.Dataset:
        """Return log_norm, rate, loss and log_time, each over time s."""
        series = {"log_norm": self.log_norms, "rate": self.rates, "loss": self.losses, "log_time": self.log_times}
        data = {name: ("time", values) for name, values in series.items()}
        return xr.Dataset(data, {"time": self.times}, {"status": str(self.status)})


@in_float64
@validate_arguments
def escape_flow(
    output: Callable[[PyTree], Array],
    cost: Callable[[Array], Array],
    weights: PyTree,
    *,
    degree: int,
    until: float,
    log_norm: float | None = None,
    localised: bool = False,
    stop: float = float("inf"),
    record: Float[np.ndarray, "k"] | None = None,
    tolerance: float,
    max_evaluations: int = 600_000,
    throw: bool = True,
    report: Report = silent,
) -> EscapeFlow:
    """Follow the gradient flow of cost(output(theta)) in the time s, from any initial norm, 1e-300 and far below.

    The solver is Tsitouras' explicit method of order 5 with adaptive steps. Crossing a kink of ReLU takes some short
    steps. A flow that slides along a kink, because both sides push towards it, is followed in a zigzag about as wide as
    the tolerance, and the steps are as short: on a few samples this is common, and a tolerance of 1e-4 may then take
    a thousandth of the steps that 1e-7 takes.

    Args:
        output: f, homogeneous of the given degree; such as `LayeredLoss.output`.
        cost: C, from the output to a number; such as `LayeredLoss.cost_of`.
        weights: the initial direction, arrays not all 0; their norm counts only where `log_norm` is None.
        degree: L, at least 2: the depth of a network without biases.
        until: the last time s.
        log_norm: log |theta| at the start; None: of the weights given.
        localised: True: follow the localised loss, to which the loss reduces near the origin.
        stop: log |theta| at which to end, when it is reached from below: the escape from a ball.
        record: times s at which the path is recorded, besides its ends; by default 201 evenly spaced ones.
        tolerance: error of a step, of the direction as a vector, of the log norm, and of t in units of
            |theta_0|^(2-L); errors of the path are of this order times the number of steps, at most.
        max_evaluations: end the flow early after so many evaluations of the right-hand side, 6 per step.
        throw: True: raise if the flow ends early. False: return it; check `EscapeFlow.status`.
        report: called from time to time with the finished fraction and a note. A new function is a new compilation.

    Raises:
        InputError: an argument cannot be used; the output is not homogeneous of that degree; or the cost has no
            gradient at output 0, where the origin is then no saddle to escape from.
        FlowError: the flow ended early and `throw` is true; `FlowError.result` is the flow until then.
    """
    if degree < 2:
        raise InputError(f"degree must be at least 2; got {degree!r}.")
    if until == 0:
        raise InputError(f"until must be positive and finite; got {until!r}.")
    if log_norm is not None and not np.isfinite(log_norm):
        raise InputError(f"log_norm must be finite; got {log_norm!r}.")
    if np.isnan(stop):
        raise InputError(f"stop must be a log norm, or infinite; got {stop!r}.")
    require_run(
        until=until, tolerance=tolerance, record=record, max_evaluations=max_evaluations, smallest_tolerance=1e-13
    )
    require_numbers("weights", weights)
    layout = TreeLayout.of(weights)
    flat = jnp.asarray(layout.flatten(weights), float)
    largest = float(jnp.max(jnp.abs(flat)))
    if not 0 < largest < np.inf:
        raise InputError(f"weights must be finite and not all 0; got {largest!r} as their largest entry.")
    norm = float(jnp.linalg.norm(flat / largest))  # in two steps: squares of small entries would vanish
    start = float(np.log(largest) + np.log(norm)) if log_norm is None else log_norm
    if start >= stop:
        raise InputError(f"stop must be above the initial log norm {start!r}; got {stop!r}.")
    system = _System(output, cost, layout, degree, localised)
    direction = flat / largest / norm
    _check_output(system, direction)

    times = np.linspace(0, until, _RECORDS) if record is None else np.asarray(record, float)
    times = np.unique(np.concatenate([[0.0], times, [until]]))
    bounds = jnp.asarray([start, stop, tolerance])
    saved, (last, after), steps, result = _solve(
        system,
        direction,
        bounds,
        jnp.asarray(times),
        max(1, max_evaluations // _PER_STEP),
        bool(stop < np.inf),
        diffrax.NoProgressMeter() if report is silent else _Meter(report, until),
    )
    reached = float(last)
    jax.effects_barrier()  # the last report
    count = int(np.searchsorted(times, reached, side="left"))  # records before the end; the end itself follows
    states = jax.tree.map(lambda path, end: np.concatenate([np.asarray(path)[:count], np.asarray(end)]), saved, after)
    shift, point, scaled, rates, losses = states
    with np.errstate(divide="ignore"):
        log_times = np.log(scaled) + (2 - degree) * start
    flow = EscapeFlow(
        times=np.append(times[:count], reached),
        log_norms=start + shift,
        directions=layout.build(point),
        rates=rates,
        losses=losses,
        log_times=log_times,
        steps=int(steps),
        status=_status(result, reached, max_evaluations, bool(np.isfinite(rates).all())),
    )
    if throw and not flow.status.ok:
        raise FlowError(flow)
    return flow


class _System(eqx.Module):
    """Right-hand side of the flow. A state is (log |theta| less its start, u, t / |theta_0|^(2-L))."""

    output: Callable[[PyTree], Array]
    cost: Callable[[Array], Array]
    layout: TreeLayout = eqx.field(static=True)
    degree: int = eqx.field(static=True)
    localised: bool = eqx.field(static=True)

    def pull(self, log_norm: Array, direction: Array) -> tuple[Array, Array]:
        """Return <u, g> and g, at a direction of norm 1."""
        image, back = jax.vjp(lambda flat: self.output(self.layout.build(flat)), direction)
        at = jnp.zeros_like(image) if self.localised else jnp.exp(self.degree * log_norm) * image
        (gradient,) = back(jax.grad(self.cost)(at))
        return direction @ gradient, gradient

    def loss(self, log_norm: Array, direction: Array) -> Array:
        """Return the loss, or the localised loss."""
        scaled = jnp.exp(self.degree * log_norm) * self.output(self.layout.build(direction))
        if not self.localised:
            return self.cost(scaled)
        zero = jnp.zeros_like(scaled)
        return self.cost(zero) + jnp.sum(jax.grad(self.cost)(zero) * scaled)

    def slope(self, time: Any, state: tuple[Array, Array, Array], start: Array) -> tuple[Array, Array, Array]:
        """Return the derivatives by s."""
        shift, point, _ = state
        unit = point / jnp.linalg.norm(point)  # the flow conserves |u|, the solver nearly so
        along, gradient = self.pull(start + shift, unit)
        return -along, along * unit - gradient, jnp.exp((2 - self.degree) * shift)

    def record(self, time: Any, state: tuple[Array, Array, Array], start: Array) -> tuple[Array, ...]:
        """Return the shift, the direction, the scaled t, the rate and the loss, as recorded."""
        shift, point, scaled = state
        unit = point / jnp.linalg.norm(point)
        return shift, unit, scaled, -self.pull(start + shift, unit)[0], self.loss(start + shift, unit)


class _Meter(diffrax.AbstractProgressMeter):
    """Progress meter that calls `report`."""

    report: Report = eqx.field(static=True)
    until: float = eqx.field(static=True)

    def init(self) -> Array:
        """Return the fraction of the next report."""
        return jnp.zeros(())

    def step(self, state: Array, progress: Any) -> Array:
        """Report the progress if the next report is due."""
        due = progress >= state
        jax.lax.cond(due, lambda fraction: jax.debug.callback(self._call, fraction), lambda fraction: None, progress)
        return jnp.where(due, progress + 1 / _REPORTS, state)

    def close(self, state: Array) -> None:
        """Do nothing at the end."""

    def _call(self, fraction: Any) -> None:
        self.report(float(fraction), f"s = {float(fraction) * self.until:.4g} of {self.until:.4g}")


def _largest(error: tuple[Array, Array, Array]) -> Array:
    shift, point, scaled = error
    return jnp.max(jnp.stack([jnp.abs(shift), jnp.linalg.norm(point), jnp.abs(scaled)]))


@compiled
def _solve(
    system: _System,
    direction: Array,
    bounds: Array,
    times: Array,
    max_steps: int,
    stopping: bool,
    meter: diffrax.AbstractProgressMeter,
) -> tuple[PyTree, tuple[Array, PyTree], Array, diffrax.RESULTS]:
    """Return the records at the times and at the end, with the end's time; the number of steps; the result."""
    start, stop, tolerance = bounds
    event = None  # finding its time takes a third of the compilation
    if stopping:
        root = optimistix.Newton(rtol=1e-12, atol=1e-12)
        event = diffrax.Event(lambda t, y, args, **_: start + y[0] - stop, root, direction=True)
    solution = inlined(diffrax.diffeqsolve)(
        diffrax.ODETerm(system.slope),
        diffrax.Tsit5(),
        t0=times[0],
        t1=times[-1],
        dt0=None,
        y0=(jnp.zeros(()), direction, jnp.zeros(())),
        args=start,
        saveat=diffrax.SaveAt(
            subs=[diffrax.SubSaveAt(ts=times, fn=system.record), diffrax.SubSaveAt(t1=True, fn=system.record)]
        ),
        # Errors are absolute: |u| is 1, and the log norm may be -1e5 while it must be known to the tolerance.
        stepsize_controller=diffrax.PIDController(rtol=0.0, atol=tolerance, norm=_largest),
        event=event,
        adjoint=diffrax.ForwardMode(),  # nothing is differentiated: the simplest loop compiles fastest
        max_steps=max_steps,
        progress_meter=meter,
        throw=False,
    )
    assert solution.ts is not None
    assert solution.ys is not None
    return solution.ys[0], (solution.ts[1][0], solution.ys[1]), solution.stats["num_steps"], solution.result


def _status(result: diffrax.RESULTS, reached: float, max_evaluations: int, finite: bool) -> Status:
    if not finite:
        return Status(
            False,
            "not_finite",
            f"The gradient is NaN or infinite at s = {reached:.6g}.",
            "Evaluate the cost and its gradient at the last output to see where they come from.",
        )
    if result == diffrax.RESULTS.successful:
        return REACHED
    if result == diffrax.RESULTS.event_occurred:
        return Status(True, "stopped", f"The log norm at which to stop was reached at s = {reached:.6g}.")
    if result == diffrax.RESULTS.max_steps_reached:
        cure = "Raise tolerance, since the flow may slide along a kink of ReLU; or max_evaluations."
        return exhausted(max_evaluations, reached, "s", cure)
    return Status(False, "stuck", f"No step could be taken at s = {reached:.6g}.", "Raise tolerance.")


@compiled
def _output_twice(system: _System, direction: Array) -> tuple[Array, Array, Array]:
    once, twice = (system.output(system.layout.build(scale * direction)) for scale in (1.0, 2.0))
    return once, twice, jax.grad(system.cost)(jnp.zeros_like(once))


def _cost_at(system: _System, point: Array) -> Array:
    return system.cost(system.output(system.layout.build(point)))


def _check_output(system: _System, direction: Array) -> None:
    given = shapes_of(system.layout.build(direction))
    with calling(f"output must accept weights of {given}, and cost its output", "Check the shapes."):
        value = eval_shape(_cost_at, system, direction)
    if getattr(value, "shape", None) != ():
        raise InputError(f"cost must return one number; got {shown(value)}. Sum or average over the samples.")
    require_float64_throughout("output and cost", _cost_at, system, direction)
    once, twice, gradient = map(np.asarray, _output_twice(system, direction))
    if not (np.isfinite(once).all() and np.isfinite(gradient).all()):
        raise InputError("output and the gradient of cost at output 0 must be finite; got NaN or infinite entries.")
    if np.max(np.abs(twice - 2.0**system.degree * once)) > _HOMOGENEOUS * max(np.max(np.abs(twice)), 1e-300):
        raise InputError(
            f"degree must be the degree of homogeneity of the output, the depth of a network without biases; got "
            f"{system.degree!r}, with which output(2 theta) is not 2^{system.degree} output(theta)."
        )
    if not gradient.any():
        raise InputError(
            "cost must have a gradient at output 0; got 0 there: the origin is then no saddle of the output's linear "
            "order, and has no time s. Use gradient_flow."
        )
