"""Gradient flow of a loss of margins in any weights at all, by automatic differentiation and an explicit method.

    weights     any pytree of arrays, with margins u(weights) given as a function in JAX
    flow        d weights / dt = sum_il r_il du_il/dweights, r = -dL/du from the loss, in logarithms
    time        tau = ln(1 + t / ts), in which the rates are folded: e^(ln r + ln dt/dtau)

The slow and general sibling of `saddlescope.flow.diagonal_margin_flow` and the like. It shares the loss with them and
nothing else: no integrals phi, no reduction, no Jacobian, no implicit method. DOP853 is the solver (Hairer, Norsett and
Wanner), so that steps stay below about 1 / ln t in tau: t = 1e300 takes some ten thousand evaluations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree
from numpy.typing import ArrayLike
from scipy.integrate import DOP853

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.flow.diagonal.trajectory import Status
from saddlescope.flow.losses.compiled import require_numbers
from saddlescope.flow.margin.records import MarginFlow, Record, as_tables, balanced, checked_log_times, trusted
from saddlescope.flow.margin.systems import MarginLoss
from saddlescope.flow.status import REACHED, silent

_LATEST = 1e4  # ln t: an explicit method has no business beyond
_BALANCE = 1e4  # times rtol: an energy defect beyond it breaks a run


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WeightFlow(MarginFlow):
    """A flow in weights of any kind.

    Attributes:
        weights: at the recorded times, which are the first axis of every leaf.
    """

    weights: PyTree[Float[np.ndarray, "..."]]


@validate_arguments
def weight_flow(
    loss: MarginLoss,
    margins_of: Callable[[PyTree], Array],
    start: PyTree,
    log_times: ArrayLike,
    *,
    rtol: float = 1e-11,
    max_evaluations: int = 200_000,
    report: Callable[[float, str], None] = silent,
) -> WeightFlow:
    """Gradient flow of L(margins_of(weights)) in the weights.

    Args:
        loss: of the margins.
        margins_of: from the weights to the margins (n, m), in JAX.
        start: the weights at time 0.
        log_times: ln t to record at, ascending, up to 1e4; -inf is the start itself, (k,).
        rtol: relative error of a step; 1e-13 to 1e-4.
        max_evaluations: of the right-hand side.
        report: called now and then with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used, or the start is one that never moves.
        MarginFlowError: the run did not reach its last time, or its energy is out of balance.
    """
    if not 1e-13 <= rtol <= 1e-4:
        raise InputError(f"rtol must be between 1e-13 and 1e-4; got {rtol!r}.")
    if max_evaluations < 1:
        raise InputError(f"max_evaluations must be at least 1; got {max_evaluations!r}.")
    times = checked_log_times(log_times, _LATEST)
    with jax.enable_x64(True):
        require_numbers("start", start)
        point, shaped = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float), start))
        if not np.all(np.isfinite(point)):
            raise InputError("start must be finite; got NaN or infinity in it.")
        system = _WeightSystem(loss, lambda flat: margins_of(shaped(flat)), np.asarray(point))
        states, times, status = _follow(system, np.asarray(point), times, rtol, max_evaluations, report)
        tables = as_tables([system.record(state[1:], time) for state, time in zip(states, times, strict=True)])
        weights = jax.tree.map(np.asarray, jax.vmap(shaped)(jnp.asarray(states[:, 1:])))
    energies = states[:, 0]
    defects = np.abs(energies - tables["log_excess"]) / np.maximum(1.0, np.abs(energies - system.first_excess))
    return trusted(
        WeightFlow(
            **tables,
            log_times=times,
            energy_defects=defects,
            evaluations=system.evaluations,
            steps=system.steps,
            status=balanced(status, defects, _BALANCE * rtol),
            weights=weights,
        )
    )


class _WeightSystem:
    """The right-hand side in tau: [dE/dtau, dweights/dtau], with E = ln(L - L*) carried along."""

    def __init__(
        self, loss: MarginLoss, margins_of: Callable[[jax.Array], Array], point: Float[np.ndarray, "N"]
    ) -> None:
        self.loss, self.evaluations, self.steps = loss, 0, 0
        self._margins = jax.jit(margins_of)
        self._pull = jax.jit(lambda flat, rates: jax.vjp(margins_of, flat)[1](rates)[0])
        self._push = jax.jit(lambda flat, motion: jax.jvp(margins_of, (flat,), (motion,))[1])
        margins = self.margins(point)
        if margins.ndim != 2:
            raise InputError(f"margins_of must give margins of shape (n, m); got shape {margins.shape!r}.")
        log_rates, signs = loss.log_rates(margins)
        self.first_excess = loss.log_excess(margins)
        largest = float(np.max(log_rates))
        speed = np.linalg.norm(self.pulled(point, signs * np.exp(log_rates - largest)))
        if not speed > 0:
            raise InputError("start must be one that moves; got one at which the gradient is 0. Start from another.")
        size = float(np.linalg.norm(point))
        self.log_unit = -largest - float(np.log(speed)) + (float(np.log(size)) if size > 0 else 0.0)

    def log_time(self, tau: float) -> float:
        """The ln t at this tau."""
        return self.log_unit + tau + math.log(-math.expm1(-tau)) if tau > 0 else -math.inf

    def margins(self, point: np.ndarray) -> np.ndarray:
        """The margins as NumPy has them."""
        return np.asarray(self._margins(jnp.asarray(point)))

    def pulled(self, point: np.ndarray, rates: np.ndarray) -> np.ndarray:
        """The motion of the weights under these rates."""
        return np.asarray(self._pull(jnp.asarray(point), jnp.asarray(rates)))

    def __call__(self, tau: float, y: np.ndarray) -> np.ndarray:
        self.evaluations += 1
        margins = self.margins(y[1:])
        log_rates, signs = self.loss.log_rates(margins)
        log_speed = self.log_unit + tau
        motion = self.pulled(y[1:], signs * np.exp(log_rates + log_speed))
        fall = float(motion @ motion) * np.exp(-log_speed - self.loss.log_excess(margins))
        return np.concatenate([[-fall], motion])

    def record(self, point: np.ndarray, log_time: float) -> Record:
        """What all flows record of one state."""
        margins = self.margins(point)
        log_rates, signs = self.loss.log_rates(margins)
        motion = self.pulled(point, signs * np.exp(log_rates + log_time))
        return Record(
            margins=margins,
            log_rates=log_rates,
            rate_signs=signs,
            margin_speeds=np.asarray(self._push(jnp.asarray(point), jnp.asarray(motion))),
            log_excess=self.loss.log_excess(margins),
        )


def _follow(
    system: _WeightSystem,
    point: Float[np.ndarray, "N"],
    times: Float[np.ndarray, "k"],
    rtol: float,
    max_evaluations: int,
    report: Callable[[float, str], None],
) -> tuple[Float[np.ndarray, "reached N1"], Float[np.ndarray, "reached"], Status]:
    """The states [E, weights] at the times, or as far as the run came, and these times."""
    marks = np.logaddexp(0.0, times - system.log_unit)
    start, until = np.concatenate([[system.first_excess], point]), float(marks[-1])
    size = float(np.sqrt(np.mean(point**2)))
    atol: Any = rtol * np.concatenate([[1.0], np.full(len(point), size or 1.0)])
    solver = DOP853(system, 0.0, start, until, rtol=rtol, atol=atol)
    states, status = [start] * int(np.sum(marks <= 0)), REACHED
    while len(states) < len(marks):
        if system.evaluations >= max_evaluations:
            status = Status(
                False,
                f"max_evaluations={max_evaluations} were used up at ln t = {system.log_time(solver.t):.6g}.",
                "Raise max_evaluations or rtol, or ask for earlier times.",
            )
            break
        message = solver.step()
        if solver.status == "failed":
            where = f"No step could be taken at ln t = {system.log_time(solver.t):.6g}"
            status = Status(False, f"{where}: {message}", "Raise rtol, or ask for earlier times.")
            break
        system.steps += 1
        between = solver.dense_output()
        while len(states) < len(marks) and marks[len(states)] <= solver.t:
            states.append(between(marks[len(states)]))
        report(solver.t / until, f"ln t = {system.log_time(solver.t):.4g}")
    if status.ok:
        return np.array(states), times, status
    return np.array([*states, solver.y]), np.append(times[: len(states)], system.log_time(solver.t)), status
