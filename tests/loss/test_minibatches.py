"""Minibatches: the samples of an epoch, against a plain loop, and the laws of the noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tests import problems

from saddlescope.flow import DiagonalInit, ParameterInit, gradient_descent
from saddlescope.loss import FiniteSumLoss
from saddlescope.models import AttentionNetwork, DiagonalNetwork, attention_teacher_task, diagonal_linear_network


class Reveal(eqx.Module):
    """Sample i pulls at parameter i alone, so that a path of the parameters shows the samples of each step."""

    rows: jax.Array

    @property
    def samples(self):
        return self.rows.shape[0]

    def batch(self, indices):
        return Reveal(self.rows[indices])

    def __call__(self, theta):
        return jnp.mean(self.rows @ theta)


def _seen(samples, batch, steps, seed=0):
    """Return the number of times each step used each sample, shape (steps, samples)."""
    run = gradient_descent(
        Reveal(jnp.eye(samples)),
        ParameterInit(np.zeros(samples)),
        steps=steps,
        learning_rate=1.0,
        batch=batch,
        seed=seed,
        record=np.arange(steps + 1),
    )
    return np.round(-np.diff(run.values, axis=0) * batch).astype(int)


def test_an_epoch_sees_every_sample_once():
    seen = _seen(12, 3, 40)
    np.testing.assert_array_equal(seen.sum(1), 3)
    epochs = seen.reshape(10, 4, 12)
    np.testing.assert_array_equal(epochs.sum(1), 1)
    assert len({epoch.tobytes() for epoch in epochs}) == 10


def test_samples_left_over_sit_out_an_epoch_and_others_the_next():
    epochs = _seen(11, 4, 2 * 300).reshape(300, 2, 11).sum(1)
    np.testing.assert_array_equal(epochs.sum(1), 8)
    assert epochs.max() == 1
    share = epochs.mean(0)  # 8/11 in the mean, with a standard deviation of 0.026
    np.testing.assert_allclose(share, 8 / 11, atol=0.11)


def test_a_seed_names_a_run_and_records_change_nothing():
    np.testing.assert_array_equal(_seen(12, 3, 20, seed=5), _seen(12, 3, 20, seed=5))
    assert np.any(_seen(12, 3, 20, seed=5) != _seen(12, 3, 20, seed=6))
    dense, sparse = (
        gradient_descent(
            Reveal(jnp.eye(12)), ParameterInit(np.zeros(12)), steps=18, learning_rate=1.0, batch=3, record=record
        )
        for record in (None, np.array([7]))
    )
    np.testing.assert_array_equal(dense.values[-1], sparse.values[-1])
    np.testing.assert_array_equal(dense.values[7], sparse.values[1])


def _noisy(samples=20, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((samples, 3))
    targets = features @ np.array(problems.RETURNING_TEACHER) + noise * rng.standard_normal(samples)
    return features, targets


def test_an_epoch_moves_along_the_gradient_of_all_samples():
    """Up to terms of second order in the learning rate, whatever the permutation: minibatches are unbiased."""
    features, targets = _noisy()
    loss, theta = diagonal_linear_network(features, targets), np.array([0.3, -0.5, 1.0])
    errors = []
    for rate in (1e-4, 1e-5):
        run = gradient_descent(loss, ParameterInit(theta), steps=5, learning_rate=rate, batch=4)
        moved = (run.values[-1] - theta) / (5 * rate)
        errors.append(np.abs(moved + loss.value_and_gradient(jnp.asarray(theta))[1]).max())
    assert errors[0] > 1e-6
    np.testing.assert_allclose(errors[0] / errors[1], 10, rtol=0.1)


def test_a_minibatch_of_all_samples_is_gradient_descent():
    features, targets = _noisy()
    loss, start = diagonal_linear_network(features, targets), DiagonalInit(np.ones(3), np.array([0.5, -1.5, 2]), -2.0)
    whole = gradient_descent(loss, start, steps=50, learning_rate=0.02)
    batches = gradient_descent(loss, start, steps=50, learning_rate=0.02, batch=20)
    np.testing.assert_allclose(batches.values, whole.values, rtol=1e-11)


def test_noise_dies_where_the_data_can_be_fitted():
    features, targets = _noisy(noise=0.0)
    run = gradient_descent(
        diagonal_linear_network(features, targets), ParameterInit(np.zeros(3)), steps=4000, learning_rate=0.02, batch=2
    )
    np.testing.assert_allclose(run.values[-1], problems.RETURNING_TEACHER, atol=1e-10)


def test_noise_is_that_of_permutations():
    """Their steps cancel over an epoch, so the excess loss is of second order in the rate, not of first."""
    features, targets = _noisy(noise=1.0)
    least = np.mean((features @ np.linalg.lstsq(features, targets)[0] - targets) ** 2)
    excess = []
    for rate in (4e-3, 1e-3):
        run = gradient_descent(
            diagonal_linear_network(features, targets),
            ParameterInit(np.zeros(3)),
            steps=30_000,
            learning_rate=rate,
            batch=1,
            record=np.arange(15_000, 30_000, 37),  # all places within an epoch
        )
        excess.append(np.mean(run.losses[1:-1]) - least)
    assert excess[1] > 1e-6
    np.testing.assert_allclose(excess[0] / excess[1], 16, rtol=0.3)


def test_every_network_with_samples_can_be_trained_on_minibatches():
    task = attention_teacher_task(2, samples=9, tokens=3, dim=2)
    generic = DiagonalNetwork(task.network.h, task.network.inputs, task.network.targets)
    start = DiagonalInit(task.u0, task.v0, -1.0)
    assert isinstance(task.network, AttentionNetwork)
    assert isinstance(task.network, FiniteSumLoss)
    runs = [
        gradient_descent(network, start, steps=20, learning_rate=0.1, batch=2) for network in (task.network, generic)
    ]
    np.testing.assert_allclose(runs[0].values, runs[1].values, rtol=1e-9)
