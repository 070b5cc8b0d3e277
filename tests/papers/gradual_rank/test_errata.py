"""The evidence behind docs/papers/gradual-rank.md for Boix-Adserà et al. 2023."""

import jax
import numpy as np
import pytest

from saddlescope.flow import DiagonalInit, gradient_flow
from saddlescope.models import attention_teacher_task
from saddlescope.theory import incremental_learning


def time_until_active(b, g):
    """Equation (10), as printed."""
    return (b - 1 + np.sign(g)) / g


def test_b0_must_be_one():
    task = attention_teacher_task(1, samples=100, tokens=5, dim=4)
    g = -np.asarray(jax.grad(task.network)(np.zeros(8)))[4:]
    assert (time_until_active(0, g[g > 0]) == 0).all()  # as printed: at once, all of them
    corrected = time_until_active(1, g).min()
    assert corrected == pytest.approx((1 / abs(g)).min())
    start = DiagonalInit(task.u0, task.v0, log_scale=-1000 * np.log(10))
    run = gradient_flow(task.network, start, until=2 * corrected, tolerance=1e-6, level=0.01)
    assert run.crossings[0].time == pytest.approx(corrected, rel=5e-3)


def test_keys_and_queries_wait_for_values():
    task = attention_teacher_task(1, samples=100, tokens=5, dim=4)
    g = np.asarray(jax.grad(task.network)(np.zeros(8)))
    assert (g[:4] == 0).all()
    assert (g[4:] != 0).all()


@pytest.mark.slow
def test_coordinates_leave_in_other_instances():
    leaving = []
    for seed in range(10):
        task = attention_teacher_task(seed)
        learned = incremental_learning(task.network, 100)
        leaving.append(sum(len(stage.left) for stage in learned.stages))
    assert leaving[1] == 0  # the instance of Figure 2 here, as in the paper
    assert sum(n > 0 for n in leaving) >= 2


def test_most_eigenvalues_of_a_product_are_not_real():
    real = []
    for seed in range(20):
        W_K, W_Q = np.random.default_rng(seed).uniform(-1, 1, (2, 512, 128)) / np.sqrt(512)  # as nn.Linear starts
        nonzero = np.linalg.eigvals(W_Q.T @ W_K)  # those of W_K W_Q^T that are not 0
        real.append(np.mean(abs(nonzero.imag) < 1e-9 * abs(nonzero).max()))
    assert 0.05 < np.mean(real) < 0.1


def test_no_constant_is_a_lipschitz_constant_on_the_ball_of_that_radius():
    """Lemma D.7 as printed, for L = (u v - 2)² / 2: the Hessian's norm on B(0, K) is above K for every K."""
    radii = np.geomspace(1e-3, 1e3, 601)
    at_origin = np.full_like(radii, 2.0)
    on_diagonal = abs(1.5 * radii**2 - 2)  # at u = v = K / sqrt 2, along (1, 1)
    assert (np.maximum(at_origin, on_diagonal) > 1.1 * radii).all()
