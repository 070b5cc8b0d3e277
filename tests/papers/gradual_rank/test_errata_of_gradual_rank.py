"""Checks of the paper's errata (`saddlescope.papers.gradual_rank.statements`), in exact arithmetic where it can be."""

from fractions import Fraction

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

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


def test_a_weight_passes_0_at_every_alpha():
    """Lemma C.10: with c = 2 ln 4, w_2 grows fourfold in the transition, and v_2 changes its sign on the way.

    The flow of the example, by an explicit solver from two initial scales, has the growth of the closed form.
    """
    u, v = Fraction(1), Fraction(-3, 5)  # in units of alpha
    w, kappa = u + v, u**2 - v**2
    ratios = [(w * k - kappa / (w * k)) / 2 / v for k in (Fraction(1), Fraction(2), Fraction(4))]
    assert ratios == [1, 0, -1]
    c = 2 * np.log(4)

    def slope(t, state):
        b1, b2 = state[0] * state[2], state[1] * state[3]
        g = np.array([1 - b1 + c * b2 * (1 - 2 * b1), c * b1 * (1 - b1) - 2 * b2])
        return np.concatenate([state[2:] * g, state[:2] * g])

    for alpha in (1e-3, 1e-6):
        start = alpha * np.array([1, 1, 1 - 1e-9, -0.6])
        end = solve_ivp(slope, (0, 40), start, "DOP853", rtol=1e-11, atol=1e-14 * alpha).y[:, -1]
        assert end[0] * end[2] == pytest.approx(1, rel=1e-4)
        assert (end[1] + end[3]) / (0.4 * alpha) == pytest.approx(4, rel=1e-2)
        assert end[3] > 0


def test_signs_of_appendix_c_3():
    u, v = Fraction(1), Fraction(-1, 2)
    sign = lambda x: 1 if x > 0 else -1  # noqa: E731
    assert (sign(u) * u) * (sign(v) * v) != u * v
    u, v = -u, v
    assert (sign(u) * u) * (sign(u) * v) == u * v


def test_assumption_4_4_as_printed_holds_at_a_point_that_is_no_minimum():
    """L = 1 + u near u = 1, with c = 1 and delta = 1/2; with - L(u) it does not hold below it."""
    points = [1 + Fraction(k, 100) for k in range(-50, 51)]
    assert all(1 + u >= (u - 1) ** 2 for u in points)
    assert not all(1 + u >= 2 + (u - 1) ** 2 for u in points)


def test_signs_of_the_keys_gradients_change_at_once():
    """Equation 29 at the origin: 0 there, and not 0 once a value has grown."""
    task = attention_teacher_task(1, samples=100, tokens=5, dim=4)
    keys = np.asarray(jax.grad(task.network)(np.r_[np.zeros(4), 1e-3, np.zeros(3)]))[:4]
    assert (keys != 0).all()


def test_the_sum_of_equation_7_is_halved():
    u, v = Fraction(3, 7), Fraction(-2, 5)
    assert u == ((u + v) + (u - v)) / 2 != (u + v) + (u - v)


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
