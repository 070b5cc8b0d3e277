"""Many runs of (stochastic) gradient descent in one call: seeds, starts, learning rates, or data sets.

A step of a small network costs less than its overhead. Here all runs share one compiled loop over the steps, in which
they are a leading axis of every array; minibatches are drawn for some epochs at a time, and observations are collected
inside the loop, so that records at every step cost no more than the observations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from saddlescope._shared.arguments import calling, validate_arguments
from saddlescope._shared.device_arrays import on_device
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.descent.checkpoint import Checkpoint, RunState
from saddlescope.flow.descent.learning_rates import (
    AbstractLearningRate,
    ConstantRate,
    Schedule,
    ScheduledRate,
    as_learning_rate,
    schedule_values,
)
from saddlescope.flow.descent.loop import Descent, descend, prepare
from saddlescope.flow.descent.recorded_steps import recorded_steps
from saddlescope.flow.status import BatchedFlowError, Status, of_steps
from saddlescope.loss.checks import require_float_type, require_numbers, require_scalar, shapes_of
from saddlescope.loss.compiled import Loss
from saddlescope.loss.minibatches import Minibatches
from saddlescope.loss.stability_limit import require_stable
from saddlescope.loss.stacked import StackedRuns


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BatchedRecording(ReprMixin):
    """Records of many runs.

    Attributes:
        steps: step numbers of the records, ascending from 0, shape (k,).
        observed: values of `observe` there, NumPy arrays with leading axes (runs, k); NaN after a run diverged.
        weights: at the end of the runs, NumPy arrays with a leading axis (runs,).
        statuses: termination status of each run.
    """

    steps: Int[np.ndarray, "k"]
    observed: PyTree
    weights: PyTree
    statuses: tuple[Status, ...]

    @property
    def failed(self) -> tuple[int, ...]:
        """Numbers of the runs that diverged."""
        return tuple(run for run, status in enumerate(self.statuses) if not status.ok)

    def __repr__(self) -> str:
        records = f"{len(self.steps)} records to step {self.steps[-1]}"
        return f"BatchedRecording({len(self.statuses)} runs, {records}; {len(self.failed) or 'none'} diverged)"


@validate_arguments
def sgd_batched(
    loss: Loss | Sequence[Loss],
    weights: PyTree,
    *,
    steps: int,
    learning_rate: float | Sequence[float] | Schedule | AbstractLearningRate,
    observe: Callable[[PyTree], PyTree] | Sequence[Callable[[PyTree], PyTree]],
    batch: int | None = None,
    seeds: Sequence[int] | None = None,
    record: Int[np.ndarray, "k"] | None = None,
    checkpoint: Path | None = None,
    throw: bool = True,
    report: Report = silent,
) -> BatchedRecording:
    """Take steps theta <- theta - learning_rate dL/dtheta in many runs at once, and observe them at some steps.

    Runs are independent; one that diverges does not affect the others.

    Args:
        loss: from the weights of one run to a number of their type; one for all runs, or one for each: Equinox modules
            of one structure whose arrays have the same shapes.
        weights: initial weights, arrays of one floating-point type with a leading axis (runs,).
        steps: number of steps, at least 0.
        learning_rate: a positive number for all runs, or one for each; a schedule from the step, counted from 0, to the
            rate; or a rate that depends on the weights, such as `homogeneous_rate(10.0, 6)`.
        observe: from the weights of one run to the arrays to record; one for all runs, or one for each, as for `loss`.
            Put large arrays in Equinox modules or in `jax.tree_util.Partial`.
        batch: samples in a minibatch; None: each step sees all. The loss must be a `FiniteSumLoss`.
        seeds: of the minibatches, one for each run, at least 0; required with `batch`, and only there. Epoch e = 1, 2,
            ... of a run is `numpy.random.default_rng((seed, e)).permutation(samples)`, not the permutation of `sgd`.
        record: step numbers to record besides 0 and `steps`; by default `geometric_steps(steps)`.
        checkpoint: a file from which a killed call resumes, to the same result; written every 20 s, and at the end,
            after which calling again returns at once. None: write none.
        throw: True: raise if a run diverges. False: return all; check `BatchedRecording.statuses`.
        report: called from time to time with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used; the learning rate (of a schedule the last one) is beyond the stability
            limit of all minima of the loss, where it has one; a loss is not finite at the start; or the checkpoint is
            damaged or of another call.
        BatchedFlowError: a run diverged and `throw` is true; its `result` is the recording.
    """
    require_numbers("weights", weights)
    weights = jax.tree.map(lambda leaf: np.asarray(on_device(leaf)), weights)
    runs, kind = _runs(weights)
    recorded = recorded_steps(record, steps)
    losses, observers = StackedRuns.of("loss", loss, runs), StackedRuns.of("observe", observe, runs)
    rule, fastest = _rates(learning_rate, runs, steps, kind)
    descent = Descent(losses, rule, observers, many=True)
    minibatches = _minibatches(losses.one(0), runs, batch, seeds, steps)
    first = jax.tree.map(lambda leaf: on_device(leaf[0]), weights)
    require_scalar("loss", losses.one(0), (first,), kind)
    for run, rate in enumerate(fastest if losses.stacked else [np.max(fastest)]):
        require_stable(losses.one(run), first, float(rate))
    with calling(f"observe must accept the weights of one run, of {shapes_of(first)}", "Check the shapes."):
        progress = prepare(descent, weights, recorded)
    saved = None
    if checkpoint is not None:
        parts = [*jax.tree.leaves((weights, eqx.filter((losses, observers), eqx.is_array))), recorded, minibatches]
        shared = rule.value
        parts += schedule_values(shared, steps) if isinstance(shared, ScheduledRate) else [shared]
        saved = Checkpoint.of(checkpoint, *parts)
    recording = _recording(recorded, descend(descent, progress, recorded, minibatches, report, saved))
    if throw and recording.failed:
        raise BatchedFlowError(recording)
    return recording


def _recording(recorded: Int[np.ndarray, "k"], progress: RunState) -> BatchedRecording:
    finite, _, observed = progress.observed(axis=1)
    alive = np.logical_and.accumulate(finite, axis=1)
    for record in jax.tree.leaves(observed):
        if np.issubdtype(record.dtype, np.inexact):
            record[~alive] = np.nan
        else:
            record[:, progress.seen :] = record[:, progress.seen - 1, None]
    return BatchedRecording(
        steps=recorded,
        observed=observed,
        weights=jax.tree.map(np.asarray, progress.place.weights),
        statuses=tuple(of_steps(recorded, run)[0] for run in alive),
    )


def _runs(weights: PyTree) -> tuple[int, Any]:
    """Return the number of runs, and the type of their weights."""
    leaves, kind = jax.tree.leaves(weights), require_float_type("weights", weights)
    lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
    if len(lengths) != 1 or 0 in lengths:
        found = [leaf.shape for leaf in leaves]
        raise InputError(f"weights must have a leading axis of the same length, the runs; got shapes {found!r}.")
    return lengths.pop(), kind


def _rates(learning_rate: Any, runs: int, steps: int, kind: Any) -> tuple[StackedRuns, Float[np.ndarray, "runs"]]:
    """Return the learning rates, and their numbers, of a schedule the last one; 0 where they depend on the weights."""
    if callable(learning_rate) or isinstance(learning_rate, AbstractLearningRate):
        rule = as_learning_rate(learning_rate)
        last = float(rule.schedule(max(steps - 1, 0))) if isinstance(rule, ScheduledRate) else 0.0
        return StackedRuns.shared(rule), np.full(runs, last)
    rates = np.asarray(learning_rate, float)
    if rates.shape not in ((), (runs,)) or not np.all((rates > 0) & (rates < np.inf)):
        raise InputError(
            f"learning_rate must be positive and finite, one or one for each of the {runs} runs; got {learning_rate!r}."
        )
    rates = np.broadcast_to(rates, (runs,))
    return StackedRuns(ConstantRate(on_device(rates, kind)), True), rates


def _minibatches(
    loss: Any, runs: int, batch: int | None, seeds: Sequence[int] | None, steps: int
) -> Minibatches | None:
    if batch is None:
        if seeds is not None:
            raise InputError(f"seeds must not be given where every step sees all samples; got {seeds!r}. Pass a batch.")
        return None
    if seeds is None or len(seeds) != runs:
        raise InputError(f"seeds must be given with a batch, one for each of the {runs} runs; got {seeds!r}.")
    return Minibatches.of(loss, batch, tuple(seeds), steps, many=True)
