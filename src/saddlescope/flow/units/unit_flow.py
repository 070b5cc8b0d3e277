"""Gradient flow of a sum of units f(x) = sum_i unit(theta_i, x) from a tiny initial scale.

    theta_i   weights of unit i, theta_i = exp(l_i) u_i with the log norm l_i and the direction u_i, |u_i| = 1
    g_i       -dL/dtheta_i
    alpha     initial scale: theta_i(0) = alpha w_i
    T         time, t / log(1/alpha) for degree 2 and t alpha^(degree - 2) above

    dl_i/dt = exp(-l_i) <u_i, g_i>,   du_i/dt = exp(-l_i) (g_i - <u_i, g_i> u_i)

Norms of 1e-100 cost as much as norms of 1. For degree 2, nothing is stiff, and explicit steps of about an e-fold keep
deviations of directions far below the tolerance, down to rounding (`explicit_run`). For higher degrees, plateaus are
longer than any power of log(1/alpha), and steps are implicit (`implicit_run`); what the flow conserves is kept, since a
unit that returns to its initial scale is decided by it (`unit_model`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int, PyTree

from saddlescope._shared.arguments import calling, shown, validate_arguments
from saddlescope._shared.compiled_functions import eval_shape, quickly_compiled
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope._shared.sample_pair import sample_pair
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.records import Panel
from saddlescope.figures.time_axes import loss_panel
from saddlescope.flow.status import FlowError, Status, require_run
from saddlescope.flow.units.explicit_run import follow_explicitly
from saddlescope.flow.units.implicit_run import ImplicitSystem, follow_implicitly
from saddlescope.flow.units.twin_flow import come_apart, rounded
from saddlescope.flow.units.unit_model import UnitModel, first_sample
from saddlescope.flow.units.unit_records import UnitRecords
from saddlescope.loss.checks import require_float64_throughout, shapes_of
from saddlescope.numerics.tree_layout import TreeLayout

_RECORDS = 401
_SMALL = 1e-6  # norm of units at which the degree is measured
_DEGREE = 0.1  # difference of a measured degree from another one
_LEAST = -700.0  # log scale: smaller weights underflow in float64
_BLOCK = 64  # states whose losses are computed in one call

_sizes = quickly_compiled(UnitModel.sizes)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UnitTrajectory(ReprMixin, PlotMixin):
    """A run of the flow of a sum of units.

    Attributes:
        times: recorded times, ascending, shape (k,), in `time_unit`.
        losses: L, shape (k,).
        log_norms: log |theta_i|, shape (k, m).
        directions: theta_i / |theta_i|, flat, shape (k, m, p).
        rises: time at which the norm of each unit first passed `level` upwards, shape (m,); NaN where it did not.
        log_scale: natural logarithm of the initial scale alpha.
        evaluations: number of evaluations of the right-hand side, in both of two runs with different errors.
        time_unit: unit of all times.
        status: termination status.
    """

    times: Float[np.ndarray, "k"]
    losses: Float[np.ndarray, "k"]
    log_norms: Float[np.ndarray, "k m"]
    directions: Float[np.ndarray, "k m p"]
    rises: Float[np.ndarray, "m"]
    log_scale: float
    evaluations: int
    time_unit: str
    status: Status

    identified = False
    activity = None
    """Several units may learn the same, so `compare` counts none."""

    def __repr__(self) -> str:
        return (
            f"UnitTrajectory({len(self.times)} records to {self.times[-1]:.6g} in {self.time_unit!r}, loss "
            f"{self.losses[0]:.3g} to {self.losses[-1]:.3g}, {int(np.sum(np.isfinite(self.rises)))} of "
            f"{len(self.rises)} units active; {self.status})"
        )

    @property
    def norms(self) -> Float[np.ndarray, "k m"]:
        """Norms |theta_i| at the recorded times; 0 where they underflow."""
        return np.exp(self.log_norms)

    def compared(self) -> Float[np.ndarray, "k n"]:
        """Return what a flow with other errors must have, too: losses, norms, and weights on the units' directions."""
        weights = self.norms[:, :, None] * self.directions
        return np.concatenate([self.losses[:, None], self.norms, weights.reshape(len(self.times), -1)], axis=1)

    def panel(self) -> Panel:
        """Return the loss over time."""
        return loss_panel(self.time_unit, self.times, self.losses)

    def to_xarray(self) -> xr.Dataset:
        """Return loss (time), log_norm (time, unit), direction (time, unit, weight) and rise (unit)."""
        data = {
            "loss": ("time", self.losses),
            "log_norm": (("time", "unit"), self.log_norms),
            "direction": (("time", "unit", "weight"), self.directions),
            "rise": ("unit", self.rises),
        }
        time = ("time", self.times, {"units": self.time_unit})
        return xr.Dataset(data, {"time": time, "unit": np.arange(len(self.rises))}, {"status": str(self.status)})


@in_float64
@validate_arguments
def unit_flow(
    unit: Callable[..., Array],
    data: tuple[PyTree, PyTree],
    loss: Callable[[Any, Any], Array],
    weights: PyTree,
    *,
    degree: float,
    log_scale: float,
    until: float,
    tolerance: float,
    level: float = 0.1,
    kinds: Int[np.ndarray, "m"] | None = None,
    record: Float[np.ndarray, "k"] | None = None,
    max_evaluations: int = 1_000_000,
    throw: bool = True,
    report: Report = silent,
) -> UnitTrajectory:
    """Follow gradient flow of a sum of units from alpha times given weights.

    The flow ends early where errors below the tolerance decide what comes next. For degree 2, a unit may leave a
    direction in which it has come to rest from a deviation below 1e-16, or from its error at a kink: later modes of
    linear networks from tiny scales can be such a case; use `gradient_flow` or `factored_flow` for them. For other
    degrees, active units may leave a saddle on a side that rounding decides: the flow is followed twice, from weights
    that are a few roundings to either side of those given, and ends where both come apart.

    Args:
        unit: unit(theta, x), or unit(theta, x, kind) if kinds are given, as for `unit_learning`.
        data: (inputs, targets), with a leading axis of samples in every array.
        loss: loss(output, target) of one sample, whose mean is minimised.
        weights: initial weights before they are scaled by alpha: a pytree with a leading axis of units.
        degree: of the unit at the origin, at least 2; it fixes the unit of time.
        log_scale: the natural logarithm of alpha, between -700 and 0.
        until: last time, in units of log(1/alpha) for degree 2, and of alpha^(2 - degree) above.
        tolerance: error of log norms and directions; steps have a fiftieth of it. For degree 2, those of units that are
            too small to matter, whose square is below the tolerance, may be undecided.
        level: norm whose first passage is recorded for each unit.
        kinds: kind of each unit, shape (m,); None: the unit takes no kind.
        record: recorded times; by default 401 evenly spaced ones.
        max_evaluations: end the flow early after so many evaluations of the right-hand side; above degree 2, of each
            run.
        throw: True: raise if the flow ends early. False: return it; check `UnitTrajectory.status`.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument out of range, a unit of another degree, data that do not fit
            each other or are not finite, or weights that are not finite or 0 in a unit.
        FlowError: the flow ended early and `throw` is true; `FlowError.result` is the flow until then.

    >>> import numpy as np
    >>> data = np.eye(2), np.array([2.0, 1.0])
    >>> # two coordinates of a diagonal network: T = 1 and 2
    >>> run = unit_flow(
    ...     lambda theta, x, kind: theta[0] * theta[1] * x[kind], data, lambda f, y: (f - y) ** 2 / 2,
    ...     np.ones((2, 2)), degree=2.0, log_scale=-700.0, until=3.0, tolerance=1e-5, kinds=np.arange(2),
    ... )
    >>> run.rises.round(2).tolist()
    [1.0, 1.99]
    """
    require_run(until=until, tolerance=tolerance, record=record, max_evaluations=max_evaluations, level=level)
    if not 2 <= degree < np.inf:
        raise InputError(f"degree must be at least 2 and finite; got {degree!r}.")
    if not _LEAST <= log_scale < 0:
        raise InputError(f"log_scale must be the natural logarithm of a scale between 1e-304 and 1; got {log_scale!r}.")
    start = _flat(weights)
    count = len(start)
    if kinds is not None and np.shape(kinds) != (count,):
        raise InputError(f"kinds must hold one number per unit, {count}; got shape {np.shape(kinds)!r}.")
    layout = TreeLayout.of(jax.tree.map(lambda leaf: np.asarray(leaf)[0], weights))
    numbers = None if kinds is None else jnp.asarray(kinds)
    model = UnitModel(unit, loss, *sample_pair(data), layout, numbers, count, degree)
    _check_call(model, start)
    _check_degree(model, start)
    times = np.linspace(0, until, _RECORDS) if record is None else np.asarray(record, float)
    run = partial(
        _follow, log_scale=log_scale, times=np.unique(np.concatenate([[0.0], times, [until]])), level=level,
        max_evaluations=max_evaluations,
    )  # fmt: skip
    if degree == 2:
        result = run(model, start, tolerance=tolerance, report=report)
    else:
        run = partial(run, model.with_conserved(*_polar(start, log_scale)))
        result = run(rounded(start, 1), tolerance=tolerance, report=lambda part, note: report(part / 2, note))
        if result.status.ok:
            twin = run(
                rounded(start, -1), tolerance=tolerance / 2,
                report=lambda part, note: report((1 + part) / 2, f"{note}, with other errors"),
            )  # fmt: skip
            result = _until_apart(result, twin, tolerance) if twin.status.ok else twin
    if throw and not result.status.ok:
        raise FlowError(result)
    return result


def _follow(
    model: UnitModel,
    start: Float[np.ndarray, "m p"],
    *,
    log_scale: float,
    times: Float[np.ndarray, "k"],
    level: float,
    tolerance: float,
    max_evaluations: int,
    report: Report,
) -> UnitTrajectory:
    """Follow the flow from alpha times some weights to the last of the times."""
    degree, until = model.degree, float(times[-1])
    log_unit = math.log(-log_scale) if degree == 2 else -(degree - 2) * log_scale
    log_norms, directions = _polar(start, log_scale)
    records = UnitRecords(np.concatenate([log_norms, directions.ravel()]), model.count, times, math.log(level))
    status, evaluations = None, 0
    if degree == 2 and until > 0:
        status, evaluations = follow_explicitly(model, records, log_unit, until, tolerance, max_evaluations, report)
    if status is None:
        system = ImplicitSystem(model, log_unit, log_scale, tolerance, max_evaluations, evaluations)
        status = follow_implicitly(system, records, until, tolerance, report)
        evaluations = system.evaluations
    losses, log_norms, directions = _along(model, np.array(records.states))
    return UnitTrajectory(
        times=np.array(records.recorded),
        losses=losses,
        log_norms=log_norms,
        directions=directions,
        rises=records.rises,
        log_scale=log_scale,
        evaluations=evaluations,
        time_unit="t / log(1/alpha)" if degree == 2 else f"t alpha^{degree - 2:g}",
        status=status,
    )


def _polar(weights: Float[np.ndarray, "m p"], log_scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return log norms and directions of weights times the scale."""
    norms = np.linalg.norm(weights, axis=1)
    return np.log(norms) + log_scale, weights / norms[:, None]


def _until_apart(run: UnitTrajectory, twin: UnitTrajectory, tolerance: float) -> UnitTrajectory:
    """Return a flow up to where a twin with other errors goes elsewhere."""
    shared = min(len(run.times), len(twin.times))
    known = come_apart(run.times[:shared], run.compared()[:shared], twin.compared()[:shared], tolerance)
    if known == len(run.times):
        return replace(run, evaluations=run.evaluations + twin.evaluations)
    status = Status(
        False,
        "undecided",
        f"Errors below the tolerance decide how the units move before T = {run.times[known]:.6g}: flows that differ by "
        "them alone come apart.",
        "Lower tolerance, break a symmetry by more than rounding, start from a larger scale, or use gradient_flow.",
    )
    known = max(known - 1, 1)
    return replace(
        run,
        times=run.times[:known],
        losses=run.losses[:known],
        log_norms=run.log_norms[:known],
        directions=run.directions[:known],
        rises=np.where(run.rises <= run.times[known - 1], run.rises, np.nan),
        evaluations=run.evaluations + twin.evaluations,
        status=status,
    )


def _flat(weights: PyTree) -> Float[np.ndarray, "m p"]:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(weights)]
    if not leaves or any(leaf.ndim < 1 or leaf.dtype.kind not in "iuf" for leaf in leaves):
        raise InputError("weights must be real arrays with a leading axis of units; got another pytree.")
    if len({len(leaf) for leaf in leaves}) != 1 or not len(leaves[0]):
        raise InputError(f"weights must have the same leading axis; got lengths {[len(leaf) for leaf in leaves]!r}.")
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1).astype(float)
    if not np.isfinite(flat).all() or not np.all(np.any(flat != 0, axis=1)):
        raise InputError("weights must be finite and not all 0 in any unit; got NaN, infinite or zero units.")
    return flat


def _check_call(model: UnitModel, start: np.ndarray) -> None:
    one, x, y = map(shapes_of, (model.layout.build(start[0]), first_sample(model.inputs), first_sample(model.targets)))
    with calling(
        f"unit must accept weights of {one} and an input of {x}, and loss an output and a target of {y}",
        "Check the shapes.",
    ):
        value = eval_shape(model.loss_of_first, jnp.asarray(start))
    if getattr(value, "shape", None) != () or value.dtype != jnp.float64:
        raise InputError(f"loss(output, target) must return one float64 number; got {shown(value)}.")
    require_float64_throughout("unit and loss", model.loss_of_first, start)


def _check_degree(model: UnitModel, start: np.ndarray) -> None:
    """Raise unless most units have the given degree at the origin; those that are 0 on the samples have none."""
    directions = start / np.linalg.norm(start, axis=1, keepdims=True)
    small, smaller = (np.asarray(_sizes(model, jnp.asarray(c * directions))) for c in (_SMALL, _SMALL / 2))
    alive = np.isfinite(small) & (small > 0) & (smaller > 0)
    if not alive.any():
        return
    found = float(np.median(np.log2(small[alive] / smaller[alive])))
    if abs(found - model.degree) > _DEGREE:
        raise InputError(
            f"degree must be that of the unit at the origin, {abs(found):.2f} for these weights and data; got "
            f"{model.degree!r}. If it is below 2, the unit is not 0 at zero weights, or leaves them at once: no stages."
        )


def _along(model: UnitModel, states: Float[np.ndarray, "k s"]) -> list[np.ndarray]:
    """Return losses, log norms and directions along states."""
    blocks = np.pad(states, ((0, -len(states) % _BLOCK), (0, 0)), "edge").reshape(-1, _BLOCK, states.shape[1])
    parts = zip(*(_recorded(model, jnp.asarray(block)) for block in blocks), strict=True)
    return [np.concatenate([np.asarray(block) for block in of_blocks])[: len(states)] for of_blocks in parts]


@quickly_compiled
def _recorded(model: UnitModel, states: Float[Array, "k s"]) -> tuple[Array, ...]:
    def record(state: Float[Array, "s"]) -> tuple[Array, ...]:
        log_norms, u = model.split(state)
        return model.mean_loss(jnp.exp(log_norms)[:, None] * u), log_norms, u

    return jax.lax.map(record, states)
