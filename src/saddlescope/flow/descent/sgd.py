"""Long compiled runs of (stochastic) gradient descent that record only observables at some steps.

    theta   <- theta - eta(step, theta) dL/dtheta, on all samples or on a minibatch

Everything stays on JAX's device and in the type of the weights, float32 or float64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PyTree

from saddlescope._shared.arguments import calling, validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.flow.descent.checkpoint import Checkpoint
from saddlescope.flow.descent.learning_rates import AbstractLearningRate, Schedule, as_learning_rate, schedule_values
from saddlescope.flow.descent.loop import Descent, descend, prepare
from saddlescope.flow.descent.recorded_steps import recorded_steps
from saddlescope.flow.status import FlowError, Status, of_steps
from saddlescope.loss.checks import require_float_type, require_numbers, require_scalar, shapes_of
from saddlescope.loss.compiled import Loss
from saddlescope.loss.minibatches import Minibatches
from saddlescope.loss.stacked import StackedRuns


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
    minibatches = None if batch is None else Minibatches.of(loss, batch, (seed,), steps)
    descent = Descent(*(StackedRuns.shared(each) for each in (loss, rates, observe)), many=False)
    kind = require_float_type("weights", weights)
    require_scalar("loss", loss, (weights,), kind)
    require_scalar("learning_rate", rates.at, (0, weights), kind)
    rate = float(rates.at(0, weights))
    if not np.isfinite(rate):
        raise InputError(
            f"learning_rate must be finite at the start; got {rate!r}. Look for weights too small or too large for "
            f"{kind!s}."
        )
    with calling(f"observe must accept weights of {shapes_of(weights)}", "Check the shapes."):
        progress = prepare(descent, weights, recorded)
    saved = None
    if checkpoint is not None:
        parts = [*jax.tree.leaves((weights, eqx.filter(descent.losses, eqx.is_array))), recorded, minibatches]
        saved = Checkpoint.of(checkpoint, *parts, f"{rate:.4e}", *schedule_values(rates, steps))
    progress = descend(descent, progress, recorded, minibatches, report, saved)
    finite, _, observed = progress.observed()
    status, count = of_steps(recorded, finite)
    recording = Recording(
        steps=recorded[:count],
        observed=jax.tree.map(lambda values: values[:count], observed),
        weights=jax.tree.map(np.asarray, progress.place.weights),
        status=status,
    )
    if throw and not status.ok:
        raise FlowError(recording)
    return recording
