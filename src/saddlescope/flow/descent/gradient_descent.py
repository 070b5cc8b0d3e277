"""Gradient descent in the weights, on all samples or on minibatches."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, PyTree

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.compiled_functions import compiled
from saddlescope._shared.errors import InputError
from saddlescope._shared.float64 import in_float64
from saddlescope._shared.progress import Report, silent
from saddlescope.flow.descent.learning_rates import (
    AbstractLearningRate,
    ConstantRate,
    Schedule,
    ScheduledRate,
    as_learning_rate,
)
from saddlescope.flow.diagonal.coordinates import AbstractCoordinates, WeightPairCoordinates
from saddlescope.flow.diagonal.initial_conditions import AbstractInit, require_start
from saddlescope.flow.diagonal.trajectory import LevelEvent, SampledPath, Trajectory
from saddlescope.flow.status import ALL_STEPS, FlowError, not_finite_between
from saddlescope.loss.checks import require_finite, require_float64_loss
from saddlescope.loss.compiled import CompiledLoss, Evaluations, Loss, loss_and_gradient
from saddlescope.loss.minibatches import Minibatches
from saddlescope.loss.stability_limit import require_stable
from saddlescope.numerics.tree_layout import TreeLayout

_RECORDS = 1000
_REPORTS = 20  # calls of the compiled loop in a run that reports its progress


@in_float64
@validate_arguments
def gradient_descent(
    loss: Loss,
    start: AbstractInit,
    *,
    steps: int,
    learning_rate: float | Schedule | AbstractLearningRate | None = None,
    optimiser: optax.GradientTransformation | None = None,
    batch: int | None = None,
    seed: int = 0,
    record: Int[np.ndarray, "k"] | None = None,
    level: float | None = None,
    throw: bool = True,
    report: Report = silent,
) -> Trajectory:
    """Take steps theta <- theta - learning_rate dL/dtheta on all samples or on minibatches, or those of an optimiser.

    For `DiagonalInit`, theta is (u, v) in float64, as in the paper's own experiments. Where a coordinate of beta is of
    order 1, u^2 - v^2 = O(alpha^2) is lost to rounding below alpha = 1e-8: the coordinate then behaves wrongly after it
    has returned to 0. `Trajectory.conserved` reports this loss; `gradient_flow` does not suffer it. With a fixed
    learning rate eta, times have a relative error of order eta.

    Args:
        loss: as for `gradient_flow`.
        start: `DiagonalInit`, `ParameterInit`, or another trajectory's `end` (an optimiser's own state starts afresh).
        steps: number of steps, at least 0.
        learning_rate: step size in plain time t: a positive number; a schedule from the step, counted from 0, to the
            rate, such as those of Optax; or a rate that depends on the weights, such as `homogeneous_rate(10.0, 6)`.
            Time, the sum of the rates, is then in the unit of `gradient_flow`. Pass either this or an optimiser.
        optimiser: any Optax optimiser; time is then in steps.
        batch: samples in a minibatch, for stochastic gradient descent (SGD); None: each step sees all samples. An epoch
            is samples // batch steps, the minibatches of one random permutation in turn; where batch does not divide
            the number of samples, each epoch leaves out some, others in each. The loss must be a
            `FiniteSumLoss`. Recorded losses are always those of all samples; `Trajectory.evaluations` counts
            the gradients of minibatches.
        seed: of the permutations, which depend on it and on the epoch's number alone. A run that continues from
            another's `end` starts with epoch 0 again, so pass another seed.
        record: step numbers at which loss and values are recorded, besides the first and the last; by default about
            1000 evenly spaced ones. Between them the trajectory is linear in the weights.
        level: a level at which to find crossings of |beta| (or of the parameters) between records; None: find none.
        throw: True: raise if the loss or a weight diverges. False: return the run; check `Trajectory.status`.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used; the loss is not finite at the start; it
            cannot be restricted to minibatches and `batch` is given; the learning rate (of a schedule the last one) is
            beyond the stability limit of all minima of the loss, where it has one; or the initial weights are too small
            for float64: use `gradient_flow`.
        FlowError: the weights or the loss became infinite or NaN and `throw` is true; `FlowError.result` is the
            trajectory until then.
    """
    _check(steps=steps, learning_rate=learning_rate, record=record, level=level)
    if optimiser is None and learning_rate is None:
        raise InputError("learning_rate must be given where there is no optimiser; got None for both.")
    if optimiser is not None and learning_rate is not None:
        raise InputError(f"learning_rate must be None where there is an optimiser; got {learning_rate!r}.")
    minibatches = None if batch is None else Minibatches.of(loss, batch, seed)
    parameters, coordinates = require_start(start).parameters(), start.descent_coordinates()
    layout = TreeLayout.of(parameters)
    require_float64_loss(loss, start.argument(parameters))
    rule: Any = _rule(learning_rate) if optimiser is None else optimiser
    last: Any = rule.schedule(max(steps - 1, 0)) if isinstance(rule, ScheduledRate) else rule
    if isinstance(last, int | float | np.ndarray | jax.Array) and start.argument(parameters) is parameters:
        require_stable(loss, parameters, float(last))
    first = CompiledLoss(loss, coordinates.layout)
    require_finite(*first.value_and_gradient(coordinates.point(layout.flatten(parameters))))

    recorded = np.arange(0, steps, max(1, steps // _RECORDS)) if record is None else np.asarray(record)
    recorded = np.unique(np.concatenate([[0], recorded, [steps]]))
    initial = jax.tree.map(jnp.asarray, parameters)
    losses, states, elapsed = _descend_in_parts(loss, start.argument, rule, initial, recorded, minibatches, report)
    losses = np.concatenate([[first.at(coordinates.point(layout.flatten(parameters))[None])[0]], losses])
    states = np.concatenate([layout.flatten(parameters)[None], states])
    finite = np.isfinite(losses) & np.all(np.isfinite(states), axis=1)
    count = len(recorded) if finite.all() else int(np.argmin(finite))
    status = ALL_STEPS
    if count < len(recorded):
        status = not_finite_between(int(recorded[count - 1]), int(recorded[count]), "The loss or a weight")
    recorded, losses, states = recorded[:count], losses[:count], states[:count]
    if learning_rate is None:
        times = recorded.astype(float)
    elif isinstance(rule, AbstractLearningRate):
        times = np.concatenate([[0.0], elapsed])[:count] / coordinates.rate
    else:
        times = recorded * (float(rule) / coordinates.rate)
    values = coordinates.point(states)
    trajectory = Trajectory(
        times=times,
        time_unit="steps" if learning_rate is None else coordinates.time_unit,
        losses=losses,
        values=values,
        crossings=() if level is None else _crossings(times, values, level),
        level=level,
        conserved=_drift(coordinates, states),
        energy_error=None,
        accuracy=None,
        evaluations=Evaluations(gradients=steps + 1, values=len(recorded)),
        status=status,
        end=start.at(layout.build(states[-1])),
        coordinates=coordinates,
        path=SampledPath(times, states),
    )
    if throw and not status.ok:
        raise FlowError(trajectory)
    return trajectory


def _rule(learning_rate: Any) -> Any:
    """Return the learning rate of the compiled steps; a number as an array, so that it is compiled once for all."""
    rates = as_learning_rate(learning_rate)
    return jnp.asarray(rates.rate) if isinstance(rates, ConstantRate) else rates


class _RateState(eqx.Module):
    step: Array
    elapsed: Array  # sum of the rates


def _optimiser(rule: Any) -> Any:
    """Return the optimiser of a rule: a number as an array, a learning rate, or an optimiser."""
    if isinstance(rule, jax.Array):
        return optax.sgd(rule)
    if not isinstance(rule, AbstractLearningRate):
        return rule

    def init(params: Any) -> Any:
        return _RateState(jnp.zeros((), jnp.int32), jnp.zeros(()))

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        eta = rule.at(state.step, params)
        return jax.tree.map(lambda leaf: -eta * leaf, updates), _RateState(state.step + 1, state.elapsed + eta)

    return optax.GradientTransformation(init, update)


def _descend_in_parts(
    loss: Loss,
    argument: Callable[[PyTree], PyTree],
    rule: Any,
    parameters: PyTree,
    recorded: Int[np.ndarray, "k"],
    minibatches: Minibatches | None,
    report: Report,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the records after the first one: losses, flat parameters and sums of the rates."""
    carry = parameters, _optimiser(rule).init(parameters), None if minibatches is None else minibatches.no_epoch()
    spans = len(recorded) - 1
    size = spans if report is silent else max(1, -(-spans // _REPORTS))
    records = []
    for begin in range(0, max(spans, 1), max(size, 1)):
        part = recorded[begin : begin + size + 1]
        part = np.pad(part, (0, size + 1 - len(part)), mode="edge")  # one compiled shape for all parts
        carry, found = _descend(loss, argument, rule, jnp.asarray(part), minibatches, carry)
        records.append(jax.tree.map(np.asarray, found))
        if spans:
            report(part[-1] / recorded[-1], f"step {part[-1]} of {recorded[-1]}")
    losses, states, elapsed = (np.concatenate(parts)[:spans] for parts in zip(*records, strict=True))
    return losses, states, elapsed


@compiled
def _descend(
    loss: Loss,
    argument: Callable[[PyTree], PyTree],
    rule: Any,
    recorded: Int[Array, "k"],
    minibatches: Minibatches | None,
    carry: PyTree,
) -> tuple[PyTree, tuple[Array, Array, Array]]:
    """Return the state of the descent at the last of the steps recorded, and the records after the first one.

    The records are the loss, the flat parameters and the sum of the rates.
    """
    optimiser = _optimiser(rule)

    def step(number: Array, carry: PyTree) -> PyTree:
        now, memory, order = carry
        seen, order = (loss, None) if minibatches is None else minibatches.of_step(number, order)
        point, back = jax.vjp(argument, now)
        _, gradient = loss_and_gradient(seen, point)
        updates, memory = optimiser.update(back(gradient)[0], memory, now)
        return optax.apply_updates(now, updates), memory, order

    def block(carry: PyTree, span: tuple[Array, Array]) -> tuple[PyTree, tuple[Array, Array, Array]]:
        carry = jax.lax.fori_loop(*span, step, carry)
        flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(carry[0])])
        elapsed = carry[1].elapsed if isinstance(carry[1], _RateState) else jnp.zeros(())
        return carry, (loss(argument(carry[0])), flat, elapsed)

    return jax.lax.scan(block, carry, (recorded[:-1], recorded[1:]))


def _crossings(times: np.ndarray, values: np.ndarray, level: float) -> tuple[LevelEvent, ...]:
    found = []
    for sign in (1, -1):
        above = sign * values >= level
        for k, i in zip(*np.nonzero(above[1:] != above[:-1]), strict=True):
            share = (level - sign * values[k, i]) / (sign * (values[k + 1, i] - values[k, i]))
            time = times[k] + share * (times[k + 1] - times[k])
            found.append(LevelEvent(float(time), int(i), bool(above[k + 1, i]), sign))
    return tuple(sorted(found))


def _drift(coordinates: AbstractCoordinates, states: np.ndarray) -> float | None:
    if not isinstance(coordinates, WeightPairCoordinates):
        return None
    u, v = coordinates.parameters(states)
    invariant = (u - v) * (u + v)
    known = invariant[0] != 0
    return float(np.max(np.abs(invariant[:, known] / invariant[0, known] - 1), initial=0.0))


def _check(*, steps: int, learning_rate: Any, record: np.ndarray | None, level: float | None) -> None:
    if steps < 0:
        raise InputError(f"steps must be at least 0; got {steps!r}.")
    if learning_rate is not None:
        as_learning_rate(learning_rate)
    if level is not None and not 0 < level < np.inf:
        raise InputError(f"level must be positive and finite; got {level!r}.")
    if record is not None and not (np.ndim(record) == 1 and np.all((record >= 0) & (record <= steps))):
        raise InputError(f"record must be a vector of step numbers between 0 and steps={steps!r}; got {record!r}.")
