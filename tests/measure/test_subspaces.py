"""Leading singular subspaces against dense SVDs, and principal angles against their values by construction."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import references
from problems import product_factors
from saddlescope._shared.errors import InputError
from saddlescope.measure import principal_angles, product_update_subspaces, subspace_overlap

LIBRARIES = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.asarray}


def orthonormal(rows, columns, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((rows, columns)))[0]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("relative", [1.0, 1e-5])
def test_subspaces_are_those_of_the_dense_update(library, relative):
    given = product_factors(relative)
    found = product_update_subspaces(*map(LIBRARIES[library], given), k=3)
    update = np.asarray(references.product_update(*given), dtype=float)
    U, s, Vh = np.linalg.svd(update)
    np.testing.assert_allclose(found.values, s[:, :3], rtol=1e-9)
    for basis, dense in ((found.left, U[..., :3]), (found.right, np.swapaxes(Vh, -1, -2)[..., :3])):
        basis = np.asarray(basis)
        np.testing.assert_allclose(np.abs(np.swapaxes(dense, -1, -2) @ basis), [np.eye(3)] * 2, atol=1e-7)
    best = np.asarray(found.left) * np.asarray(found.values)[:, None] @ np.swapaxes(np.asarray(found.right), -1, -2)
    np.testing.assert_allclose(best, (U[..., :3] * s[:, None, :3]) @ Vh[:, :3], atol=1e-8 * s.max())


@pytest.mark.parametrize("shape", [{"h": 20}, {"d": 4}, {"d2": 4}])
def test_subspaces_of_small_products(shape):
    given = product_factors(1e-3, **shape)
    found = product_update_subspaces(*given, k=4)
    update = np.asarray(references.product_update(*given), dtype=float)
    middle = np.swapaxes(found.left, -1, -2) @ update @ found.right
    np.testing.assert_allclose(middle, [np.diag(values) for values in found.values], atol=1e-9 * found.values.max())
    np.testing.assert_allclose(np.swapaxes(found.left, -1, -2) @ found.left, [np.eye(4)] * 2, atol=1e-12)


def test_nothing_learnt_has_bases_all_the_same():
    found = product_update_subspaces(*(np.zeros((6, 2)) for _ in range(4)), k=2)
    assert not found.values.any()
    np.testing.assert_allclose(found.left.T @ found.left, np.eye(2), atol=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
def test_planted_angles_are_found_to_the_last_digit_however_small(library):
    planted = np.array([1e-12, 1e-5, 0.3, np.pi / 4, 1.2, np.pi / 2 - 1e-9])
    frame = orthonormal(20, 12, seed=1)
    first, beside = frame[:, :6], frame[:, 6:]
    second = first * np.cos(planted) + beside * np.sin(planted)
    turn = [orthonormal(6, 6, seed=seed) for seed in (2, 3)]  # other bases of the same subspaces
    given = [LIBRARIES[library](basis) for basis in (first @ turn[0], second @ turn[1])]
    found = np.asarray(principal_angles(*given))
    np.testing.assert_allclose(found, planted, atol=1e-14)
    np.testing.assert_allclose(np.asarray(principal_angles(*given[::-1])), planted, atol=1e-14)


def test_angles_of_subspaces_of_different_dimension():
    one, plane = np.eye(4)[:, :1], np.eye(4)[:, :2]
    tilted = np.cos(0.4) * np.eye(4)[:, :1] + np.sin(0.4) * np.eye(4)[:, 2:3]
    assert principal_angles(one, plane) == pytest.approx([0.0])
    assert principal_angles(tilted, plane) == pytest.approx([0.4])
    assert principal_angles(plane, tilted) == pytest.approx([0.4])


def test_the_overlap_is_the_mean_square_of_the_cosines_of_the_angles():
    rng = np.random.default_rng(0)
    one, other = (np.linalg.qr(rng.standard_normal((5, 9, k)))[0] for k in (2, 3))
    expected = (np.cos(principal_angles(one, other)) ** 2).mean(axis=-1)
    np.testing.assert_allclose(subspace_overlap(one, other), expected)
    np.testing.assert_allclose(subspace_overlap(other, other[..., :1]), 1)
    with pytest.raises(InputError, match="orthonormal columns"):
        subspace_overlap(2 * one, other)
