"""Training of the entries on SGD: the authors' conventions, the outputs, and Theorem 4.1 with biases."""

import jax
import numpy as np
import pytest

from saddlescope.models import perceptron_output
from saddlescope.papers.concept_learning.shared.perceptron_training import (
    PerceptronTraining,
    one_layer_predictions,
    sim_task,
    start_weights,
    task_label,
    train,
)

SMALL = PerceptronTraining(dim=5, samples=40, batch=30, epochs=3, every=2)
TASKS = [((1.0, 2.0), (0.05, 0.25)), ((2.0, 1.0), (0.5, 0.01))]


def test_printed_sigma_is_a_variance_and_the_origin_has_a_cluster():
    task = sim_task(PerceptronTraining(), TASKS[0], 3)
    np.testing.assert_allclose(task.sigma, np.sqrt([0.05, 0.25]))
    np.testing.assert_allclose(task.strengths[:2], [0.05 + 1 / 3, 0.25 + 4 / 3])
    assert (task.clusters, task.samples_per_cluster, task.dim) == (3, 5000, 64)
    assert np.abs(task.directions - sim_task(PerceptronTraining(), TASKS[0], 4).directions).max() > 0.1
    np.testing.assert_array_equal(sim_task(PerceptronTraining(rotated=False), TASKS[0], 3).directions, np.eye(64))
    assert PerceptronTraining().time_step == pytest.approx(0.1 * 2 / 64)


@pytest.mark.parametrize("relu", [False, True])
def test_outputs_and_losses_are_those_of_the_whole_network(relu):
    """At the start, by the definition, at all test points."""
    training = PerceptronTraining(
        dim=5, depth=2, hidden=7, relu=relu, samples=40, batch=30, epochs=1, every=2, cube=True
    )
    run = train(training, TASKS, [3, 8])
    assert run.output.dims == ("task", "seed", "step", "point", "concept")
    assert not run.diverged.any()
    start = jax.tree.map(lambda leaf: leaf.astype(float), start_weights(training, 8))
    task = sim_task(training, TASKS[1], 8)
    outputs = perceptron_output(start, task.test_points.points, relu=relu)
    first = run.isel(task=1, seed=1, step=0)
    np.testing.assert_allclose(first.output, outputs @ task.directions[:, :2], atol=2e-6)
    np.testing.assert_allclose(first.test_loss, np.mean((outputs - task.test_points.points) ** 2, axis=1), rtol=1e-5)
    np.testing.assert_array_equal(run.index, task.test_points.indices)


def test_a_network_does_not_depend_on_its_company():
    both, alone = train(SMALL, TASKS, [3, 8]), train(SMALL, TASKS[1:], [8])
    for name in ("output", "test_loss"):
        np.testing.assert_allclose(both[name].values[1, 1], alone[name].values[0, 0], atol=1e-6)
    np.testing.assert_array_equal(both.step, [0, 2, 4, 6, 8, 10, 12])
    np.testing.assert_allclose(both.time, both.step * 0.1 * 2 / 5)
    assert both.task.values.tolist() == ["mu 1, 2; sigma 0.05, 0.25", "mu 2, 1; sigma 0.5, 0.01"]
    assert task_label(TASKS[0]) == both.task.values[0]


@pytest.mark.parametrize("bias", [False, True])
def test_theorem_4_1_is_the_limit_of_small_steps(bias):
    """Descent on all samples at a hundredth of the rate, is the flow to 2e-3."""
    training = PerceptronTraining(dim=3, bias=bias, samples=40, batch=30, rate=0.002, epochs=500, every=400, whole=True)
    run = train(training, TASKS[:1], [5])
    found = one_layer_predictions(training, TASKS[:1], [5], run.step.values)
    assert np.abs(found[..., -1, :] - found[..., 0, :]).max() > 0.5
    np.testing.assert_allclose(run.output.values, found, atol=2e-3)
