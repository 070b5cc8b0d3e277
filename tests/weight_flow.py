"""Gradient flow of a loss of margins in any weights, by automatic differentiation and an explicit method.

    weights     any pytree of arrays, with margins u(weights) given as a function in JAX
    flow        d weights / dt = sum_il r_il du_il/dweights, r = -dL/du from the loss, in logarithms
    time        tau = ln(1 + t / ts), in which the rates are e^(ln r + ln dt/dtau)

The slow and general reference of `saddlescope.flow.diagonal_margin_flow` and the like. It shares only the loss with
them: no integrals phi, no reduction, no Jacobian, no implicit method. DOP853 is the solver, SciPy's, so that steps stay
below about 1 / ln t in tau: t = 1e300 takes some ten thousand evaluations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy.integrate import DOP853

from saddlescope.flow.margin.systems import MarginLoss
from saddlescope.numerics.tree_layout import TreeLayout


@dataclass(frozen=True, eq=False)
class WeightFlow:
    """Weights, a pytree with the time as first axis, and what `saddlescope.flow.MarginFlow` records, by its names."""

    weights: PyTree[Float[np.ndarray, "..."]]
    margins: Float[np.ndarray, "k n m"]
    margin_speeds: Float[np.ndarray, "k n m"]
    log_excess: Float[np.ndarray, "k"]
    energy_defects: Float[np.ndarray, "k"]

    @property
    def margin(self) -> Float[np.ndarray, "k"]:
        """The smallest margin."""
        return self.margins.min(axis=(1, 2))


class CutShortError(RuntimeError):
    """The evaluations were used up at `log_time`."""

    def __init__(self, log_time: float) -> None:
        super().__init__(f"ln t = {log_time}")
        self.log_time = log_time


def weight_flow(
    loss: MarginLoss,
    margins_of: Callable[[PyTree], Array],
    start: PyTree,
    *,
    record: Sequence[float],
    tolerance: float,
    max_evaluations: int = 200_000,
) -> WeightFlow:
    """Follow gradient flow of L(margins_of(weights)) in the weights.

    Args:
        loss: of the margins.
        margins_of: JAX function from the weights to the margins (n, m).
        start: the weights at time 0.
        record: ln t to record, ascending.
        tolerance: relative error of a step.
        max_evaluations: of the right-hand side.

    Raises:
        CutShortError: these are used up.
    """
    layout = TreeLayout.of(start)
    point = np.asarray(layout.flatten(start), float)
    of_flat = lambda flat: margins_of(layout.build(flat))  # noqa: E731
    margins_at = jax.jit(of_flat)
    pull = jax.jit(lambda flat, rates: jax.vjp(of_flat, flat)[1](rates)[0])
    push = jax.jit(lambda flat, motion: jax.jvp(of_flat, (flat,), (motion,))[1])

    def motion_at(flat: np.ndarray, log_speed: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the margins, and the velocity of the weights in the time with dt = e^log_speed."""
        margins = np.asarray(margins_at(flat))
        log_rates, signs = loss.log_rates(margins)
        return margins, np.asarray(pull(flat, signs * np.exp(log_rates + log_speed)))

    def slope(tau: float, y: np.ndarray) -> np.ndarray:
        margins, motion = motion_at(y[1:], log_unit + tau)
        fall = float(motion @ motion) * np.exp(-log_unit - tau - loss.log_excess(margins))
        return np.concatenate([[-fall], motion])

    first = np.asarray(margins_at(point))
    largest = float(np.max(loss.log_rates(first)[0]))
    size, speed = np.linalg.norm(point), np.linalg.norm(motion_at(point, -largest)[1])
    log_unit = -largest - float(np.log(speed)) + (float(np.log(size)) if size > 0 else 0.0)
    times = np.logaddexp(0.0, np.asarray(record, float) - log_unit)
    begin = np.concatenate([[loss.log_excess(first)], point])
    scale = float(np.sqrt(np.mean(point**2))) or 1.0
    atol = tolerance * np.concatenate([[1.0], np.full(len(point), scale)])
    solver = DOP853(slope, 0.0, begin, float(times[-1]), rtol=tolerance, atol=atol)  # pyright: ignore[reportArgumentType]
    states = [begin] * int(np.sum(times <= 0))
    while len(states) < len(times):
        if solver.nfev >= max_evaluations:
            raise CutShortError(log_unit + solver.t + float(np.log(-np.expm1(-solver.t))))
        message = solver.step()
        assert solver.status != "failed", message
        between = solver.dense_output()
        while len(states) < len(times) and times[len(states)] <= solver.t:
            states.append(between(times[len(states)]))
    energies, flat = np.array(states)[:, 0], np.array(states)[:, 1:]
    motions = [motion_at(each, log_time) for each, log_time in zip(flat, record, strict=True)]
    excess = np.array([loss.log_excess(margins) for margins, _ in motions])
    return WeightFlow(
        weights=layout.build(flat),
        margins=np.array([margins for margins, _ in motions]),
        margin_speeds=np.array([push(each, motion) for each, (_, motion) in zip(flat, motions, strict=True)]),
        log_excess=excess,
        energy_defects=np.abs(energies - excess) / np.maximum(1.0, np.abs(energies - begin[0])),
    )
