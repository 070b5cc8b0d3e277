"""Two heads in one layer: when their sum is half-way, and the closed form of its division."""

from dataclasses import replace

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
