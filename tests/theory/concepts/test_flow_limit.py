"""Limit of gradient flow, predicted and simulated."""

import numpy as np
import pytest

from references import symmetric_network_flow
from saddlescope._shared.errors import InputError
from saddlescope.models import StructuredIdentityTask, symmetric_factor
from saddlescope.theory.concepts import predicted_limit

FIGURE_10 = StructuredIdentityTask((0.7, 1.7, 3.0), (0.05,) * 3, 10, 3)


def _end(a, U, until=250.0):
    last = symmetric_network_flow(a, U, [0.0, until], rtol=1e-10)[-1]
    return last @ last.T


def _weights(shape, seed):
    return 0.1 * np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(2))
def test_every_rank_on_the_data_of_figure_10(width, seed):
    a, x, U = FIGURE_10.strengths, FIGURE_10.test_point, _weights((3, width), seed)
    limit = predicted_limit(a, U)
    assert limit.rank == min(width, 3)
    assert limit.learned == tuple(range(3 - limit.rank, 3))
    assert limit.complete == (width >= 3)
    W = _end(a, U)
    np.testing.assert_allclose(W @ x, limit.output(x), atol=1e-6)
    np.testing.assert_allclose(np.sum((W @ x - x) ** 2) / 2, limit.test_loss(x), atol=1e-6)
    np.testing.assert_allclose(np.sum((W - np.eye(3)) ** 2 * a) / 2, limit.loss, atol=1e-6)


def test_rank_two_ends_at_half_the_square_of_the_weakest_mean():
    limit = predicted_limit(FIGURE_10.strengths, _weights((3, 2), 0))
    np.testing.assert_allclose(limit.test_loss(FIGURE_10.test_point), 0.7**2 / 2, rtol=1e-14)


def test_blocks_are_on_their_own():
    a, U = np.array([0.3, 2.0, 0.9, 1.4]), np.zeros((4, 2))
    U[[0, 2], 0], U[1, 1] = (0.1, 0.2), 0.1  # concepts 0 and 2 share a rank of one; 3 starts, and stays, at 0
    limit = predicted_limit(a, U)
    assert limit.learned == (1, 2)
    assert limit.rank == 2
    np.testing.assert_allclose(_end(a, U), np.diag([0, 1, 1, 0]), atol=1e-6)


def test_a_row_parallel_to_another_lends_its_rank():
    """The two strongest rows are parallel; the flow turns them apart, and the strongest two are learned."""
    a, U = FIGURE_10.strengths, _weights((3, 2), 3)
    U[2] = 2 * U[1]
    assert predicted_limit(a, U).learned == (1, 2)
    np.testing.assert_allclose(_end(a, U), np.diag([0, 1, 1]), atol=1e-6)


def test_directions_without_strength():
    a = np.append(FIGURE_10.strengths, [0.0, 0.0])
    U = _weights((5, 4), 1)
    limit = predicted_limit(a, U)
    assert limit.learned == (0, 1, 2)
    assert limit.rank == 4
    assert limit.complete
    assert limit.loss == 0
    W = _end(a, U)
    np.testing.assert_allclose(W[:, :3], np.eye(5)[:, :3], atol=1e-6)
    with pytest.raises(InputError, match="0 where the strength is 0"):
        limit.output(np.ones(5))


def test_a_map_of_deficient_rank():
    U = _weights((3, 2), 0)
    assert predicted_limit(FIGURE_10.strengths, symmetric_factor(U @ U.T)).learned == (1, 2)
    assert predicted_limit(FIGURE_10.strengths, 1e-30 * U).learned == (1, 2)
    assert predicted_limit(FIGURE_10.strengths, 0 * U).learned == ()


def test_equal_strengths():
    assert predicted_limit([1.0, 1.0, 2.0], _weights((3, 3), 0)).learned == (0, 1, 2)
    assert predicted_limit([1.0, 2.0, 2.0], _weights((3, 2), 0)).learned == (1, 2)
    with pytest.raises(InputError, match="strengths must differ where the rank of U0 ends"):
        predicted_limit([1.0, 1.0, 2.0], _weights((3, 2), 0))
