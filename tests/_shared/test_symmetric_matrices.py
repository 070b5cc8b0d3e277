"""Eigenvectors of symmetric matrices where the usual algorithm does not converge."""

import numpy as np
import pytest

from saddlescope._shared.symmetric_matrices import eigenvectors


def never(matrix):
    raise np.linalg.LinAlgError("Eigenvalues did not converge")


@pytest.mark.parametrize("algorithm", [np.linalg.eigh, never])
def test_eigenvectors_are_those_of_the_matrix(monkeypatch, algorithm):
    monkeypatch.setattr(np.linalg, "eigh", algorithm)
    A = np.random.default_rng(0).standard_normal((7, 7))
    values, vectors = eigenvectors(A + A.T)
    assert np.all(np.diff(values) > 0)
    np.testing.assert_allclose((A + A.T) @ vectors, vectors * values, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(7), atol=1e-12)
