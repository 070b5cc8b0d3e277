"""Gradient descent in the weights, on all samples or on minibatches."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from saddlescope._shared.arguments import validate_arguments
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
from saddlescope.flow.descent.loop import Descent, descend, prepare
from saddlescope.flow.descent.recorded_steps import recorded_steps
from saddlescope.flow.diagonal.coordinates import AbstractCoordinates, WeightPairCoordinates
from saddlescope.flow.diagonal.initial_conditions import AbstractInit, require_start
from saddlescope.flow.diagonal.trajectory import LevelEvent, SampledPath, Trajectory
from saddlescope.flow.status import FlowError, of_steps
from saddlescope.loss.abstract_loss import AbstractLoss
from saddlescope.loss.checks import require_finite, require_float64_loss
from saddlescope.loss.compiled import CompiledLoss, Evaluations, Loss, loss_and_gradient
from saddlescope.loss.minibatches import Minibatches
from saddlescope.loss.stability_limit import require_stable
from saddlescope.loss.stacked import StackedRuns
from saddlescope.numerics.tree_layout import TreeLayout

_RECORDS = 1000


@in_float64
@validate_arguments
def gradient_descent(
    loss: Loss,
    start: AbstractInit,
    *,
    steps: int,
    learning_rate: float | Schedule | AbstractLearningRate,
    batch: int | None = None,
    seed: int = 0,
    record: Int[np.ndarray, "k"] | None = None,
    level: float | None = None,
    throw: bool = True,
    report: Report = silent,
) -> Trajectory:
    """Take steps theta <- theta - learning_rate dL/dtheta on all samples or on minibatches.

    For `DiagonalInit`, theta is (u, v) in float64, as in the paper's own experiments. Where a coordinate of beta is of
    order 1, u^2 - v^2 = O(alpha^2) is lost to rounding below alpha = 1e-8: the coordinate then behaves wrongly after it
    has returned to 0. `Trajectory.conserved` reports this loss; `gradient_flow` does not suffer it. With a fixed
    learning rate eta, times have a relative error of order eta.

    Args:
        loss: as for `gradient_flow`.
        start: `DiagonalInit`, `ParameterInit`, or another trajectory's `end`.
        steps: number of steps, at least 0.
        learning_rate: step size in plain time t: a positive number; a schedule from the step, counted from 0, to the
            rate, such as those of Optax; or a rate that depends on the weights, such as `homogeneous_rate(10.0, 6)`.
            Time, the sum of the rates, is then in the unit of `gradient_flow`.
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
    rates = as_learning_rate(learning_rate)
    if level is not None and not 0 < level < np.inf:
        raise InputError(f"level must be positive and finite; got {level!r}.")
    recorded = recorded_steps(np.arange(0, steps, max(1, steps // _RECORDS)) if record is None else record, steps)
    minibatches = None if batch is None else Minibatches.of(loss, batch, (seed,), steps)
    parameters, coordinates = require_start(start).parameters(), start.flow_coordinates().of_descent()
    layout = TreeLayout.of(parameters)
    require_float64_loss(loss, coordinates.argument(parameters))
    if isinstance(rates, ConstantRate | ScheduledRate) and coordinates.argument(parameters) is parameters:
        require_stable(loss, parameters, float(rates.at(max(steps - 1, 0), parameters)))
    first = CompiledLoss(loss, coordinates.layout)
    require_finite(*first.value_and_gradient(coordinates.point(layout.flatten(parameters))))

    of_weights = _LossOfWeights(loss, coordinates.argument)
    parts = of_weights, rates, _LossAndWeights(of_weights)
    descent = Descent(*(StackedRuns.shared(each) for each in parts), many=False)
    progress = descend(descent, prepare(descent, parameters, recorded), recorded, minibatches, report)
    finite, elapsed, (values, states) = progress.observed()
    status, count = of_steps(recorded, finite & np.isfinite(values), "The loss or a weight")
    recorded, values, states = recorded[:count], values[:count], states[:count]
    times = elapsed[:count] / coordinates.rate
    if isinstance(rates, ConstantRate):
        times = recorded * (float(rates.rate) / coordinates.rate)
    points = coordinates.point(states)
    trajectory = Trajectory(
        times=times,
        time_unit=coordinates.time_unit,
        losses=values,
        values=points,
        crossings=() if level is None else _crossings(times, points, level),
        level=level,
        conserved=_drift(coordinates, states),
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


class _LossOfWeights(AbstractLoss):
    """A loss as a function of the weights from which its argument follows, restricted to samples if it can be."""

    loss: Loss
    argument: Callable[[PyTree], PyTree]

    def batch(self, indices: Int[Array, "b"]) -> "_LossOfWeights":
        """Return the loss on these samples only."""
        return _LossOfWeights(self.loss.batch(indices), self.argument)  # pyright: ignore[reportFunctionMemberAccess]

    def __call__(self, weights: PyTree) -> Array:
        """Return the loss."""
        return self.loss(self.argument(weights))

    def value_and_gradient(self, weights: PyTree) -> tuple[Array, PyTree]:
        """Return the loss and its gradient by the weights."""
        point, back = jax.vjp(self.argument, weights)
        value, gradient = loss_and_gradient(self.loss, point)
        return value, back(gradient)[0]


class _LossAndWeights(eqx.Module):
    """Observer of the loss and of the flat weights."""

    loss: _LossOfWeights

    def __call__(self, weights: PyTree) -> tuple[Float[Array, ""], Float[Array, "n"]]:
        return self.loss(weights), jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(weights)])


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
