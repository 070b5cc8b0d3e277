"""The loop of all descents: compiled stretches of steps with records inside them, of one run or of many at once.

Many runs are a leading axis of every array; one run has no such axis. Compilation takes longer than many runs, so the
program is small: the step is compiled once, and the loops are outside the map over runs. Neither the records nor the
lengths of the stretches, nor an interruption, changes the steps.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree
from threadpoolctl import threadpool_limits

from saddlescope._shared.compiled_functions import compiled_in_place, eval_shape, quickly_compiled
from saddlescope._shared.device_arrays import on_device
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.flow.descent.checkpoint import Checkpoint, RunState
from saddlescope.loss.compiled import loss_and_gradient
from saddlescope.loss.minibatches import Minibatches
from saddlescope.loss.stacked import StackedRuns

_STRETCH = 2.0  # seconds that a stretch should take: the time between two reports
_NUMBERS = 1_000_000  # recorded in a stretch, at most, where a record has fewer
_CHECKPOINT_EVERY = 20.0  # seconds between checkpoints


class Place(NamedTuple):
    """Where runs are: their weights, and the sum of the learning rates so far."""

    weights: PyTree
    elapsed: Float[Any, "*runs"]


class Descent(eqx.Module):
    """Gradient descent of all runs: their losses, learning rates and observers.

    Attributes:
        losses: of the runs.
        rates: learning rates.
        observers: functions of the weights to the arrays to record.
        many: True where the runs are a leading axis.
    """

    losses: StackedRuns
    rates: StackedRuns
    observers: StackedRuns
    many: bool = eqx.field(static=True)

    def over_runs(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of one run as one of all."""
        return jax.vmap(function) if self.many else function

    def begin(self, weights: PyTree) -> Place:
        """Return the beginning, at these weights."""
        weights = jax.tree.map(on_device, weights)
        shape = jax.tree.leaves(weights)[0].shape[:1] if self.many else ()
        return Place(weights, on_device(np.zeros(shape)))

    def step(self, number: Array, place: Place, order: Int[Array, "*runs batch"] | None) -> Place:
        """Take a step of all runs, on all samples or on minibatches."""

        def one(of_loss: Any, of_rate: Any, order: Any, place: Place) -> Place:
            loss, weights = self.losses.built(of_loss), place.weights
            _, gradient = loss_and_gradient(loss if order is None else loss.batch(order), weights)
            eta = self.rates.built(of_rate).at(number, weights)
            moved = jax.tree.map(lambda leaf, slope: leaf - eta * slope, weights, gradient)
            return Place(moved, place.elapsed + jnp.asarray(eta, place.elapsed.dtype))

        return self.over_runs(one)(self.losses.arrays, self.rates.arrays, order, place)

    def record(self, place: Place) -> tuple[Bool[Array, "*runs"], Float[Array, "*runs"], PyTree]:
        """Return True for runs with finite weights, the sums of the learning rates, and the observations."""

        def one(arrays: Any, place: Place) -> tuple[Array, Array, PyTree]:
            finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(place.weights)]).all()
            return finite, place.elapsed, jax.tree.map(jnp.asarray, self.observers.built(arrays)(place.weights))

        return self.over_runs(one)(self.observers.arrays, place)

    def values(self, place: Place) -> Float[Array, "*runs"]:
        """Return the losses."""
        return self.over_runs(lambda arrays, place: self.losses.built(arrays)(place.weights))(self.losses.arrays, place)


def prepare(descent: Descent, weights: PyTree, recorded: Int[np.ndarray, "k"]) -> RunState:
    """Return the state before the first step, with empty records."""
    place = descent.begin(weights)
    shapes, structure = jax.tree.flatten(eval_shape(descent.record, place))
    records = [np.zeros((len(recorded), *shape.shape), shape.dtype) for shape in shapes]
    return RunState(step=0, seen=0, place=place, records=records, structure=structure)


def descend(
    descent: Descent,
    progress: RunState,
    recorded: Int[np.ndarray, "k"],
    minibatches: Minibatches | None,
    report: Report,
    checkpoint: Checkpoint | None = None,
) -> RunState:
    """Take all steps that a checkpoint leaves, a stretch at a time; end where the weights of no run are finite.

    Returns:
        The state at the end, with the records.

    Raises:
        InputError: a loss is not finite at the start, or the checkpoint cannot be used or written.
    """
    if checkpoint is not None:
        progress = checkpoint.resume(progress)
    steps = int(recorded[-1])
    length = count = 1  # steps and records of a stretch; their times are not known yet
    numbers = sum(record[0].size for record in progress.records)
    room = min(2 ** (len(recorded) - 1).bit_length(), max(1, _NUMBERS // numbers))  # few lengths: each is compiled
    stretch, block, orders, origin = _stretch_of_many if descent.many else _stretch_of_one, -1, None, 0
    # Decompositions of small matrices on several threads of BLAS take up to 300 times as long on a busy machine.
    with threadpool_limits(1, user_api="blas"):
        while progress.seen < len(recorded) and not (progress.seen and _none_is_finite(progress)):
            first, here = progress.step, recorded[progress.seen : progress.seen + count]
            stop = min(first + length, steps)
            if minibatches is not None:
                if first // minibatches.per_block != block:
                    block = first // minibatches.per_block
                    orders, origin = jax.device_put(minibatches.block(block)), block * minibatches.per_block
                stop = min(stop, origin + minibatches.per_block)
            if len(here) == count:  # others may follow before the end of the stretch
                stop = min(stop, int(here[-1]))
            here = here[here <= stop]
            edges = np.full(room + 2, stop)
            edges[0], edges[1 : len(here) + 1] = first, here
            bounds = (on_device(each, np.int32) for each in (edges, len(here), origin))
            begun = time.perf_counter()
            place, seen, values = jax.block_until_ready(stretch(descent, progress.place, orders, *bounds))
            faster = _STRETCH / (time.perf_counter() - begun)
            if stop > first:
                length = max(1, int(faster * (stop - first)))
            if len(here):
                count = min(room, max(1, int(faster * len(here))))
            if first == 0:
                _require_finite(np.asarray(values))
            seen = [np.asarray(leaf)[: len(here)] for leaf in jax.tree.leaves(seen)]
            for record, entries in zip(progress.records, seen, strict=True):
                record[progress.seen : progress.seen + len(here)] = entries
            progress.place, progress.step, progress.seen = place, stop, progress.seen + len(here)
            report(stop / max(steps, 1), f"step {stop} of {steps}")
            if checkpoint is not None:
                checkpoint.keep(progress, every=_CHECKPOINT_EVERY)
    if checkpoint is not None:
        checkpoint.keep(progress)
    return progress


def _none_is_finite(progress: RunState) -> bool:
    """Return True if no run had finite weights at its last record."""
    return not np.any(progress.records[0][progress.seen - 1])


def _require_finite(values: Float[np.ndarray, "*runs"]) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        run = f" in run {int(bad[0])!r}" if values.ndim else ""
        raise InputError(
            f"loss must be finite at the start; got {float(values.flat[bad[0]])!r}{run}. Look for NaN in the data, or "
            f"for weights too small or too large for {values.dtype!s}."
        )


def _stretch(
    descent: Descent,
    place: Place,
    orders: Int[Array, "*runs steps batch"] | None,
    edges: Int[Array, "segments"],
    count: Int[Array, ""],
    origin: Int[Array, ""],
) -> tuple[Place, PyTree, Float[Array, "*runs"]]:
    """Take the steps of a stretch, and record at edges[1], ..., edges[count] of them.

    Args:
        descent: what the runs do.
        place: at the beginning.
        orders: samples of the minibatches from the step `origin` on; None: each step sees all.
        edges: the first step, the steps to record at, and the last; equal or ascending.
        count: number of records; edges[count + 1] ends the stretch.
        origin: number of steps before those of `orders`.

    Returns:
        The place at the end; the records, with a leading axis of which the first `count` are filled; and the losses at
        the beginning if no steps were taken before, else 0.
    """

    def step(number: Array, place: Place) -> Place:
        axis = 1 if descent.many else 0
        return descent.step(number, place, None if orders is None else _item(orders, number - origin, axis))

    shapes = jax.eval_shape(lambda at: descent.record(at), place)

    def to_record(record: Array, carry: tuple[Place, PyTree]) -> tuple[Place, PyTree]:
        place, seen = carry
        start, stop = (_item(edges, record + k) for k in range(2))
        place = jax.lax.fori_loop(start, stop, step, place)
        found = jax.lax.cond(record < count, lambda at: descent.record(at), lambda _: _zeros(shapes), place)
        return place, jax.tree.map(
            lambda values, leaf: jax.lax.dynamic_update_index_in_dim(
                values, leaf, record, 0, allow_negative_indices=False
            ),
            seen,
            found,
        )

    like = jax.eval_shape(lambda at: descent.values(at), place)
    values = jax.lax.cond(edges[0] == 0, lambda at: descent.values(at), lambda _: _zeros(like), place)
    seen = jax.tree.map(lambda shape: jnp.zeros((len(edges) - 1, *shape.shape), shape.dtype), shapes)
    return *jax.lax.fori_loop(0, count + 1, to_record, (place, seen)), values


_stretch_of_one, _stretch_of_many = compiled_in_place(_stretch), quickly_compiled(_stretch)


def _item(values: Array, place: Array, axis: int = 0) -> Array:
    """Return the entry at a place that is in range."""
    return jax.lax.dynamic_index_in_dim(values, place, axis, keepdims=False, allow_negative_indices=False)


def _zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
