"""Predictions: weights, curvature, the staircase, and near-ties at a finite initial scale."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.models import attention_teacher_task
from saddlescope.theory import incremental_learning


@pytest.fixture(scope="module")
def task():
    return attention_teacher_task(0, samples=50, tokens=4, dim=4)


@pytest.fixture(scope="module")
def learned(task):
    return incremental_learning(task.network, 8)


def _separate(*gradients):
    """Independent coordinates with these gradients at 0; each ends at 1."""
    g = jnp.array(gradients)
    return incremental_learning(lambda beta: jnp.sum(g * (beta**2 / 2 - beta)), g.size)


def test_curvature_is_the_constant_of_assumption_4_4(task, learned):
    """The largest c with L(u~, s u~) - L(u, s u) >= c |u~ - u|^2 is half the Hessian's smallest eigenvalue in u."""
    hessian_in_u = jax.jit(jax.hessian(lambda u, s: task.network(s * u * u)))
    for stage in learned.stages[1:]:
        hessian = np.asarray(hessian_in_u(jnp.sqrt(jnp.abs(stage.beta)), jnp.sign(stage.beta)))
        eigenvalues = np.linalg.eigvalsh(hessian[np.ix_(stage.support, stage.support)])
        assert stage.curvature == pytest.approx(eigenvalues[0] / 2, rel=1e-9)


def test_staircase_reports_the_same(learned):
    staircase = learned.staircase
    assert staircase.time_unit == "t / log(1/alpha)"
    assert staircase.times == tuple(stage.time for stage in learned.stages[1:])
    assert staircase.losses == tuple(stage.loss for stage in learned.stages)
    assert staircase.supports == tuple(stage.support for stage in learned.stages)
    assert staircase.stages[-1].end == math.inf


def test_order_counts_the_growth_that_the_runner_up_still_has_before_it():
    """At T = 1 the slope of the second is 0.9 of 1: it lacks a tenth of log(1/alpha)."""
    learned = _separate(1.0, 0.9)
    for digits, near in ((4, True), (5, False)):
        ties = learned.near_ties(-digits * math.log(10))
        orders = [tie for tie in ties if tie.kind == "order"]
        assert bool(orders) == near
        if near:
            (tie,) = orders
            assert (tie.stage, tie.coordinate) == (1, 1)
            assert tie.efolds == pytest.approx(0.1 * digits * math.log(10), rel=1e-12)


def test_plateau_counts_the_slowest_rate():
    """Stage 1 lasts 1/0.9 - 1. Its saddle has c = 2, the coordinate that ends it grows at 0.9: that one is slower."""
    (tie,) = (tie for tie in _separate(1.0, 0.9).near_ties(-6.0) if tie.kind == "plateau")
    assert (tie.stage, tie.coordinate) == (1, 1)
    assert tie.efolds == pytest.approx((1 / 0.9 - 1) * 0.9 * 6.0, rel=1e-12)


def test_smaller_initial_scales_resolve_more(learned):
    counts = [len(learned.near_ties(-digits * math.log(10))) for digits in (1, 8, 32, 4096)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 0
    everything = learned.near_ties(-20.0, efolds=1e9)
    assert [tie.stage for tie in everything if tie.kind == "order"] == list(range(1, len(learned.stages) - 1))
    assert [tie.stage for tie in everything if tie.kind == "plateau"] == list(range(len(learned.stages) - 1))


def test_arrays_are_read_only(learned):
    with pytest.raises(ValueError, match="read-only"):
        learned.stages[0].beta[0] = 1.0
