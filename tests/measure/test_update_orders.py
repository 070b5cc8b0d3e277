"""First and second order of the update of a product, against dense references and their own sum."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tolerances
from problems import product_factors
from saddlescope.measure import arrays, product_update_orders, product_update_spectrum

LIBRARIES = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.asarray}
TOLERANCE = {"float32": tolerances.SPECTRUM_FROM_SINGLE, "float64": tolerances.SPECTRUM_FROM_DOUBLE}


def dense(L, R, L0, R0):
    """Return both orders as matrices in extended precision."""
    L, R, L0, R0 = (X.astype(np.longdouble) for X in (L, R, L0, R0))
    D, E = L - L0, np.swapaxes(R - R0, -1, -2)
    return (D @ np.swapaxes(R0, -1, -2) + L0 @ E).astype(float), (D @ E).astype(float)


def check(found, matrices, dtype):
    for spectrum, matrix in zip((found.first, found.second), matrices, strict=True):
        values = np.asarray(spectrum.values)
        expected = np.linalg.svd(matrix, compute_uv=False)[..., : values.shape[-1]]
        assert np.max(np.abs(values - expected) / expected[..., :1]) < TOLERANCE[dtype]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("relative", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("shape", [{}, {"rank": 2}, {"h": 18}, {"h": 50}, {"d": 5}])
def test_both_orders_agree_with_the_dense_reference(library, dtype, relative, shape):
    factors = product_factors(relative, dtype, **shape)
    check(product_update_orders(*map(LIBRARIES[library], factors)), dense(*factors), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_on_an_accelerator(dtype, monkeypatch):
    factors = product_factors(1e-3, dtype)
    monkeypatch.setattr(arrays, "is_cpu", lambda device: False)
    check(product_update_orders(*map(torch.asarray, factors)), dense(*factors), dtype)


def test_if_one_factor_moves_the_update_is_of_first_order():
    L, _, L0, R0 = product_factors(1e-2, "float32")
    found = product_update_orders(L, R0, L0, R0)
    assert not found.second.values.any()
    update = product_update_spectrum(L, R0, L0, R0)
    np.testing.assert_allclose(found.first.values, update.values, atol=update.values.max() * 1e-7)


def test_from_zero_the_update_is_of_second_order():
    L, R, *_ = product_factors(1.0)
    found = product_update_orders(L, R, 0 * L, 0 * R)
    assert not found.first.values.any()
    np.testing.assert_allclose(found.second.values, product_update_spectrum(L, R, 0 * L, 0 * R).values[..., :6])


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_the_noise_floor_is_the_effect_of_rounding(stored):
    exact = product_factors(0.3, batch=(4,), d=120, d2=90, h=10)
    rounded = [X.astype(stored) for X in exact]
    found = product_update_orders(*rounded)
    for spectrum, with_rounding, without in zip(
        (found.first, found.second), dense(*rounded), dense(*exact), strict=True
    ):
        noise = np.linalg.norm(with_rounding - without, 2, axis=(-2, -1))
        assert (noise < spectrum.noise_floor).all()
        assert (spectrum.noise_floor < 4 * noise).all()
