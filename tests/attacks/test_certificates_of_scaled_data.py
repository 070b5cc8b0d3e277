"""Certificates on data of many scales: the bounds hold, and the gap is not below that in 50 digits."""

import mpmath
import numpy as np
import pytest

from saddlescope.models.tokens.data import TokenData
from saddlescope.theory.attention.svm import certify_svm

CASES = [(norm, seed) for norm in ("l1", "nuclear", "frobenius") for seed in range(12)]


def _exact(values):
    return mpmath.matrix(np.asarray(values, float).tolist())


def exact_gap(data, weights, multipliers, norm):
    """Return 1 - dual / primal in the precision of mpmath, from the definitions alone."""
    X, z = [_exact(sample) for sample in data.X], [_exact(query[:, None]) for query in data.z]
    W = mpmath.diag(_exact(weights[:, None])) if norm == "l1" else _exact(weights[0]) * _exact(weights[1]).T
    margins, Z = [], mpmath.zeros(data.dim)
    for i, best in enumerate(data.optimal):
        for m, other in enumerate(data.others[i]):
            D = (X[i][int(best), :] - X[i][int(other), :]).T
            margins.append((D.T * W * z[i])[0])
            Z += mpmath.mpf(float(multipliers[i, m])) * D * z[i].T
    total = mpmath.fsum(map(mpmath.mpf, multipliers.ravel().tolist()))
    if norm == "l1":
        size, dual = (f(abs(A[k, k]) for k in range(data.dim)) for f, A in ((mpmath.fsum, W), (max, Z)))
    elif norm == "frobenius":
        size, dual = (mpmath.sqrt(mpmath.fsum(x**2 for x in A)) for A in (W, Z))
    else:
        size, dual = mpmath.fsum(mpmath.svd_r(W, compute_uv=False)), max(mpmath.svd_r(Z, compute_uv=False))
    return float(1 - total / dual * min(margins) / size)


@pytest.mark.parametrize(("norm", "seed"), CASES)
def test_the_gap_is_not_below_the_exact_one(norm, seed):
    rng = np.random.default_rng(seed)
    n, L, d = 2, 3, 3
    scales = 10.0 ** rng.uniform(-5, 5, (d,) if seed % 2 else (n, 1, 1))
    common = 1e6 * rng.standard_normal((n, 1, d)) * (seed % 3 == 0)  # tokens that differ by little
    data = TokenData(
        X=(rng.standard_normal((n, L, d)) + common) * scales,
        z=rng.standard_normal((n, d)) / (scales if seed % 2 else 1.0),
        y=np.ones(n), v=rng.standard_normal(d) / (scales if seed % 2 else 1.0),
    )  # fmt: skip
    multipliers = rng.uniform(0.1, 1, (n, L - 1))
    pulled = np.einsum("im,imd,ie->de", multipliers, data.differences, data.z)
    weights = np.diag(pulled).copy() if norm == "l1" else (pulled, np.eye(d))
    with mpmath.workdps(50):
        exact = exact_gap(data, weights, multipliers, norm)
    certificate = certify_svm(data, weights, multipliers, norm=norm)
    if np.isfinite(certificate.primal):
        assert certificate.gap >= exact - 1e-14
        assert certificate.gap <= exact + 1e-8
    else:
        assert data.margins(weights).min() <= 1e-9 * np.abs(data.margins(weights)).max()
