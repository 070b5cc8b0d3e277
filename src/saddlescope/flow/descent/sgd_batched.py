"""Many recorded descents in one call: seeds, starts, learning rates, or data sets of one small problem.

A step of a small network costs less than what surrounds it. Here all runs share one compiled loop over the steps of an
epoch, in which they are a leading axis of every array; an epoch's minibatches are made at its beginning, and what is
observed is gathered inside the loop, so that marks at every step cost no more than the observing itself.

Epoch e = 1, 2, ... of a run goes through the permutation `numpy.random.default_rng((seed, e)).permutation(samples)`, a
minibatch at a time; samples left over sit it out. (JAX's permutations, as in `sgd`, would take most of the
time.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree
from threadpoolctl import threadpool_limits

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.descent import checkpoint_file
from saddlescope.flow.descent.checkpointer import Checkpointer, RunState, all_marks
from saddlescope.flow.diagonal.trajectory import Status
from saddlescope.flow.losses.compiled import Loss, loss_and_gradient, require_numbers
from saddlescope.flow.losses.minibatches import Minibatches
from saddlescope.flow.losses.stability_limit import require_stable
from saddlescope.flow.losses.stacked import StackedRuns
from saddlescope.flow.status import silent

_KEEP = 20.0  # seconds between checkpoints
_STRETCH = 512  # steps between two reports where there are no epochs
_CACHE = 2**17  # bytes of weights that fit a core's cache with what a step computes from them


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BatchedRecording(ReprMixin):
    """What was seen of many runs.

    Attributes:
        steps: step numbers at which they were observed, ascending from 0, shape (k,).
        observed: what `observe` gave there, NumPy arrays with leading axes (runs, k); numbers are NaN from where a run
            diverged.
        weights: at the end of the runs, NumPy arrays with a leading axis (runs,).
        statuses: how each run ended.
    """

    steps: Int[np.ndarray, "k"]
    observed: PyTree
    weights: PyTree
    statuses: tuple[Status, ...]

    @property
    def failed(self) -> tuple[int, ...]:
        """The numbers of the runs that diverged."""
        return tuple(run for run, status in enumerate(self.statuses) if not status.ok)

    def __repr__(self) -> str:
        marks = f"{len(self.steps)} marks to step {self.steps[-1]}"
        return f"BatchedRecording({len(self.statuses)} runs, {marks}; {len(self.failed) or 'none'} diverged)"


@validate_arguments
def sgd_batched(
    loss: Loss | Sequence[Loss],
    weights: PyTree,
    *,
    steps: int,
    learning_rate: float | Sequence[float],
    batch: int | None = None,
    seeds: Sequence[int] | None = None,
    marks: Int[np.ndarray, "k"],
    observe: Callable[[PyTree], PyTree] | Sequence[Callable[[PyTree], PyTree]],
    checkpoint: Path | None = None,
    report: Callable[[float, str], None] | None = None,
) -> BatchedRecording:
    """Takes steps theta <- theta - learning_rate dL/dtheta in many runs at once, and observes them at marked steps.

    Runs do not depend on each other, and one that diverges spoils no other.

    Args:
        loss: from the weights of one run to a number of their type; one for all runs, or one for each: Equinox modules
            of one structure whose arrays have the same shapes.
        weights: where to start, arrays of one floating-point type with a leading axis (runs,).
        steps: number of steps, at least 0.
        learning_rate: positive; one for all runs, or one for each.
        batch: samples in a minibatch; None: each step sees all. The loss must be a `FiniteSumLoss`.
        seeds: of the minibatches, one for each run, at least 0; required with `batch`, and only there.
        marks: step numbers between 0 and `steps` at which to observe, besides these two.
        observe: from the weights of one run to arrays to keep; one for all runs, or one for each, as for `loss`. Large
            arrays belong in Equinox modules or in `jax.tree_util.Partial`.
        checkpoint: a file from which a killed call goes on, to the same result; written between epochs, every 20 s at
            most, and at the end, after which calling again returns at once. None: nothing is kept.
        report: called with the finished fraction and a note.

    Raises:
        InputError: an argument cannot be used; the learning rate is beyond what the loss, an `HasStabilityLimit`, can
            settle with at any of its minima; a loss is not finite at the start; or the checkpoint is damaged or of
            another call.
    """
    require_numbers("weights", weights)
    weights = jax.tree.map(jnp.asarray, weights)
    runs, kind = _runs(weights)
    marks = all_marks(marks, steps)
    losses, observers = StackedRuns.of("loss", loss, runs), StackedRuns.of("observe", observe, runs)
    rates = _rates(learning_rate, runs)
    plan = _plan(losses, runs, batch, seeds)
    _check_start(losses, weights, rates, kind)

    shapes = eqx.filter_eval_shape(_look, observers.one(0), jax.tree.map(lambda leaf: leaf[0], weights))
    records = [np.zeros((len(marks), runs, *leaf.shape), leaf.dtype) for leaf in jax.tree.leaves(shapes)]
    progress = RunState(step=0, seen=0, weights=weights, records=records)
    keeper = None
    if checkpoint is not None:
        leaves = jax.tree.leaves((weights, eqx.filter((losses, observers), eqx.is_array)))
        keeper = Checkpointer(checkpoint, checkpoint_file.fingerprint(*leaves, rates, marks, batch, plan.seeds))
        progress = keeper.resume(progress)
    with threadpool_limits(1, user_api="blas"):
        _run(losses, observers, jnp.asarray(rates, kind), plan, progress, marks, keeper, report or silent)
    if keeper is not None:
        keeper.write(progress)
    return _recordings(jax.tree.structure(shapes[1]), marks, progress)


@dataclass(frozen=True)
class _Plan:
    """In which order the runs see their samples; without minibatches, `seeds` is empty."""

    samples: int
    batch: int
    stretch: int
    seeds: tuple[int, ...] = ()

    def orders(self, epoch: int) -> Int[np.ndarray, "runs steps batch"] | None:
        """The samples of the minibatches of an epoch, counted from 0 here."""
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
    rates: Float[Array, "runs"],
    plan: _Plan,
    progress: RunState,
    marks: Int[np.ndarray, "k"],
    keeper: Checkpointer | None,
    report: Callable[[float, str], None],
) -> None:
    """Takes all steps that are left, an epoch at a time, and enters what is seen."""
    steps, stretch = int(marks[-1]), plan.stretch
    epochs = np.maximum(marks - 1, 0) // stretch  # that in which each mark is reached
    most = int(np.max(np.bincount(epochs)))
    while progress.seen < len(marks):
        first, stop = progress.step, min(progress.step + stretch, steps)
        here = marks[epochs == first // stretch] - first
        edges = np.zeros(most + 1, np.int32)
        edges[1 : len(here) + 1] = here
        orders = plan.orders(first // stretch)
        bounds = jnp.asarray(edges), jnp.asarray(len(here), jnp.int32), jnp.asarray(stop - first, jnp.int32)
        batches = None if orders is None else jnp.asarray(orders)
        progress.weights, seen = _epoch(losses, observers, rates, progress.weights, batches, *bounds)
        _enter(progress, [np.asarray(leaf)[:, : len(here)] for leaf in jax.tree.leaves(seen)])
        progress.step = stop
        report(stop / max(steps, 1), f"step {stop} of {steps}")
        if keeper is not None:
            keeper.write(progress, every=_KEEP)


def _enter(progress: RunState, seen: list[np.ndarray]) -> None:
    """Enters what all runs showed at the next marks, with leading axes (runs, marks)."""
    count = seen[0].shape[1]
    for record, values in zip(progress.records, seen, strict=True):
        record[progress.seen : progress.seen + count] = np.moveaxis(values, 1, 0)
    progress.seen += count


@eqx.filter_jit
def _epoch(
    losses: StackedRuns,
    observers: StackedRuns,
    rates: Float[Array, "runs"],
    weights: PyTree,
    orders: Int[Array, "runs steps batch"] | None,
    edges: Int[Array, "marks"],
    count: Int[Array, ""],
    stop: Int[Array, ""],
) -> tuple[PyTree, PyTree]:
    """The weights at the end of an epoch, and what is observed at edges[1], ..., edges[count] of its steps."""

    def one(given: PyTree) -> tuple[PyTree, PyTree]:
        loss, observe = losses.built(given[0]), observers.built(given[1])
        rate, weights, order = given[2:]
        batches = None if order is None else eqx.filter_vmap(loss.batch)(order)

        def step(place: Array, weights: PyTree) -> PyTree:
            here = loss if batches is None else _at(batches, place)
            _, gradient = loss_and_gradient(here, weights)
            return jax.tree.map(lambda leaf, slope: leaf - rate * slope, weights, gradient)

        def to_mark(mark: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            weights, seen = carry
            weights = jax.lax.fori_loop(edges[mark], edges[mark + 1], step, weights)
            found = _look(observe, weights)
            return weights, jax.tree.map(
                lambda kept, leaf: jax.lax.dynamic_update_index_in_dim(kept, leaf, mark, 0), seen, found
            )

        shapes = jax.eval_shape(lambda weights: _look(observe, weights), weights)
        seen = jax.tree.map(lambda leaf: jnp.zeros((len(edges) - 1, *leaf.shape), leaf.dtype), shapes)
        weights, seen = jax.lax.fori_loop(0, count, to_mark, (weights, seen))
        return jax.lax.fori_loop(edges[count], stop, step, weights), seen

    # As many runs side by side as the cache holds, the others after them.
    leaves, runs = jax.tree.leaves(weights), len(rates)
    groups = -(-sum(leaf.nbytes for leaf in leaves) // _CACHE)
    arrays = losses.arrays, observers.arrays, rates, weights, orders
    return jax.lax.map(one, arrays, batch_size=-(-runs // min(runs, groups)))


def _at(batches: Any, place: Array) -> Any:
    """One of an epoch's minibatches."""
    return jax.tree.map(
        lambda leaf: jax.lax.dynamic_index_in_dim(leaf, place, 0, keepdims=False) if eqx.is_array(leaf) else leaf,
        batches,
    )


def _look(observe: Callable[[PyTree], PyTree], weights: PyTree) -> tuple[Bool[Array, ""], PyTree]:
    """Whether the weights of a run are finite, and what is observed."""
    # Sums over an axis are finite where all terms are, and faster to come by than a look at each.
    sums = [leaf @ jnp.ones(leaf.shape[-1], leaf.dtype) if leaf.ndim else leaf for leaf in jax.tree.leaves(weights)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(one)) for one in sums])), observe(weights)


@eqx.filter_jit
def _values(losses: StackedRuns, weights: PyTree) -> Float[Array, "runs"]:
    """The loss of each run."""
    return jax.lax.map(lambda given: losses.built(given[0])(given[1]), (losses.arrays, weights), batch_size=16)


def _recordings(structure: Any, marks: Int[np.ndarray, "k"], progress: RunState) -> BatchedRecording:
    finite, *records = (np.moveaxis(record, 0, 1) for record in progress.records)
    alive = np.logical_and.accumulate(finite, axis=1)
    for record in records:
        if np.issubdtype(record.dtype, np.inexact):
            record[~alive] = np.nan
    statuses = []
    for run in alive:
        if run.all():
            statuses.append(Status(True, "All steps were taken."))
            continue
        at = int(np.argmin(run))
        between = f"steps {marks[max(at - 1, 0)]} and {marks[at]}"
        statuses.append(
            Status(False, f"A weight became infinite or NaN between {between}.", "Use a smaller learning rate.")
        )
    return BatchedRecording(
        steps=marks,
        observed=jax.tree.unflatten(structure, records),
        weights=jax.tree.map(np.asarray, progress.weights),
        statuses=tuple(statuses),
    )


def _runs(weights: PyTree) -> tuple[int, Any]:
    """How many runs there are, and the type of their weights."""
    leaves = jax.tree.leaves(weights)
    kinds = {leaf.dtype for leaf in leaves}
    if len(kinds) != 1 or not jnp.issubdtype(kind := kinds.pop(), jnp.floating):
        found = sorted({str(leaf.dtype) for leaf in leaves})
        raise InputError(f"weights must be arrays of one floating-point type; got {found!r}.")
    lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
    if len(lengths) != 1 or 0 in lengths:
        found = [leaf.shape for leaf in leaves]
        raise InputError(f"weights must have a leading axis of the same length, the runs; got shapes {found!r}.")
    return lengths.pop(), kind


def _rates(learning_rate: float | Sequence[float], runs: int) -> Float[np.ndarray, "runs"]:
    rates = np.asarray(learning_rate, float)
    if rates.shape not in ((), (runs,)) or not np.all((rates > 0) & (rates < np.inf)):
        raise InputError(
            f"learning_rate must be positive and finite, one or one for each of the {runs} runs; got {learning_rate!r}."
        )
    return np.broadcast_to(rates, (runs,)).copy()


def _plan(losses: StackedRuns, runs: int, batch: int | None, seeds: Sequence[int] | None) -> _Plan:
    if batch is None:
        if seeds is not None:
            raise InputError(f"seeds must not be given where every step sees all samples; got {seeds!r}. Give a batch.")
        return _Plan(0, 0, _STRETCH)
    if seeds is None or len(seeds) != runs:
        raise InputError(f"seeds must be given with a batch, one for each of the {runs} runs; got {seeds!r}.")
    for seed in seeds:
        Minibatches.of(losses.one(0), batch, seed)
    samples = losses.one(0).samples
    return _Plan(samples, int(batch), samples // batch, tuple(int(seed) for seed in seeds))


def _check_start(losses: StackedRuns, weights: PyTree, rates: Float[np.ndarray, "runs"], kind: Any) -> None:
    """Refuses what cannot be run.

    Raises:
        InputError: a loss is no finite number of the weights' type, or the learning rate is past its edge of stability.
    """
    first = jax.tree.map(lambda leaf: leaf[0], weights)
    shape = eqx.filter_eval_shape(losses.one(0), first)
    if getattr(shape, "shape", None) != () or shape.dtype != kind:
        raise InputError(
            f"loss must give one {kind!s} number, the type of the weights; got {shape!r}. Make its arrays in that type."
        )
    values = np.asarray(_values(losses, weights))
    if not np.all(np.isfinite(values)):
        run = int(np.argmin(np.isfinite(values)))
        raise InputError(f"loss must be finite at the start; got {float(values[run])!r} in run {run!r}.")
    for run, rate in enumerate(rates if losses.stacked else [np.max(rates)]):
        require_stable(losses.one(run), first, float(rate))
