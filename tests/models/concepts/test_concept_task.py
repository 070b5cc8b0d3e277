"""Structured identity mapping task."""

import numpy as np
import pytest

from saddlescope.models import StructuredIdentityTask, random_rotation

MU, SIGMA = (1.0, 1.5, 2.2), (0.05, 0.4, 0.05)


def _task(**changes):
    return StructuredIdentityTask(**{"mu": MU, "sigma": SIGMA, "samples_per_cluster": 7, "dim": 5} | changes)


def test_the_strengths_are_those_of_the_paper():
    a = _task().strengths
    np.testing.assert_allclose(a, [0.0025 + 1 / 3, 0.16 + 2.25 / 3, 0.0025 + 4.84 / 3, 0, 0], rtol=1e-15)
    with_origin = _task(origin=True).strengths
    np.testing.assert_allclose(with_origin, [0.0025 + 1 / 4, 0.16 + 2.25 / 4, 0.0025 + 4.84 / 4, 0, 0], rtol=1e-15)


@pytest.mark.parametrize("origin", [False, True])
def test_the_samples_have_the_moments(origin):
    task = _task(samples_per_cluster=40_000, origin=origin, rotation=random_rotation(5, seed=1))
    x = task.draw(0)
    assert x.shape == (40_000 * task.clusters, 5)
    np.testing.assert_allclose(x.reshape(task.clusters, 40_000, 5).mean(axis=1), task.centers, atol=0.01)
    np.testing.assert_allclose(x.T @ x / len(x), task.second_moment, atol=0.01)
    spread = x.reshape(task.clusters, -1, 5) - task.centers[:, None]
    along = task.directions.T @ np.cov(spread[1].T) @ task.directions
    np.testing.assert_allclose(np.diag(along), [*np.square(SIGMA), 0, 0], atol=2e-3)


def test_a_seed_is_a_draw():
    np.testing.assert_array_equal(_task().draw(3), _task().draw(3))
    assert np.all(np.any(_task().draw(3) != _task().draw(4), axis=1))


def test_a_rotation_turns_everything():
    R = random_rotation(5, seed=0)
    plain, turned = _task(), _task(rotation=R)
    np.testing.assert_allclose(R.T @ R, np.eye(5), atol=1e-14)
    np.testing.assert_allclose(turned.draw(2), plain.draw(2) @ R.T, atol=1e-14)
    np.testing.assert_allclose(turned.centers, plain.centers @ R.T, atol=1e-14)
    np.testing.assert_allclose(turned.test_point, R @ plain.test_point, atol=1e-14)
    np.testing.assert_allclose(turned.test_points.points, plain.test_points.points @ R.T, atol=1e-14)
    np.testing.assert_allclose(turned.second_moment, R @ plain.second_moment @ R.T, atol=1e-14)
    np.testing.assert_array_equal(turned.strengths, plain.strengths)


def test_the_test_points():
    task = _task()
    cube = task.test_points
    np.testing.assert_array_equal(task.test_point, [1.0, 1.5, 2.2, 0, 0])
    assert cube.indices.tolist()[:4] == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]
    np.testing.assert_array_equal(cube.points[-1], task.test_point)
    np.testing.assert_array_equal(cube.points[3], [1.0, 1.5, 0, 0, 0])
    ones = cube.indices.sum(axis=-1)
    apart = np.abs(cube.indices[:, None] - cube.indices[None]).sum(axis=-1)
    assert set(cube.edges) == {(i, j) for i, j in np.argwhere(apart == 1).tolist() if ones[i] < ones[j]}


def test_rotations_are_uniform():
    turned = np.stack([random_rotation(3, seed=seed) for seed in range(2000)])
    np.testing.assert_allclose(turned.mean(axis=0), 0, atol=0.05)  # standard deviation 0.013
    np.testing.assert_allclose((turned**2).mean(axis=0), 1 / 3, atol=0.03)
