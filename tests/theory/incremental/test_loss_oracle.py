"""The loss as the theory sees it: compiled once, and its Hessian by columns."""

import numpy as np
import pytest

from saddlescope._shared.compiled_functions import compilations
from saddlescope.models import DiagonalNetwork, attention_teacher_task, diagonal_linear_network
from saddlescope.theory import AlgorithmStatus, incremental_learning
from saddlescope.theory.incremental.loss_oracle import _hessian_columns, _value_and_gradient


def test_other_data_of_the_same_shape_compile_nothing():
    def learned(seed):
        return incremental_learning(attention_teacher_task(seed, samples=20, tokens=4, dim=3).network, 6).stages

    first = learned(0), learned(1)
    assert [len(stages) for stages in first] == [7, 7]  # all lengths of faces have been compiled
    counts = [compilations(function) for function in (_value_and_gradient, _hessian_columns)]
    learned(2)
    again = learned(0)
    assert counts == [compilations(function) for function in (_value_and_gradient, _hessian_columns)]
    assert [one.time for one in again] == [one.time for one in first[0]]


@pytest.mark.parametrize("generic", [False, True])
def test_a_hundred_thousand_coordinates_need_no_matrix_of_their_square(generic):
    rng, p = np.random.default_rng(0), 100_000  # p x p float64 numbers would be 80 GB
    x, beta = rng.standard_normal((20, p)), np.zeros(p)
    beta[[7, 99_000]] = 3.0, -2.0
    network = diagonal_linear_network(x, x @ beta)
    if generic:
        network = DiagonalNetwork(h=lambda one, b: one @ b, inputs=network.inputs, targets=network.targets)
    learned = incremental_learning(network, p)
    assert learned.status is AlgorithmStatus.CONVERGED
    assert np.max(np.abs(learned.stages[-1].beta - beta)) < 1e-10
    first = learned.stages[1]  # the largest correlation enters first, and learns its least-squares value
    (i,) = first.entered
    assert i == np.argmax(np.abs(x.T @ (x @ beta)))
    assert first.beta[i] == pytest.approx(x[:, i] @ (x @ beta) / (x[:, i] @ x[:, i]), rel=1e-10)
