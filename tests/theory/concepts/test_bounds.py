"""The bounds of docs/concepts.md that hold from any start, against gradient flow."""

import numpy as np
import pytest

from references import symmetric_network_flow

TIMES = np.linspace(0.0, 6.0, 61)


@pytest.mark.parametrize("size", [1e-6, 1e-2, 0.3, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_they_hold(size, seed):
    rng = np.random.default_rng(seed)
    a, U = rng.uniform(0.1, 1.5, 4), size * rng.standard_normal((4, 1 + seed))
    path = symmetric_network_flow(a, U, TIMES)
    W, t = path @ path.swapaxes(1, 2), TIMES[:, None]
    start = np.diag(W[0])
    roots = np.sqrt(start / (start + (1 - start) * np.exp(-4 * a * t)))
    assert np.all(np.abs(W) <= roots[:, :, None] * roots[:, None, :] * (1 + 1e-9))
    pair = a[:, None] + a
    grown = np.exp(2 * pair * t[:, None])
    sums = np.einsum("tk,ijk->tij", start * np.expm1(4 * a * t) / (4 * a), pair[:, :, None] + 2 * a)
    allowed = np.sqrt(np.outer(start, start)) * grown * sums
    assert np.all(np.abs(W - W[0] * grown) <= allowed * (1 + 1e-9) + 1e-11 * np.abs(W[0] * grown))
