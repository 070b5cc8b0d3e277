"""Training of perceptrons by SGD as in section 3 and appendix F.1.

The paper states 5000 samples per cluster, SGD with batch 128, learning rate 0.1 and 40 epochs, hidden layers of width
64, and a random rotation of all data. The rest is that of the authors' program (FFTYYY/ConceptDynamics-code, d6110b2):

    loss        mean over batch and dimension, 2/d times equation 2.1: a step advances the time t of gradient flow on
                equation 4.1 by 0.1 * 2/d
    start       PyTorch's default, weights and biases uniform in +-1/sqrt(fan-in)
    sigma       passed as a variance: the standard deviations are the square roots of the printed numbers
    origin      one more cluster at the origin, so that a_p = sigma_p + mu_p^2/(s + 1) in the printed numbers; none for
                the four concepts of Figure 7

The program sees the samples in one order in every epoch and takes the incomplete last batch; here each epoch has an
order of its own. `printed_conventions` compares the text, the program and equation 2.1.

Outputs are represented by their coordinates R^T f(x^), one per concept; R has the directions of the concepts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report, silent
from saddlescope.reproduction import EntryParams, param, parameters

if TYPE_CHECKING:
    from jax import Array
    from jax.tree_util import Partial

    from saddlescope.models import PerceptronLoss, PerceptronWeights, StructuredIdentityTask

PrintedConcepts = tuple[tuple[float, ...], tuple[float, ...]]
"""mu and sigma as the paper prints them; sigma is a variance, or a standard deviation with `deviation`."""


@dataclass(frozen=True, kw_only=True)
class PerceptronTraining:
    """Networks and their training; the defaults are the paper's.

    Attributes:
        depth: L, number of weight matrices, at least 1.
        dim: d, dimension of the data.
        hidden: width of the hidden layers; None: d.
        relu: True for ReLU between the layers.
        bias: True for PyTorch's biases.
        origin: True for one more cluster at the origin.
        deviation: True for the printed sigma as standard deviation, False as variance.
        rotated: True for data rotated at random.
        samples: n, samples per cluster.
        batch: samples in a minibatch.
        rate: learning rate, for the loss that is a mean over dimensions.
        epochs: passes through all samples.
        whole: True for all samples in every step; epochs and batch then only set the number of steps.
        every: steps between two records.
        per_doubling: if positive, the number of records for each doubling of the step; `every` is ignored.
        cube: True to record at all 2^s test points, False at x^ alone.
    """

    depth: int = 1
    dim: int = 64
    hidden: int | None = None
    relu: bool = False
    bias: bool = True
    origin: bool = True
    deviation: bool = False
    rotated: bool = True
    samples: int = 5000
    batch: int = 128
    rate: float = 0.1
    epochs: int = 40
    whole: bool = False
    every: int = 1
    per_doubling: int = 0
    cube: bool = False

    @property
    def time_step(self) -> float:
        """Return the time t of gradient flow on equation 4.1 by which a step advances."""
        return self.rate * 2 / self.dim


class TrainingParams(EntryParams):
    """Parameters of training that entries share."""

    seed: int = param(1000, "seed of the first network's samples, rotation, start and SGD; the next count up", ge=0)
    samples: int = param(5000, "samples per cluster", ge=1)
    epochs: int = param(40, "epochs of SGD with batch 128 and learning rate 0.1", ge=1)

    def training(self, **chosen: Any) -> PerceptronTraining:
        """Return the training with the values of all parameters that are named as its fields, and others as given."""
        named = {one.name for one in fields(PerceptronTraining)} & set(parameters(type(self)))
        return PerceptronTraining(**self.only(*named) | chosen)


def sim_task(training: PerceptronTraining, concepts: PrintedConcepts, seed: int) -> "StructuredIdentityTask":
    """Return the task, with another rotation for each seed."""
    from saddlescope.models import StructuredIdentityTask, random_rotation

    mu, printed = concepts
    rotation = random_rotation(training.dim, seed=seed) if training.rotated else None
    deviations = printed if training.deviation else tuple(variance**0.5 for variance in printed)
    return StructuredIdentityTask(mu, deviations, training.samples, training.dim, training.origin, rotation)


def start_weights(training: PerceptronTraining, seed: int) -> "PerceptronWeights":
    """Return the network of a seed before training, in single precision."""
    import jax.numpy as jnp

    from saddlescope.models import perceptron_weights

    hidden = training.dim if training.hidden is None else training.hidden
    widths = (training.dim, *(training.depth - 1) * (hidden,), training.dim)
    return perceptron_weights(widths, seed=seed, bias=training.bias, dtype=jnp.float32)


def train(
    training: PerceptronTraining,
    tasks: Sequence[PrintedConcepts],
    seeds: Sequence[int],
    *,
    checkpoint: Path | None = None,
    report: Report = silent,
) -> xr.Dataset:
    """Train a network for every task and seed, all at once; the seed sets samples, rotation, start and SGD.

    Args:
        training: the networks and their training.
        tasks: tasks of equally many concepts.
        seeds: at least one.
        checkpoint: file from which a killed call resumes.
        report: progress callback.

    Returns:
        Over (task, seed, step): `output` (..., concept), the coordinates of the output at x^, and `test_loss`, the
        squared error there, a mean over dimensions. With `cube`, both have an axis `point` before the last or at the
        end, in the order of `ConceptCube`, whose indices are `index` (point, concept). Over (task, seed): `diverged`.
        Over (task, concept): `mu` and `strength` a_p. Over step: `time` t of equation 4.1.
    """
    import jax

    from saddlescope.flow import geometric_steps, sgd_batched

    pairs = [(task, seed) for task in tasks for seed in seeds]
    problems = [_problem(training, concepts, seed) for concepts, seed in pairs]
    steps = training.epochs * (problems[0].loss.samples // training.batch)
    doubling = training.per_doubling
    run = sgd_batched(
        [problem.loss for problem in problems],
        jax.tree.map(lambda *leaves: np.stack(leaves), *(problem.start for problem in problems)),
        steps=steps,
        learning_rate=training.rate,
        batch=None if training.whole else training.batch,
        seeds=None if training.whole else [seed for _, seed in pairs],
        record=geometric_steps(steps, per_doubling=doubling) if doubling else np.arange(0, steps, training.every),
        observe=[problem.observe for problem in problems],
        checkpoint=checkpoint,
        report=report,
        throw=False,
    )
    shape = (len(tasks), len(seeds))
    seen = {name: values.reshape(*shape, *values.shape[1:]) for name, values in run.observed.items()}
    laws = [sim_task(training, concepts, seeds[0]) for concepts in tasks]
    count = laws[0].concepts
    found = xr.Dataset(
        {
            "output": (("task", "seed", "step", "point", "concept"), seen["output"]),
            "test_loss": (("task", "seed", "step", "point"), seen["test_loss"]),
            "index": (("point", "concept"), laws[0].test_points.indices if training.cube else np.ones((1, count))),
            "diverged": (("task", "seed"), np.array([not status.ok for status in run.statuses]).reshape(shape)),
            "mu": (("task", "concept"), np.array([law.mu for law in laws])),
            "strength": (("task", "concept"), np.array([law.strengths[:count] for law in laws])),
        },
        coords={
            "task": [task_label(concepts) for concepts in tasks],
            "seed": list(seeds),
            "step": run.steps,
            "time": ("step", run.steps * training.time_step),
            "concept": np.arange(1, count + 1),
        },
    )
    return found if training.cube else found.isel(point=0).drop_vars("index")


class _Problem(NamedTuple):
    """Loss of a network on its samples, observation of its outputs, and its start in the span of the concepts."""

    loss: "PerceptronLoss"
    observe: "Partial"
    start: "PerceptronWeights"


def _problem(training: PerceptronTraining, concepts: PrintedConcepts, seed: int) -> _Problem:
    import jax
    import jax.numpy as jnp

    from saddlescope.models import perceptron_loss, weights_in_span

    task = sim_task(training, concepts, seed)
    R, mu = task.directions[:, : task.concepts], np.array(task.mu)
    loss = perceptron_loss(task.draw(seed), R, relu=training.relu, mean_over_dimensions=True, dtype=jnp.float32)
    points = jnp.asarray(task.test_points.indices * mu if training.cube else mu[None], jnp.float32)
    observe = _observe_relu if training.relu else _observe_linear
    start = weights_in_span(jax.tree.map(np.asarray, start_weights(training, seed)), R)
    return _Problem(loss, jax.tree_util.Partial(observe, jnp.asarray(R, jnp.float32), points), start)


def _observe_linear(
    R: "Array", points: "Array", weights: "PerceptronWeights", relu: bool = False
) -> dict[str, "Array"]:
    import jax.numpy as jnp

    from saddlescope.models import perceptron_output

    outputs = perceptron_output(weights, points, relu=relu)
    return {"output": outputs @ R, "test_loss": jnp.mean((outputs - points @ R.T) ** 2, axis=-1)}


def _observe_relu(R: "Array", points: "Array", weights: "PerceptronWeights") -> dict[str, "Array"]:
    return _observe_linear(R, points, weights, relu=True)


def task_label(concepts: PrintedConcepts) -> str:
    """Return a label such as "mu 1, 2; sigma 0.05, 0.05", in the printed numbers."""
    mu, sigma = (", ".join(f"{value:g}" for value in values) for values in concepts)
    return f"mu {mu}; sigma {sigma}"


def after_last(away: np.ndarray) -> np.ndarray:
    """Return the record after the last one at which each condition (..., record) holds; 0 where it never does."""
    return np.where(away.any(axis=-1), away.shape[-1] - np.argmax(away[..., ::-1], axis=-1), 0)


def one_layer_predictions(
    training: PerceptronTraining, tasks: Sequence[PrintedConcepts], seeds: Sequence[int], steps: np.ndarray
) -> np.ndarray:
    """Apply Theorem 4.1 to the one-layer networks of `train`: R^T f(x^) after some steps, (task, seed, step, concept).

    From their actual starts, with the second moment of their samples. With biases the theorem holds for (x, 1) in place
    of x and its second moment: a bias is a weight of the constant 1.
    """
    return np.array([[_one_layer_prediction(training, task, seed, steps) for seed in seeds] for task in tasks])


def _one_layer_prediction(
    training: PerceptronTraining, concepts: PrintedConcepts, seed: int, steps: np.ndarray
) -> np.ndarray:
    from saddlescope.theory.concepts import one_layer_output

    task, start, d = sim_task(training, concepts, seed), start_weights(training, seed), training.dim
    samples = task.draw(seed)
    moment, W0 = np.eye(d + 1), np.eye(d + 1)
    moment[:d, :d] = samples.T @ samples / len(samples)
    W0[:d, :d] = start.weights[0]
    if training.bias:
        moment[:d, d] = moment[d, :d] = samples.mean(axis=0)
        W0[:d, d] = start.biases[0]
    point = np.append(task.test_point, 1.0)
    found = one_layer_output(moment, W0, point, np.asarray(steps, float) * training.time_step).total
    return found[:, :d] @ task.directions[:, : task.concepts]
