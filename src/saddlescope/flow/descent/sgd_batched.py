"""Many runs of (stochastic) gradient descent in one call: seeds, starts, learning rates, or data sets.

A step of a small network costs less than its overhead. Here all runs share one compiled loop over the steps of an
epoch, in which they are a leading axis of every array; an epoch's minibatches are drawn at its beginning, and
observations are collected inside the loop, so that records at every step cost no more than the observations.

Epoch e = 1, 2, ... of a run goes through the permutation `numpy.random.default_rng((seed, e)).permutation(samples)`, a
minibatch at a time, and leaves out the samples that fill none. (JAX's permutations, as in `sgd`, would take most of the
time.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree
from threadpoolctl import threadpool_limits

from saddlescope._shared.arguments import calling, validate_arguments
from saddlescope._shared.compiled_functions import eval_shape
from saddlescope._shared.device_arrays import on_device
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.descent import checkpoint_file, compiled_epoch
from saddlescope.flow.descent.checkpointer import Checkpointer, RunState
from saddlescope.flow.descent.learning_rates import (
    AbstractLearningRate,
    Schedule,
    ScheduledRate,
    as_learning_rate,
    schedule_values,
)
from saddlescope.flow.descent.recorded_steps import recorded_steps
from saddlescope.flow.status import ALL_STEPS, BatchedFlowError, Status, not_finite_between
from saddlescope.loss.checks import require_float_type, require_numbers, require_scalar, shapes_of
from saddlescope.loss.compiled import Loss
from saddlescope.loss.minibatches import require_minibatches
from saddlescope.loss.stability_limit import require_stable
from saddlescope.loss.stacked import StackedRuns

_CHECKPOINT_EVERY = 20.0  # seconds between checkpoints
_STRETCH = 512  # steps between two reports where there are no epochs


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
        seeds: of the minibatches, one for each run, at least 0; required with `batch`, and only there.
        record: step numbers to record besides 0 and `steps`; by default `geometric_steps(steps)`.
        checkpoint: a file from which a killed call resumes, to the same result; written between epochs, every 20 s at
            most, and at the end, after which calling again returns at once. None: write none.
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
    shared, rates = None, np.zeros(0)
    if callable(learning_rate) or isinstance(learning_rate, AbstractLearningRate):
        shared = as_learning_rate(learning_rate)
        if isinstance(shared, ScheduledRate):
            rates = np.array([float(shared.schedule(max(steps - 1, 0)))])  # the last one
    else:
        rates = _rates(learning_rate, runs)
    plan = _plan(losses, runs, batch, seeds)
    first = jax.tree.map(lambda leaf: on_device(leaf[0]), weights)
    _check_start(losses, first, np.resize(rates, runs) if rates.size else rates, kind)
    with calling(f"observe must accept the weights of one run, of {shapes_of(first)}", "Check the shapes."):
        shapes = eval_shape(observers.one(0), first)
    kinds = [((), np.dtype(bool)), *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(shapes))]
    records = [np.zeros((len(recorded), runs, *shape), kind) for shape, kind in kinds]
    progress = RunState(step=0, seen=0, weights=weights, records=records)
    checkpointer = None
    if checkpoint is not None:
        parts = [*jax.tree.leaves((weights, eqx.filter((losses, observers), eqx.is_array))), rates, recorded]
        parts += [batch, plan.seeds, *schedule_values(shared, steps)]
        if shared is not None and not isinstance(shared, ScheduledRate):
            parts.append(shared)
        checkpointer = Checkpointer(checkpoint, checkpoint_file.fingerprint(*parts))
        progress = checkpointer.resume(progress)
    with threadpool_limits(1, user_api="blas"):
        progress.weights = jax.tree.map(np.asarray, progress.weights)
        _run(losses, observers, rates if shared is None else shared, plan, progress, recorded, checkpointer, report)
    if checkpointer is not None:
        checkpointer.write(progress)
    recording = _recording(jax.tree.structure(shapes), recorded, progress)
    if throw and recording.failed:
        raise BatchedFlowError(recording)
    return recording


@dataclass(frozen=True)
class _Plan:
    """Order in which the runs see their samples; without minibatches, `seeds` is empty."""

    samples: int
    batch: int
    stretch: int
    seeds: tuple[int, ...] = ()

    def orders(self, epoch: int) -> Int[np.ndarray, "runs steps batch"] | None:
        """Return the samples of the minibatches of an epoch, counted from 0 here."""
        if not self.seeds:
            return None
        used = self.stretch * self.batch
        of_seed = {
            seed: np.random.default_rng((seed, epoch + 1)).permutation(self.samples)[:used].astype(np.int32)
            for seed in set(self.seeds)
        }
        return np.stack([of_seed[seed] for seed in self.seeds]).reshape(len(self.seeds), self.stretch, self.batch)


def _run(
    losses: StackedRuns,
    observers: StackedRuns,
    rates: Float[np.ndarray, "runs"] | AbstractLearningRate,
    plan: _Plan,
    progress: RunState,
    recorded: Int[np.ndarray, "k"],
    checkpointer: Checkpointer | None,
    report: Report,
) -> None:
    """Take all remaining steps, one epoch at a time, and enter the observations.

    Raises:
        InputError: a loss is not finite at the start.
    """
    kind = jax.tree.leaves(progress.weights)[0].dtype
    each = rates if isinstance(rates, AbstractLearningRate) else on_device(rates, kind)

    def epoch(bounds: list[Any], *, checked: bool = False) -> tuple[PyTree, PyTree, np.ndarray]:
        weights, orders = jax.tree.map(jax.device_put, (progress.weights, plan.orders(progress.step // plan.stretch)))
        edges, count, first = (on_device(bound, np.int32) for bound in bounds)
        made = compiled_epoch.epoch(losses, observers, each, weights, orders, edges, count, first, checked)
        return jax.tree.map(np.asarray, made)

    steps, stretch = int(recorded[-1]), plan.stretch
    epochs = np.maximum(recorded - 1, 0) // stretch  # of each record
    most = int(np.max(np.bincount(epochs)))
    finite = _finite(progress.weights)
    while progress.seen < len(recorded):
        first, stop = progress.step, min(progress.step + stretch, steps)
        here = recorded[epochs == first // stretch] - first
        edges = np.full(most + 2, stop - first)
        edges[0], edges[1 : len(here) + 1] = 0, here
        bounds = [edges, len(here), first]
        weights, seen, values = epoch(bounds)
        if first == 0:
            _require_finite(values)
        still = _finite(weights)
        marks = np.repeat(finite[None], len(here), axis=0)  # which runs are finite at the records
        if np.any(gone := finite & ~still):
            # A weight that is infinite or NaN remains so, so that only here the first record with one is looked for.
            marks[:, gone] = epoch(bounds, checked=True)[1][: len(here), gone]
            marks[here == stop - first] &= still
        seen = [marks, *(leaf[: len(here)] for leaf in jax.tree.leaves(seen))]
        for record, entries in zip(progress.records, seen, strict=True):
            record[progress.seen : progress.seen + len(here)] = entries
        progress.weights, finite = weights, still
        progress.seen += len(here)
        progress.step = stop
        report(stop / max(steps, 1), f"step {stop} of {steps}")
        if checkpointer is not None:
            checkpointer.write(progress, every=_CHECKPOINT_EVERY)


def _finite(weights: PyTree) -> Bool[np.ndarray, "runs"]:
    """Return True for each run with finite weights."""
    marks = [np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in jax.tree.leaves(weights)]
    return np.logical_and.reduce(marks)


def _require_finite(values: Float[np.ndarray, "runs"]) -> None:
    """Raise unless all losses are finite at the start.

    Raises:
        InputError: one is not.
    """
    if not np.all(np.isfinite(values)):
        run = int(np.argmin(np.isfinite(values)))
        raise InputError(f"loss must be finite at the start; got {float(values[run])!r} in run {run!r}.")


def _recording(structure: Any, recorded: Int[np.ndarray, "k"], progress: RunState) -> BatchedRecording:
    finite, *records = (np.moveaxis(record, 0, 1) for record in progress.records)
    alive = np.logical_and.accumulate(finite, axis=1)
    for record in records:
        if np.issubdtype(record.dtype, np.inexact):
            record[~alive] = np.nan
    statuses = []
    for run in alive:
        if run.all():
            statuses.append(ALL_STEPS)
            continue
        at = int(np.argmin(run))
        statuses.append(not_finite_between(int(recorded[max(at - 1, 0)]), int(recorded[at])))
    return BatchedRecording(
        steps=recorded,
        observed=jax.tree.unflatten(structure, records),
        weights=jax.tree.map(np.asarray, progress.weights),
        statuses=tuple(statuses),
    )


def _runs(weights: PyTree) -> tuple[int, Any]:
    """Return the number of runs, and the type of their weights."""
    leaves, kind = jax.tree.leaves(weights), require_float_type("weights", weights)
    lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
    if len(lengths) != 1 or 0 in lengths:
        found = [leaf.shape for leaf in leaves]
        raise InputError(f"weights must have a leading axis of the same length, the runs; got shapes {found!r}.")
    return lengths.pop(), kind


def _rates(learning_rate: Any, runs: int) -> Float[np.ndarray, "runs"]:
    rates = np.asarray(learning_rate, float)
    if rates.shape not in ((), (runs,)) or not np.all((rates > 0) & (rates < np.inf)):
        raise InputError(
            f"learning_rate must be positive and finite, one or one for each of the {runs} runs; got {learning_rate!r}."
        )
    return np.broadcast_to(rates, (runs,)).copy()


def _plan(losses: StackedRuns, runs: int, batch: int | None, seeds: Sequence[int] | None) -> _Plan:
    if batch is None:
        if seeds is not None:
            raise InputError(f"seeds must not be given where every step sees all samples; got {seeds!r}. Pass a batch.")
        return _Plan(0, 0, _STRETCH)
    if seeds is None or len(seeds) != runs:
        raise InputError(f"seeds must be given with a batch, one for each of the {runs} runs; got {seeds!r}.")
    loss = losses.one(0)
    for seed in seeds:
        require_minibatches(loss, batch, seed)
    samples = loss.samples
    return _Plan(samples, int(batch), samples // batch, tuple(int(seed) for seed in seeds))


def _check_start(losses: StackedRuns, first: PyTree, rates: Float[np.ndarray, "runs"], kind: Any) -> None:
    """Raise unless the losses can be minimised from weights like those of the first run.

    Raises:
        InputError: a loss is no number of the weights' type, or the learning rate is beyond its stability limit.
    """
    require_scalar("loss", losses.one(0), (first,), kind)
    if rates.size:
        for run, rate in enumerate(rates if losses.stacked else [np.max(rates)]):
            require_stable(losses.one(run), first, float(rate))
