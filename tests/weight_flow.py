"""Gradient flow of a loss of margins in any weights, by automatic differentiation and an explicit method.

    weights     any pytree of arrays, with margins u(weights) given as a function in JAX
    flow        d weights / dt = sum_il r_il du_il/dweights, r = -dL/du from the loss, in logarithms
    time        tau = ln(1 + t / ts), in which the rates are e^(ln r + ln dt/dtau)

The slow and general reference implementation of `saddlescope.flow.diagonal_margin_flow` and the like. It shares only
the loss with them: no integrals phi, no reduction, no Jacobian, no implicit method. DOP853 is the solver (Hairer,
Norsett and Wanner), so that steps stay below about 1 / ln t in tau: t = 1e300 takes some ten thousand evaluations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy.typing import ArrayLike
from scipy.integrate import DOP853

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.compiled_functions import compiled
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.flow.margin.records import (
    MarginFlow,
    Record,
    as_tables,
    balanced,
    recorded_log_times,
    require_log_until,
    returned,
)
from saddlescope.flow.margin.systems import MarginLoss
from saddlescope.flow.status import REACHED, Status, exhausted, require_evaluations, require_tolerance
from saddlescope.loss.checks import require_numbers
from saddlescope.numerics.tree_layout import TreeLayout

_LATEST = 1e4  # ln t: beyond, an explicit method takes too many steps
_BALANCE = 1e4  # times the tolerance: an energy defect beyond it breaks a run


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WeightFlow(MarginFlow):
    """Margin flow in weights of any kind.

    Attributes:
        weights: at the recorded times, the first axis of every leaf.
    """

    weights: PyTree[Float[np.ndarray, "..."]]


@validate_arguments
def weight_flow(
    loss: MarginLoss,
    margins_of: Callable[[PyTree], Array],
    start: PyTree,
    *,
    log_until: float,
    tolerance: float,
    record: ArrayLike | None = None,
    throw: bool = True,
    max_evaluations: int = 200_000,
    report: Report = silent,
) -> WeightFlow:
    """Follow gradient flow of L(margins_of(weights)) in the weights.

    Args:
        loss: of the margins.
        margins_of: JAX function from the weights to the margins (n, m).
        start: the weights at time 0.
        log_until: ln t at the end, up to 1e4.
        tolerance: relative error of a step; 1e-13 to 1e-4.
        record: ln t to record besides `log_until`, (k,); -inf is the start. By default the start and 199 times evenly
            spaced in ln(1 + t / ts), ts the time in which the flow begins to move.
        throw: True: raise if the flow ends early or its energy is out of balance. False: return it; check `status`.
        max_evaluations: end early after so many evaluations of the right-hand side.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used, or the flow never moves from the start.
        FlowError: the flow ended early or its energy is out of balance, and `throw` is true; `FlowError.result` is the
            flow until then.
    """
    require_log_until(log_until, _LATEST)
    require_tolerance(tolerance, 1e-13, 1e-4)
    require_evaluations(max_evaluations)
    with jax.enable_x64(True):
        require_numbers("start", start)
        layout = TreeLayout.of(start)
        point = np.asarray(layout.flatten(start), float)
        if not np.all(np.isfinite(point)):
            raise InputError("start must be finite; got NaN or infinity in it.")
        system = _WeightSystem(loss, margins_of, layout, point)
        last = float(np.logaddexp(0.0, log_until - system.log_unit))
        times = recorded_log_times(record, log_until, system.log_time, last)
        states, times, status = _follow(system, point, times, tolerance, max_evaluations, report)
        tables = as_tables([system.record(state[1:], time) for state, time in zip(states, times, strict=True)])
        weights = layout.build(states[:, 1:])
    energies = states[:, 0]
    defects = np.abs(energies - tables["log_excess"]) / np.maximum(1.0, np.abs(energies - system.first_excess))
    return returned(
        WeightFlow(
            **tables,
            log_times=times,
            energy_defects=defects,
            evaluations=system.evaluations,
            steps=system.steps,
            status=balanced(status, defects, _BALANCE * tolerance),
            weights=weights,
        ),
        throw=throw,
    )


@compiled
def _margins(margins_of: Callable[[PyTree], Array], layout: TreeLayout, flat: Array) -> Array:
    return margins_of(layout.build(flat))


@compiled
def _pull(margins_of: Callable[[PyTree], Array], layout: TreeLayout, flat: Array, rates: Array) -> Array:
    return jax.vjp(lambda at: margins_of(layout.build(at)), flat)[1](rates)[0]


@compiled
def _push(margins_of: Callable[[PyTree], Array], layout: TreeLayout, flat: Array, motion: Array) -> Array:
    return jax.jvp(lambda at: margins_of(layout.build(at)), (flat,), (motion,))[1]


class _WeightSystem:
    """Right-hand side in tau: [dE/dtau, dweights/dtau], with E = ln(L - L*)."""

    def __init__(
        self,
        loss: MarginLoss,
        margins_of: Callable[[PyTree], Array],
        layout: TreeLayout,
        point: Float[np.ndarray, "N"],
    ) -> None:
        self.loss, self.evaluations, self.steps = loss, 0, 0
        self._function = margins_of, layout
        margins = self.margins(point)
        if margins.ndim != 2:
            raise InputError(f"margins_of must give margins of shape (n, m); got shape {margins.shape!r}.")
        log_rates, signs = loss.log_rates(margins)
        self.first_excess = loss.log_excess(margins)
        largest = float(np.max(log_rates))
        speed = np.linalg.norm(self.pulled(point, signs * np.exp(log_rates - largest)))
        if not speed > 0:
            raise InputError("start must have a gradient other than 0; got 0. Start from other weights.")
        size = float(np.linalg.norm(point))
        self.log_unit = -largest - float(np.log(speed)) + (float(np.log(size)) if size > 0 else 0.0)

    def log_time(self, tau: float) -> float:
        """Return the ln t at this tau."""
        return self.log_unit + tau + math.log(-math.expm1(-tau)) if tau > 0 else -math.inf

    def margins(self, point: np.ndarray) -> np.ndarray:
        """Return the margins as a NumPy array."""
        return np.asarray(_margins(*self._function, jnp.asarray(point)))

    def pulled(self, point: np.ndarray, rates: np.ndarray) -> np.ndarray:
        """Return the velocity of the weights under these rates."""
        return np.asarray(_pull(*self._function, jnp.asarray(point), jnp.asarray(rates)))

    def __call__(self, tau: float, y: np.ndarray) -> np.ndarray:
        self.evaluations += 1
        margins = self.margins(y[1:])
        log_rates, signs = self.loss.log_rates(margins)
        log_speed = self.log_unit + tau
        motion = self.pulled(y[1:], signs * np.exp(log_rates + log_speed))
        fall = float(motion @ motion) * np.exp(-log_speed - self.loss.log_excess(margins))
        return np.concatenate([[-fall], motion])

    def record(self, point: np.ndarray, log_time: float) -> Record:
        """Return the record of one state."""
        margins = self.margins(point)
        log_rates, signs = self.loss.log_rates(margins)
        motion = self.pulled(point, signs * np.exp(log_rates + log_time))
        return Record(
            margins=margins,
            log_rates=log_rates,
            rate_signs=signs,
            margin_speeds=np.asarray(_push(*self._function, jnp.asarray(point), jnp.asarray(motion))),
            log_excess=self.loss.log_excess(margins),
        )


def _follow(
    system: _WeightSystem,
    point: Float[np.ndarray, "N"],
    times: Float[np.ndarray, "k"],
    tolerance: float,
    max_evaluations: int,
    report: Report,
) -> tuple[Float[np.ndarray, "reached N1"], Float[np.ndarray, "reached"], Status]:
    """Return the states [E, weights] at the times, or until the run ended early, and these times."""
    recorded = np.logaddexp(0.0, times - system.log_unit)
    start, until = np.concatenate([[system.first_excess], point]), float(recorded[-1])
    size = float(np.sqrt(np.mean(point**2)))
    atol: Any = tolerance * np.concatenate([[1.0], np.full(len(point), size or 1.0)])
    solver = DOP853(system, 0.0, start, until, rtol=tolerance, atol=atol)
    states, status = [start] * int(np.sum(recorded <= 0)), REACHED
    while len(states) < len(recorded):
        if system.evaluations >= max_evaluations:
            cure = "Raise max_evaluations or tolerance, or lower log_until."
            status = exhausted(max_evaluations, system.log_time(solver.t), "ln t", cure)
            break
        message = solver.step()
        if solver.status == "failed":
            where = f"No step could be taken at ln t = {system.log_time(solver.t):.6g}"
            status = Status(False, f"{where}: {message}", "Raise tolerance, or lower log_until.")
            break
        system.steps += 1
        between = solver.dense_output()
        while len(states) < len(recorded) and recorded[len(states)] <= solver.t:
            states.append(between(recorded[len(states)]))
        report(solver.t / until, f"ln t = {system.log_time(solver.t):.4g}")
    if status.ok:
        return np.array(states), times, status
    return np.array([*states, solver.y]), np.append(times[: len(states)], system.log_time(solver.t)), status
