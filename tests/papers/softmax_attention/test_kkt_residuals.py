"""The bound of the KKT residuals on the norm, and slopes."""

import numpy as np
import xarray as xr

from saddlescope.papers.softmax_attention.kkt_residuals import _exponents


def test_residuals_bound_the_norm():
    """By convexity |b|_1 - |b*|_1 <= eps |b - b*| + sum lambda (B b - 1), here for random points and multipliers."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        B, solution, beta = rng.standard_normal((6, 4)), rng.standard_normal(4), rng.standard_normal(4)
        B /= np.minimum(B @ solution, B @ beta)[:, None]  # constraints that both meet, among others
        B = B[(B @ solution >= 1 - 1e-12) & (B @ beta >= 1 - 1e-12)]
        multipliers = rng.random(len(B))
        eps = np.linalg.norm(multipliers @ B - np.sign(beta))
        allowed = eps * np.linalg.norm(beta - solution) + multipliers @ (B @ beta - 1)
        assert np.abs(beta).sum() - np.abs(solution).sum() <= allowed + 1e-9


def test_exponents_are_those_of_powers():
    times = xr.DataArray([1e3, 1e4, 1e5], dims="log_time")
    values = times ** xr.DataArray([-0.7, 0.2], dims="flow")
    np.testing.assert_allclose(_exponents(values, times), [-0.7, 0.2], rtol=1e-12)
