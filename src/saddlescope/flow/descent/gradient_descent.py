"""Gradient descent in the weights themselves, on all samples or on minibatches: what gradient flow idealises."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, PyTree

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.flow.diagonal.coordinates import AbstractCoordinates, TreeLayout, WeightPairCoordinates
from saddlescope.flow.diagonal.initial_conditions import AbstractInit, checked_start
from saddlescope.flow.diagonal.trajectory import FlowError, LevelEvent, SampledPath, Status, Trajectory
from saddlescope.flow.losses.compiled import (
    CompiledLoss,
    Evaluations,
    Loss,
    loss_and_gradient,
    require_finite,
    require_float64,
)
from saddlescope.flow.losses.minibatches import Minibatches
from saddlescope.flow.losses.stability_limit import require_stable

_RECORDS = 1000


@validate_arguments
def gradient_descent(
    loss: Loss,
    start: AbstractInit,
    *,
    steps: int,
    learning_rate: float | None = None,
    optimiser: optax.GradientTransformation | None = None,
    batch: int | None = None,
    seed: int = 0,
    record: Int[np.ndarray, "k"] | None = None,
    level: float | None = None,
    throw: bool = True,
) -> Trajectory:
    """Takes steps theta <- theta - learning_rate dL/dtheta on all samples or on minibatches, or those of an optimiser.

    For a start at Products, theta is (u, v) in float64, as in the paper's own experiments. Where a coordinate of beta
    is of order 1, u^2 - v^2 = O(alpha^2) is lost to rounding below alpha = 1e-8: the coordinate then forgets what it
    must do after it has returned to 0. `Trajectory.conserved` reports the loss; `gradient_flow` does not suffer it.
    With a fixed learning rate eta, times are off by a relative error of order eta.

    Args:
        loss: as for `gradient_flow`.
        start: `DiagonalInit`, `ParameterInit`, or another trajectory's `end` (an optimiser's own state begins anew).
        steps: number of steps, at least 0.
        learning_rate: step size in plain time t, positive; time is then told as for `gradient_flow`. Give either this
            or an optimiser.
        optimiser: any optax optimiser; time is then told in steps.
        batch: samples in a minibatch, for stochastic gradient descent (SGD); None: each step sees all samples. An epoch
            is samples // batch steps, the minibatches of one random permutation in turn; where batch does not divide
            the number of samples, those left over sit out the epoch, others in each. The loss must be a
            `FiniteSumLoss`. Recorded losses are always those of all samples; `Trajectory.evaluations` counts
            the minibatches' gradients.
        seed: of the permutations, which depend on it and on the epoch's number alone. A run that goes on from another's
            `end` begins with epoch 0 again, so give it another seed.
        record: step numbers at which loss and values are kept, besides the first and the last; by default about
            1000 evenly spaced ones. Between them the trajectory is a straight line in the weights.
        level: where to look for crossings of |beta| (or of the parameters) between records; None: nowhere.
        throw: whether to raise when a loss or weight is no longer finite.

    Raises:
        InputError: an argument cannot be used; JAX is not in float64 mode; the loss is not finite at the start; it
            cannot be restricted to minibatches and `batch` is given; the learning rate is beyond what a loss that
            knows its edge of stability can settle with at any minimum; or the initial weights are too small for
            float64, with `gradient_flow` as the cure.
        FlowError: the weights or the loss became infinite or NaN and `throw` is true.
    """
    _check(steps=steps, learning_rate=learning_rate, record=record, level=level)
    if optimiser is None and learning_rate is None:
        raise InputError("learning_rate must be given where there is no optimiser; got None for both.")
    if optimiser is not None and learning_rate is not None:
        raise InputError(f"learning_rate must not be given besides an optimiser; got {learning_rate!r}.")
    minibatches = None if batch is None else Minibatches.of(loss, batch, seed)
    parameters, coordinates = checked_start(start).parameters(), start.descent_coordinates()
    layout = TreeLayout.of(parameters)
    require_float64(loss, start.argument(parameters))
    if learning_rate is not None and start.argument(parameters) is parameters:
        require_stable(loss, parameters, learning_rate)
    first = CompiledLoss(loss, coordinates.layout)
    require_finite(*first.value_and_gradient(coordinates.point(layout.flatten(parameters))))

    marks = np.arange(0, steps, max(1, steps // _RECORDS)) if record is None else np.asarray(record)
    marks = np.unique(np.concatenate([[0], marks, [steps]]))
    losses, states = map(
        np.asarray,
        _descend(
            loss,
            start.argument,
            jnp.asarray(learning_rate) if optimiser is None else optimiser,
            jax.tree.map(jnp.asarray, parameters),
            jnp.asarray(marks),
            minibatches,
        ),
    )
    losses = np.concatenate([[first.at(coordinates.point(layout.flatten(parameters))[None])[0]], losses])
    states = np.concatenate([layout.flatten(parameters)[None], states])
    finite = np.isfinite(losses) & np.all(np.isfinite(states), axis=1)
    kept = len(marks) if finite.all() else int(np.argmin(finite))
    status = Status(True, "All steps were taken.")
    if kept < len(marks):
        status = Status(
            False,
            f"The loss or a weight became infinite or NaN between steps {marks[kept - 1]} and {marks[kept]}.",
            "Use a smaller learning rate.",
        )
    marks, losses, states = marks[:kept], losses[:kept], states[:kept]
    times = marks.astype(float) if learning_rate is None else marks * (learning_rate / coordinates.rate)
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
        evaluations=Evaluations(gradients=steps + 1, values=len(marks)),
        status=status,
        end=start.at(layout.build(states[-1])),
        coordinates=coordinates,
        path=SampledPath(times, states),
    )
    if throw and not status.ok:
        raise FlowError(trajectory)
    return trajectory


@eqx.filter_jit
def _descend(
    loss: Loss,
    argument: Callable[[PyTree], PyTree],
    rule: Any,
    parameters: PyTree,
    marks: Int[Array, "k"],
    minibatches: Minibatches | None,
) -> tuple[Array, Array]:
    """The loss and the flat parameters after the numbers of steps marked, the first of which is 0."""
    # A learning rate travels as an array, since an optimiser is compiled anew each time it is made.
    optimiser = optax.sgd(rule) if isinstance(rule, jax.Array) else rule

    def step(number: Array, carry: PyTree) -> PyTree:
        now, memory, order = carry
        seen, order = (loss, None) if minibatches is None else minibatches.of_step(number, order)
        point, back = jax.vjp(argument, now)
        _, gradient = loss_and_gradient(seen, point)
        updates, memory = optimiser.update(back(gradient)[0], memory, now)
        return optax.apply_updates(now, updates), memory, order

    def block(carry: PyTree, span: tuple[Array, Array]) -> tuple[PyTree, tuple[Array, Array]]:
        carry = jax.lax.fori_loop(*span, step, carry)
        flat = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(carry[0])])
        return carry, (loss(argument(carry[0])), flat)

    order = None if minibatches is None else minibatches.no_epoch()
    return jax.lax.scan(block, (parameters, optimiser.init(parameters), order), (marks[:-1], marks[1:]))[1]


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


def _check(*, steps: int, learning_rate: float | None, record: np.ndarray | None, level: float | None) -> None:
    if steps < 0:
        raise InputError(f"steps must be at least 0; got {steps!r}.")
    if learning_rate is not None and not 0 < learning_rate < np.inf:
        raise InputError(f"learning_rate must be positive and finite; got {learning_rate!r}.")
    if level is not None and not 0 < level < np.inf:
        raise InputError(f"level must be positive and finite; got {level!r}.")
    if record is not None and not (np.ndim(record) == 1 and np.all((record >= 0) & (record <= steps))):
        raise InputError(f"record must be a vector of step numbers between 0 and steps={steps!r}; got {record!r}.")
