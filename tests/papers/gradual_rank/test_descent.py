"""Gradient descent beside the flow: the three coordinates of float64 descent."""

import numpy as np

import problems
from saddlescope.models import diagonal_linear_network
from saddlescope.papers.gradual_rank import gradient_descent
from saddlescope.theory import incremental_learning

NAME = "gradual-rank/gradient-descent"


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
