"""The randomised decomposition: its error and its certificate against all singular values."""

import math

import numpy as np
import pytest
import torch

from saddlescope.ranks.lora.truncated_svd import TOLERANCE, TruncatedSVD
from saddlescope.ranks.randomized_svd import randomized_svd

SHAPES = [(600, 900), (900, 600)]


def matrix(kind, shape, seed=0):
    """Return a matrix with a known kind of spectrum."""
    generator = torch.Generator().manual_seed(seed)
    m, n = shape
    U, V = (torch.linalg.qr(torch.randn(side, min(shape), generator=generator).double()).Q for side in shape)
    order = torch.arange(1, min(shape) + 1, dtype=torch.float64)
    noise = torch.randn(m, n, generator=generator).double() / math.sqrt(m * n)
    spectra = {
        "geometric": 0.7**order,
        "slow": order**-0.5,
        "flat": torch.ones_like(order),
        "steps": torch.where(order <= 5, 1.0, 1e-3),
        "ties": torch.where(order <= 24, 1.0, 0.1),
        "low rank": torch.where(order <= 4, 1.0, 0.0),
        "low rank and noise": torch.where(order <= 4, 1.0, 0.0),
    }
    return (U * spectra[kind]) @ V.T + (noise if kind.endswith("noise") else 0)


def best_error(D, rank):
    """Return the relative error of the best approximation, from all singular values."""
    values = torch.linalg.svdvals(D)
    return float(values[rank:].norm() / values.norm())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["geometric", "slow", "flat", "steps", "ties", "low rank", "low rank and noise"])
def test_the_error_is_as_certified(kind, shape):
    D, rank = matrix(kind, shape), 16
    found = randomized_svd(D, rank, tolerance=TOLERANCE)
    error = float((D - (found.left * found.values) @ found.right).norm() / D.norm())
    best = best_error(D, rank)
    assert error <= best + found.excess + 1e-7  # rounding of the energy, under a root
    assert error >= best - 1e-9
    assert found.energy == pytest.approx(float(D.norm()) ** 2)
    np.testing.assert_allclose(found.left.T @ found.left, torch.eye(rank), atol=1e-12)
    if kind not in ("flat", "ties"):  # there leading directions are not unique, and hard to certify
        assert found.excess <= TOLERANCE


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["slow", "flat", "geometric"])
def test_whatever_the_spectrum_the_error_is_within_the_tolerance(kind, shape):
    D = matrix(kind, shape, 1) * 1e-3
    svd = TruncatedSVD.of(D, 16)
    B, A = svd.truncate(16)
    error = float((D - B @ A).norm() / D.norm())
    assert error <= best_error(D, 16) + TOLERANCE
    assert svd.energy == pytest.approx(float(D.norm()) ** 2)
    np.testing.assert_allclose(B.T @ B, torch.diag(svd.values[:16]), atol=1e-9)
    assert (len(svd.values) == 16) == (svd.excess > 0 or kind == "geometric")


def test_a_bound_that_fails_takes_all_singular_values(monkeypatch):
    monkeypatch.setattr("saddlescope.ranks.lora.truncated_svd.TOLERANCE", 1e-12)
    svd = TruncatedSVD.of(matrix("slow", (600, 700)), 8)
    assert len(svd.values) == 600
    assert svd.excess == 0


def test_high_ranks_and_small_matrices_are_exact():
    assert len(TruncatedSVD.of(matrix("slow", (600, 700)), 100).values) == 600
    assert len(TruncatedSVD.of(torch.eye(5), 2).values) == 5
