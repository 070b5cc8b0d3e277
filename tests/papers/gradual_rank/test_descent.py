"""Gradient descent beside the flow: laws on made-up times, and the three coordinates of float64 descent."""

import numpy as np
import pytest
import xarray as xr

import problems
from saddlescope.models import diagonal_linear_network
from saddlescope.papers.gradual_rank import gradient_descent
from saddlescope.reproduction import find_entry
from saddlescope.theory import incremental_learning

NAME = "gradual-rank/gradient-descent"
ENTRY = find_entry(NAME)


@pytest.fixture
def ideal():
    """Three stages that forty runs of SGD reach in order, and tasks whose first stage is late by eta / (2 T_1)."""
    times = np.array([50.0, 70.0, 90.0])
    lost = np.zeros((2, 2, 3))
    lost[0, -1], lost[1, -1] = gradient_descent.TEACHER, gradient_descent.SADDLE
    return xr.Dataset(
        {
            "flow_time": ("stage", times),
            "instance_ratio": ("instance", np.array([0.97, 1.02])),
            "sgd_time": (("run", "stage"), times + np.linspace(-1, 1, 40)[:, None]),
            "returning_descent": (("returning_scale", "moment", "place"), lost),
        },
        coords={"returning_scale": [-2.0, -16.0]},
    )


def test_laws_hold_and_one_task_may_break_them(ideal, outcomes):
    assert set(outcomes(ENTRY, ideal).values()) == {"seen"}
    ideal.instance_ratio.values[1] = 2.0
    ideal.sgd_time.values[:20] = ideal.sgd_time.values[:20, ::-1].copy()
    ideal.returning_descent.values[1] = ideal.returning_descent.values[0]
    assert set(outcomes(ENTRY, ideal).values()) == {"not seen"}


def test_runs_that_did_not_learn_all_are_not_in_order(ideal, outcomes):
    ideal.sgd_time.values[:20, 2] = np.nan
    assert outcomes(ENTRY, ideal)["sgd-order"] == "not seen"


def test_the_flow_and_descent_from_a_large_scale_reach_the_teacher(run):
    teacher = np.array(gradient_descent.TEACHER)
    np.testing.assert_allclose(run.returning_flow.isel(moment=-1), np.tile(teacher, (2, 1)), atol=1e-3)
    np.testing.assert_allclose(run.returning_descent.sel(returning_scale=-2).isel(moment=-1), teacher, atol=1e-3)


def test_the_three_coordinates_do_what_is_said_of_them():
    features, teacher = np.array(gradient_descent.FEATURES), np.array(gradient_descent.TEACHER)
    assert (gradient_descent.FEATURES, gradient_descent.TEACHER, gradient_descent.SADDLE) == (
        problems.RETURNING_FEATURES,
        problems.RETURNING_TEACHER,
        problems.RETURNING_LAST_SADDLE,
    )
    stages = incremental_learning(diagonal_linear_network(features, features @ teacher), 3).stages
    assert [stage.entered for stage in stages[1:]] == [(2,), (0,), (1,), (0,)]
    assert [stage.signs for stage in stages[1:]] == [(-1,), (1,), (-1,), (-1,)]
    assert stages[3].left == (0,)
    np.testing.assert_allclose(stages[3].beta, gradient_descent.SADDLE, atol=1e-12)
    assert [round(stage.time, 2) for stage in stages[1:]] == [0.14, 0.32, 2.25, 20.25]
