"""Two heads in one layer: a tie at the origin, an end that is not strict, and the closed form of the division."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.models import transformer_teacher_task
from saddlescope.reproduction import find_entry
from saddlescope.theory import incremental_learning

NAME = "gradual-rank/tied-heads"
ENTRY = find_entry(NAME)


@pytest.fixture
def task():
    size = ENTRY.configure("quick")
    return transformer_teacher_task(
        size.seeds[0], layers=1, heads=2, samples=size.samples, tokens=size.tokens, dim=size.dim, hidden=size.hidden
    )


def test_the_sum_is_half_way_near_the_predicted_time(run):
    np.testing.assert_allclose(run.found_pair.sum("head"), (run.total / 2).broadcast_like(run.found_time), rtol=1e-6)
    assert abs(run.found_time / run.first_time - 1).isel(scale=-1).max() < 0.02


def test_the_first_two_tie_and_end_at_a_point_that_is_not_strict(run, task):
    """Assumptions 4.3 and 4.4 fail: equal gradients at the origin, and a flat direction of the Hessian after it."""
    size, one = task.network.h.size, run.isel(seed=0)
    pair, ends = one.pair.values, (one.total * one.predicted_share).values
    gradient = np.asarray(jax.grad(task.network)(jnp.zeros(size)))
    assert gradient[pair[0]] == pytest.approx(gradient[pair[1]], rel=1e-12)

    def loss(u):
        return task.network(jnp.zeros(size).at[jnp.asarray(pair)].set(jnp.asarray(np.sign(ends)) * u**2))

    eigenvalues = np.linalg.eigvalsh(np.asarray(jax.hessian(loss)(jnp.asarray(np.sqrt(np.abs(ends))))))
    assert abs(eigenvalues[0]) < 1e-12 * eigenvalues[-1]


def test_algorithm_1_with_weights_divides_the_entry_as_the_closed_form_does(run, task):
    size = task.network.h.size
    stage = incremental_learning(task.network, size, weights=(task.u0, task.v0), max_stages=1).stages[1]
    one = run.isel(seed=0)
    assert stage.entered == tuple(one.pair.values)
    assert stage.time == pytest.approx(float(one.first_time), rel=1e-12)
    np.testing.assert_allclose(stage.beta[list(stage.entered)], one.total * one.predicted_share, rtol=1e-8)
    other = incremental_learning(task.network, size, weights=(task.v0, 2 * task.u0), max_stages=1).stages[1]
    assert np.abs(other.beta - stage.beta).max() > 1e-3  # the division is the weights', not the loss's
    single = replace(task.network, h=replace(task.network.h, heads=1))
    alone = incremental_learning(single, single.h.size, max_stages=1).stages[1]
    assert stage.beta.sum() == pytest.approx(alone.beta.sum(), rel=1e-8)
