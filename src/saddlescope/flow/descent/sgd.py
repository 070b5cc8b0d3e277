"""Long runs of (stochastic) gradient descent, compiled, of which little is kept: observables at marked steps.

    theta   <- theta - eta(theta) dL/dtheta, on all samples or on a minibatch; eta is asked anew at every step

Everything stays on JAX's device and in the type of the weights, float32 or float64. One compiled loop with open bounds
serves all stretches between marks, so neither what is recorded nor where a run was interrupted changes its steps.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree
from threadpoolctl import threadpool_limits

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.descent import checkpoint_file
from saddlescope.flow.descent.checkpointer import Checkpointer, RunState, all_marks
from saddlescope.flow.diagonal.trajectory import Status
from saddlescope.flow.losses.compiled import Loss, loss_and_gradient, require_numbers
from saddlescope.flow.losses.minibatches import Minibatches
from saddlescope.flow.status import silent

_STRETCH = 2.0  # seconds that one call of the compiled loop should take: how soon progress is told
_KEEP = 20.0  # seconds between checkpoints
_FIRST = 256  # steps of the first stretch, before it is known how long one takes


@validate_arguments
def homogeneous_rate(rate: float, degree: int) -> Callable[[PyTree], Array]:
    """The learning rate rate |theta|^(2 - degree), under which descent does not see the scale of small weights.

    Near the origin of a loss that is homogeneous of that degree, the gradient of c theta is c^(degree - 1) that of
    theta: the step scales with theta. It is the paper's time s in steps of `rate`. Section 2.1 and appendix B of
    Bantzis, Simon and Jacot (2025), which takes 10 / |theta|^4 at depth 6.

    Args:
        rate: learning rate where |theta| = 1, positive.
        degree: of homogeneity, the depth of a network without biases.

    Raises:
        InputError: a rate that is not positive and finite, or a degree below 2.
    """
    if not 0 < rate < float("inf"):
        raise InputError(f"rate must be positive and finite; got {rate!r}.")
    if degree < 2:
        raise InputError(f"degree must be at least 2; got {degree!r}.")
    return _HomogeneousRate(rate, degree)


class _HomogeneousRate(eqx.Module):
    rate: float
    degree: int

    def __call__(self, weights: PyTree) -> Float[Array, ""]:
        square = sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(weights))
        return self.rate * jnp.asarray(square) ** ((2 - self.degree) / 2)


@validate_arguments
def geometric_marks(steps: int, *, per_doubling: int = 8, every: int | None = None) -> Int[np.ndarray, "k"]:
    """Step numbers from 0 to `steps`, evenly spaced in their logarithm, so that no stage is too early to be seen.

    Args:
        steps: the last one, at least 0.
        per_doubling: marks from n to 2n, where there are so many integers.
        every: marks at least so dense, evenly; None: only the geometric ones, which thin out towards the end.

    Raises:
        InputError: an argument is out of its range.
    """
    for name, value, least in (("steps", steps, 0), ("per_doubling", per_doubling, 1), ("every", every, 1)):
        if value is not None and value < least:
            raise InputError(f"{name} must be at least {least}; got {value!r}.")
    geometric = 2.0 ** (np.arange(per_doubling * int(np.ceil(np.log2(max(steps, 1)))) + 1) / per_doubling)
    even = np.zeros(0) if every is None else np.arange(0, steps, every)
    marks = np.unique(np.concatenate([[0], np.round(geometric), even, [steps]]).astype(np.int64))
    return marks[marks <= steps]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Recording(ReprMixin):
    """What was seen of a run.

    Attributes:
        steps: step numbers at which it was observed, ascending from 0, shape (k,).
        observed: what `observe` gave there, NumPy arrays with a leading axis of length k.
        weights: at the end of the run, NumPy arrays.
        status: how the run ended.
    """

    steps: Int[np.ndarray, "k"]
    observed: PyTree
    weights: PyTree
    status: Status

    def __repr__(self) -> str:
        return f"Recording({len(self.steps)} marks to step {self.steps[-1]}; {self.status})"


@validate_arguments
def sgd(
    loss: Loss,
    weights: PyTree,
    *,
    steps: int,
    learning_rate: Callable[[PyTree], Array],
    batch: int | None = None,
    seed: int = 0,
    marks: Int[np.ndarray, "k"],
    observe: Callable[[PyTree], PyTree],
    checkpoint: Path | None = None,
    report: Callable[[float, str], None] | None = None,
) -> Recording:
    """Takes steps theta <- theta - learning_rate(theta) dL/dtheta, and observes the weights at marked steps.

    Functions given here are compiled. Large arrays belong in Equinox modules (as `LayeredLoss`) or in
    `jax.tree_util.Partial`, whose arrays travel as arguments; those of a closure would be compiled in.

    Args:
        loss: from the weights to a number of their type.
        weights: where to start, arrays of one floating-point type, which is that of the run.
        steps: number of steps, at least 0.
        learning_rate: from the weights before a step to its learning rate, such as `homogeneous_rate(10.0, 6)`.
        batch: samples in a minibatch; None: each step sees all. The loss must be a `FiniteSumLoss`, and its permutations
            are those of `gradient_descent` for this seed.
        seed: of the permutations.
        marks: step numbers between 0 and `steps` at which to observe, besides these two; see `geometric_marks`.
        observe: from the weights to arrays to keep, such as the loss of all samples and singular values.
        checkpoint: a file from which a killed run goes on, to the same result; written every 20 s, and at the end,
            after which calling again returns at once. None: nothing is kept.
        report: called with the finished fraction and a note.

    Returns:
        The observations; where the weights diverged, those until then, and a `status` that says so.

    Raises:
        InputError: an argument cannot be used, or the checkpoint is damaged or of another run.
    """
    require_numbers("weights", weights)
    weights = jax.tree.map(jnp.asarray, weights)
    marks = all_marks(marks, steps)
    source = loss if batch is None else Minibatches.of(loss, batch, seed)
    rate = _check_start(loss, weights, learning_rate)
    shapes, structure = jax.tree.flatten(jax.eval_shape(observe, weights))
    records = [np.zeros((len(marks), *shape.shape), shape.dtype) for shape in shapes]
    progress = RunState(step=0, seen=0, weights=weights, records=records)
    keeper = None
    if checkpoint is not None:
        leaves = jax.tree.leaves((weights, eqx.filter(loss, eqx.is_array)))
        keeper = Checkpointer(checkpoint, checkpoint_file.fingerprint(*leaves, marks, batch, seed, f"{rate:.4e}"))
        progress = keeper.resume(progress)
    # Decompositions of small matrices on several threads of BLAS take up to 300 times as long on a busy machine.
    with threadpool_limits(1, user_api="blas"):
        status = _run(source, learning_rate, observe, progress, marks, keeper, report or silent)
    if keeper is not None:
        keeper.write(progress)
    return Recording(
        steps=marks[: progress.seen],
        observed=jax.tree.unflatten(structure, [record[: progress.seen] for record in progress.records]),
        weights=jax.tree.map(np.asarray, progress.weights),
        status=status,
    )


def _run(
    source: Loss | Minibatches,
    learning_rate: Callable[[PyTree], Array],
    observe: Callable[[PyTree], PyTree],
    progress: RunState,
    marks: Int[np.ndarray, "k"],
    keeper: Checkpointer | None,
    report: Callable[[float, str], None],
) -> Status:
    """Takes all steps that are left, and enters what is seen."""
    steps, stretch = int(marks[-1]), _FIRST
    while progress.seen < len(marks):
        mark = int(marks[progress.seen])
        if progress.step < mark:
            stop, before = min(mark, progress.step + stretch), time.perf_counter()
            bounds = jnp.asarray(progress.step, jnp.int32), jnp.asarray(stop, jnp.int32)
            progress.weights = jax.block_until_ready(_advance(source, learning_rate, progress.weights, *bounds))
            stretch = max(1, int(_STRETCH * (stop - progress.step) / (time.perf_counter() - before)))
            progress.step = stop
        if progress.step == mark:
            finite, *seen = _look(observe, progress.weights)
            if not finite:
                last = marks[progress.seen - 1] if progress.seen else 0
                return Status(
                    False,
                    f"A weight became infinite or NaN between steps {last} and {mark}.",
                    "Use a smaller learning rate.",
                )
            for record, value in zip(progress.records, seen, strict=True):
                record[progress.seen] = value
            progress.seen += 1
        report(progress.step / max(steps, 1), f"step {progress.step} of {steps}")
        if keeper is not None:
            keeper.write(progress, every=_KEEP)
    return Status(True, "All steps were taken.")


@eqx.filter_jit
def _advance(
    source: Loss | Minibatches,
    learning_rate: Callable[[PyTree], Array],
    weights: PyTree,
    start: Int[Array, ""],
    stop: Int[Array, ""],
) -> PyTree:
    """The weights after the steps from `start` until before `stop`."""

    def descend(loss: Loss, weights: PyTree) -> PyTree:
        rate = learning_rate(weights)
        _, gradient = loss_and_gradient(loss, weights)
        return jax.tree.map(lambda leaf, slope: leaf - rate * slope, weights, gradient)

    if not isinstance(source, Minibatches):
        return jax.lax.fori_loop(start, stop, lambda _, weights: descend(source, weights), weights)

    # A loop over epochs around one over their steps, so that no step has to ask whether a permutation is due.
    def epoch(number: Array, weights: PyTree) -> PyTree:
        order, first = source.order(number), number * source.per_epoch
        steps = jnp.maximum(start - first, 0), jnp.minimum(stop - first, source.per_epoch)
        return jax.lax.fori_loop(*steps, lambda place, now: descend(source.at(place, order), now), weights)

    return jax.lax.fori_loop(start // source.per_epoch, -(-stop // source.per_epoch), epoch, weights)


@eqx.filter_jit
def _look(observe: Callable[[PyTree], PyTree], weights: PyTree) -> list[Array]:
    """Whether the weights are finite, and the leaves of what is observed."""
    finite = jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(weights)]).all()
    return [finite, *jax.tree.leaves(observe(weights))]


def _check_start(loss: Loss, weights: PyTree, learning_rate: Callable[[PyTree], Array]) -> float:
    """The learning rate at the start.

    Raises:
        InputError: the weights are of no one floating-point type, or loss or learning rate are no finite number of it.
    """
    kinds = {leaf.dtype for leaf in jax.tree.leaves(weights)}
    if len(kinds) != 1 or not jnp.issubdtype(kind := kinds.pop(), jnp.floating):
        found = sorted({str(leaf.dtype) for leaf in jax.tree.leaves(weights)})
        raise InputError(f"weights must be arrays of one floating-point type; got {found!r}.")
    values = []
    for name, function in (("loss", loss), ("learning_rate", learning_rate)):
        shape = eqx.filter_eval_shape(function, weights)
        if getattr(shape, "shape", None) != () or shape.dtype != kind:
            raise InputError(
                f"{name} must give one {kind!s} number, the type of the weights; got {shape!r}. Make its arrays in "
                "that type."
            )
        values.append(float(eqx.filter_jit(function)(weights)))
        if not np.isfinite(values[-1]):
            raise InputError(
                f"{name} must be finite at the start; got {values[-1]!r}. Look for NaN in the data, or for weights too "
                f"small or too large for {kind!s}."
            )
    return values[-1]
