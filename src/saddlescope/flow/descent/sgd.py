"""Long compiled runs of (stochastic) gradient descent that record only observables at some steps.

    theta   <- theta - eta(step, theta) dL/dtheta, on all samples or on a minibatch

Everything stays on JAX's device and in the type of the weights, float32 or float64. One compiled loop with open bounds
serves all stretches between records, so neither the records nor an interruption changes the steps of a run.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree
from threadpoolctl import threadpool_limits

from saddlescope._shared.arguments import calling, validate_arguments
from saddlescope._shared.compiled_functions import compiled, compiled_in_place
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.descent import checkpoint_file
from saddlescope.flow.descent.checkpointer import Checkpointer, RunState
from saddlescope.flow.descent.learning_rates import AbstractLearningRate, Schedule, as_learning_rate, schedule_values
from saddlescope.flow.descent.recorded_steps import recorded_steps
from saddlescope.flow.status import ALL_STEPS, FlowError, Status, not_finite_between
from saddlescope.loss.checks import require_float_type, require_numbers, require_scalar, shapes_of
from saddlescope.loss.compiled import Loss, loss_and_gradient
from saddlescope.loss.minibatches import Minibatches

_STRETCH = 2.0  # seconds that one call of the compiled loop should take: the time between two reports
_CHECKPOINT_EVERY = 20.0  # seconds between checkpoints
_FIRST = 256  # steps of the first stretch, before the time of a step is known


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Recording(ReprMixin):
    """Records of a run.

    Attributes:
        steps: step numbers of the records, ascending from 0, shape (k,).
        observed: values of `observe` there, NumPy arrays with a leading axis of length k.
        weights: at the end of the run, NumPy arrays.
        status: termination status.
    """

    steps: Int[np.ndarray, "k"]
    observed: PyTree
    weights: PyTree
    status: Status

    def __repr__(self) -> str:
        return f"Recording({len(self.steps)} records to step {self.steps[-1]}; {self.status})"


@validate_arguments
def sgd(
    loss: Loss,
    weights: PyTree,
    *,
    steps: int,
    learning_rate: float | Schedule | AbstractLearningRate,
    observe: Callable[[PyTree], PyTree],
    batch: int | None = None,
    seed: int = 0,
    record: Int[np.ndarray, "k"] | None = None,
    checkpoint: Path | None = None,
    throw: bool = True,
    report: Report = silent,
) -> Recording:
    """Take steps theta <- theta - learning_rate dL/dtheta, and observe the weights at some of them.

    Functions given here are compiled. Put large arrays in Equinox modules (such as `LayeredLoss`) or in
    `jax.tree_util.Partial`, whose arrays are arguments of the compiled code; those of a closure become constants in it.

    Args:
        loss: from the weights to a number of their type.
        weights: initial weights, arrays of one floating-point type, which is that of the run.
        steps: number of steps, at least 0.
        learning_rate: a positive number; a schedule from the step, counted from 0, to the rate, such as those of Optax;
            or a rate that depends on the weights, such as `homogeneous_rate(10.0, 6)`.
        observe: from the weights to the arrays to record, such as the loss of all samples and singular values.
        batch: samples in a minibatch; None: each step sees all. The loss must be a `FiniteSumLoss`; the permutations
            are those of `gradient_descent` for this seed.
        seed: of the permutations.
        record: step numbers to record besides 0 and `steps`; by default `geometric_steps(steps)`.
        checkpoint: a file from which a killed run resumes, to the same result; written every 20 s, and at the end,
            after which calling again returns at once. None: write none.
        throw: True: raise if the weights diverge. False: return the records until then; check `Recording.status`.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used, or the checkpoint is damaged or of another run.
        FlowError: the weights became infinite or NaN and `throw` is true; `FlowError.result` is the recording.
    """
    require_numbers("weights", weights)
    weights = jax.tree.map(jnp.asarray, weights)
    recorded, rates = recorded_steps(record, steps), as_learning_rate(learning_rate)
    source = loss if batch is None else Minibatches.of(loss, batch, seed)
    rate = _check_start(loss, weights, rates)
    with calling(f"observe must accept weights of {shapes_of(weights)}", "Check the shapes."):
        shapes, structure = jax.tree.flatten(jax.eval_shape(observe, weights))
    records = [np.zeros((len(recorded), *shape.shape), shape.dtype) for shape in shapes]
    progress = RunState(step=0, seen=0, weights=weights, records=records)
    checkpointer = None
    if checkpoint is not None:
        parts = [*jax.tree.leaves((weights, eqx.filter(loss, eqx.is_array))), recorded, batch, seed, f"{rate:.4e}"]
        parts += schedule_values(rates, steps)
        checkpointer = Checkpointer(checkpoint, checkpoint_file.fingerprint(*parts))
        progress = checkpointer.resume(progress)
    # Decompositions of small matrices on several threads of BLAS take up to 300 times as long on a busy machine.
    with threadpool_limits(1, user_api="blas"):
        status = _run(source, rates, observe, progress, recorded, checkpointer, report)
    if checkpointer is not None:
        checkpointer.write(progress)
    recording = Recording(
        steps=recorded[: progress.seen],
        observed=jax.tree.unflatten(structure, [record[: progress.seen] for record in progress.records]),
        weights=jax.tree.map(np.asarray, progress.weights),
        status=status,
    )
    if throw and not status.ok:
        raise FlowError(recording)
    return recording


def _run(
    source: Loss | Minibatches,
    rates: AbstractLearningRate,
    observe: Callable[[PyTree], PyTree],
    progress: RunState,
    recorded: Int[np.ndarray, "k"],
    checkpointer: Checkpointer | None,
    report: Report,
) -> Status:
    """Take all remaining steps, and enter the observations."""
    steps, stretch = int(recorded[-1]), _FIRST
    while progress.seen < len(recorded):
        due = int(recorded[progress.seen])
        if progress.step < due:
            stop, before = min(due, progress.step + stretch), time.perf_counter()
            bounds = jnp.asarray(progress.step, jnp.int32), jnp.asarray(stop, jnp.int32)
            progress.weights = jax.block_until_ready(_advance(source, rates, progress.weights, *bounds))
            stretch = max(1, int(_STRETCH * (stop - progress.step) / (time.perf_counter() - before)))
            progress.step = stop
        if progress.step == due:
            finite, *seen = _observed(observe, progress.weights)
            if not finite:
                return not_finite_between(int(recorded[progress.seen - 1]) if progress.seen else 0, due)
            for record, value in zip(progress.records, seen, strict=True):
                record[progress.seen] = value
            progress.seen += 1
        report(progress.step / max(steps, 1), f"step {progress.step} of {steps}")
        if checkpointer is not None:
            checkpointer.write(progress, every=_CHECKPOINT_EVERY)
    return ALL_STEPS


@compiled_in_place
def _advance(
    source: Loss | Minibatches,
    rates: AbstractLearningRate,
    weights: PyTree,
    start: Int[Array, ""],
    stop: Int[Array, ""],
) -> PyTree:
    """Return the weights after the steps from `start` until before `stop`."""

    def descend(loss: Loss, step: Array, weights: PyTree) -> PyTree:
        rate = rates.at(step, weights)
        _, gradient = loss_and_gradient(loss, weights)
        return jax.tree.map(lambda leaf, slope: leaf - rate * slope, weights, gradient)

    if not isinstance(source, Minibatches):
        return jax.lax.fori_loop(start, stop, lambda step, weights: descend(source, step, weights), weights)

    # A loop over epochs around one over their steps, so that no step needs to check if a permutation is due.
    def epoch(number: Array, weights: PyTree) -> PyTree:
        order, first = source.order(number), number * source.per_epoch
        steps = jnp.maximum(start - first, 0), jnp.minimum(stop - first, source.per_epoch)
        return jax.lax.fori_loop(
            *steps, lambda place, now: descend(source.at(place, order), first + place, now), weights
        )

    return jax.lax.fori_loop(start // source.per_epoch, -(-stop // source.per_epoch), epoch, weights)


@compiled
def _observed(observe: Callable[[PyTree], PyTree], weights: PyTree) -> list[Array]:
    """Return True if the weights are finite, and the leaves of the observations."""
    finite = jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(weights)]).all()
    return [finite, *jax.tree.leaves(observe(weights))]


@compiled
def _called(function: Callable[..., Any], *arguments: Any) -> Array:
    return function(*arguments)


def _check_start(loss: Loss, weights: PyTree, rates: AbstractLearningRate) -> float:
    """Return the learning rate at the start.

    Raises:
        InputError: the weights have no common floating-point type, or loss or rate is no finite number of it.
    """
    kind, value = require_float_type("weights", weights), 0.0
    calls: list[tuple[str, Callable[..., Any], tuple[Any, ...]]]
    calls = [("loss", loss, (weights,)), ("learning_rate", rates.at, (0, weights))]
    for name, function, arguments in calls:
        require_scalar(name, function, arguments, kind)
        value = float(_called(function, *arguments))
        if not np.isfinite(value):
            raise InputError(
                f"{name} must be finite at the start; got {value!r}. Look for NaN in the data, or for weights too "
                f"small or too large for {kind!s}."
            )
    return value
