from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import references
import tolerances
from problems import product_factors
from saddlescope.measure import (
    Spectrum,
    product_spectrum,
    product_update_orders,
    product_update_spectrum,
    spectrum,
    update_spectrum,
)
from saddlescope.measure import arrays as measure_arrays

LIBRARIES = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.asarray}
RELATIVE_UPDATES = (1.0, 1e-2, 1e-4, 1e-6)
TOLERANCE = {"float32": tolerances.SPECTRUM_FROM_SINGLE, "float64": tolerances.SPECTRUM_FROM_DOUBLE}


def error(found, reference):
    """Return the largest error of a singular value, relative to the largest of its matrix."""
    values = np.asarray(found.values if isinstance(found, Spectrum) else found)
    reference = reference[..., : values.shape[-1]]
    return np.max(np.abs(values - reference) / reference[..., :1])


def rotation(size, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]


def update(*factors):
    """Return the spectrum of the update and its dense reference."""
    return [product_update_spectrum(*factors)], [references.product_update(*factors)]


def orders(*factors):
    """Return the spectra of the first and the second order of the update and their dense references."""
    L, R, L0, R0 = (np.asarray(factor).astype(np.longdouble) for factor in factors)
    D, E = L - L0, np.swapaxes(R - R0, -1, -2)
    found = product_update_orders(*factors)
    return [found.first, found.second], [(D @ np.swapaxes(R0, -1, -2) + L0 @ E).astype(float), (D @ E).astype(float)]


BOTH = pytest.mark.parametrize("measured", [update, orders])


@BOTH
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("relative", RELATIVE_UPDATES)
@pytest.mark.parametrize("rank", [None, 2])
def test_update_of_a_product_agrees_with_the_dense_reference(measured, library, dtype, relative, rank):
    found, references_ = measured(*map(LIBRARIES[library], product_factors(relative, dtype, rank=rank)))
    assert found[0].values.shape == (2, 12)
    for one, matrix in zip(found, references_, strict=True):
        assert error(one, references.singular_values(matrix)) < TOLERANCE[dtype]


@BOTH
@pytest.mark.parametrize("shape", [{"h": 18}, {"d": 5}, {"d2": 5}, {"h": 50}])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_update_of_a_small_product_agrees_with_the_dense_reference(measured, shape, dtype):
    given_factors = product_factors(1e-5, dtype, **shape)
    found, references_ = measured(*given_factors)
    assert found[0].values.shape == (2, min(given_factors[0].shape[-2], given_factors[1].shape[-2], 36))
    for one, matrix in zip(found, references_, strict=True):
        assert error(one, references.singular_values(matrix)) < TOLERANCE[dtype]


@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_frozen_factor_costs_no_accuracy(frozen, dtype):
    given_factors = product_factors(1e-6, dtype)
    given_factors[frozen] = given_factors[frozen + 2]
    reference = references.singular_values(references.product_update(*given_factors))
    found = product_update_spectrum(*given_factors)
    assert error(found, reference) < TOLERANCE[dtype]
    assert np.all(found.values[:, 6:] < found.noise_floor[:, None])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("h", [6, 50])
def test_product_agrees_with_the_dense_reference(dtype, h):
    L, R, *_ = product_factors(1.0, dtype, h=h)
    reference = references.singular_values(L.astype(float) @ np.swapaxes(R.astype(float), -1, -2))
    found = product_spectrum(L, R)
    assert found.values.shape == (2, min(36, h))
    assert error(found, reference) < TOLERANCE[dtype]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_matrix_and_its_update_agree_with_the_dense_reference(library, dtype):
    W, W0 = (np.random.default_rng(seed).standard_normal((3, 2, 7, 5)).astype(dtype) for seed in (0, 1))
    W = (W0 + 1e-5 * W).astype(dtype)
    found, update = spectrum(LIBRARIES[library](W)), update_spectrum(LIBRARIES[library](W), LIBRARIES[library](W0))
    assert error(found, references.singular_values(W)) < TOLERANCE[dtype]
    assert error(update, references.singular_values(W.astype(float) - W0.astype(float))) < TOLERANCE[dtype]
    wide = update_spectrum(*(LIBRARIES[library](np.swapaxes(X, -1, -2)) for X in (W, W0)))
    assert error(wide, np.asarray(update.values)) < TOLERANCE[dtype]


def test_zeros_of_a_low_rank_update_in_single_precision_are_below_the_floor():
    """Squares leave about 1e-8 of the largest singular value in place of zeros, below the noise floor."""
    draw = np.random.default_rng(0).standard_normal
    update = draw((60, 2)).astype(np.float32) @ draw((2, 90)).astype(np.float32)
    found = update_spectrum(update, np.zeros_like(update))
    reference = references.singular_values(update.astype(float))
    assert error(found, reference) < tolerances.SPECTRUM_FROM_SINGLE
    assert np.all(found.values[2:] < found.noise_floor)
    assert found.noise_floor < 1e-6 * found.values[1]


@given(seed=st.integers(0, 2**16))
@settings(max_examples=20, deadline=None)
def test_rotations_of_either_side_and_of_the_inner_axis_change_nothing(seed):
    L, R, L0, R0 = product_factors(1e-2, seed=seed)
    U, V, G = rotation(40, seed), rotation(36, seed + 1), rotation(6, seed + 2)
    found = product_update_spectrum(U @ L @ G, V @ R @ G, U @ L0, V @ R0)
    assert error(found, np.asarray(product_update_spectrum(L, R, L0, R0).values)) < tolerances.SPECTRUM_FROM_DOUBLE * 10
    W = L @ np.swapaxes(R, -1, -2)
    assert error(spectrum(U @ W @ V), np.asarray(spectrum(W).values)) < tolerances.SPECTRUM_FROM_DOUBLE


@given(seed=st.integers(0, 2**16), exponents=st.tuples(st.integers(-60, 60), st.integers(-60, 60)))
@settings(max_examples=20, deadline=None)
def test_values_and_floor_scale_with_either_factor(seed, exponents):
    L, R, L0, R0 = product_factors(1e-3, "float32", seed=seed)
    a, b = (np.float32(2.0**k) for k in exponents)
    one, scaled = product_update_spectrum(L, R, L0, R0), product_update_spectrum(a * L, b * R, a * L0, b * R0)
    factor = float(a) * float(b)
    assert error(scaled.values / factor, one.values) < tolerances.SPECTRUM_FROM_SINGLE
    np.testing.assert_allclose(scaled.noise_floor / factor, one.noise_floor, rtol=1e-9)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_batch_is_a_loop(dtype, monkeypatch):
    given_factors = product_factors(1e-3, dtype, batch=(3, 4))
    for chunk in (2**19, 2**11):  # one piece; pieces of two
        monkeypatch.setattr(import_module("saddlescope.measure.arrays"), "_PIECE", chunk)
        found = product_update_spectrum(*given_factors)
        assert found.values.shape == (3, 4, 12)
        assert found.noise_floor.shape == (3, 4)
        for index in np.ndindex(3, 4):
            alone = product_update_spectrum(*(X[index] for X in given_factors))
            assert error(found.values[index], alone.values) < TOLERANCE[dtype]
            np.testing.assert_allclose(found.noise_floor[index], alone.noise_floor, rtol=1e-9)


def test_no_heads_give_no_spectra():
    found = product_update_spectrum(*product_factors(1.0, batch=(0,)))
    assert found.values.shape == (0, 12)
    assert found.noise_floor.shape == (0,)


def test_top_keeps_the_largest():
    given_factors = product_factors(1e-2)
    full = product_update_spectrum(*given_factors)
    np.testing.assert_array_equal(product_update_spectrum(*given_factors, top=3).values, full.values[..., :3])
    assert product_update_spectrum(*given_factors, top=99).values.shape == full.values.shape
    np.testing.assert_array_equal(spectrum(given_factors[0], top=2).values, spectrum(given_factors[0]).values[:, :2])


@pytest.mark.parametrize("library", LIBRARIES)
def test_results_stay_in_the_library_and_in_wide_type(library):
    arrays = [LIBRARIES[library](X) for X in product_factors(1e-2, "float32")]
    for found in (product_update_spectrum(*arrays), spectrum(arrays[0]), update_spectrum(arrays[0], arrays[2])):
        assert type(found.values) is type(found.noise_floor) is type(arrays[0])
        assert str(found.values.dtype).endswith("float64")


def test_without_float64_jax_gets_float32_of_the_same_accuracy():
    given_factors = product_factors(1e-6, "float32")
    reference = references.singular_values(references.product_update(*given_factors))
    with jax.enable_x64(False):
        found = product_update_spectrum(*map(jnp.asarray, given_factors))
    assert found.values.dtype == jnp.float32
    assert error(found, reference) < tolerances.SPECTRUM_FROM_SINGLE


@pytest.mark.parametrize("library", ["jax", "torch"])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("h", [6, 18])
def test_the_accelerator_path_gives_equal_results(library, dtype, h, monkeypatch):
    given_factors = product_factors(1e-4, dtype, h=h, rank=2)
    here = product_update_spectrum(*given_factors)
    by_order, matrix = product_update_orders(*given_factors), spectrum(given_factors[0])
    monkeypatch.setattr(measure_arrays, "is_cpu", lambda device: False)
    there = product_update_spectrum(*map(LIBRARIES[library], given_factors))
    assert str(there.values.dtype).endswith("float64")
    assert error(there, here.values) < TOLERANCE[dtype]
    of_there = product_update_orders(*map(LIBRARIES[library], given_factors))
    for one, other in ((of_there.first, by_order.first), (of_there.second, by_order.second)):
        assert error(one, other.values) < TOLERANCE[dtype]
    np.testing.assert_allclose(np.asarray(there.noise_floor), here.noise_floor, rtol=1e-6)
    assert error(spectrum(LIBRARIES[library](given_factors[0])), matrix.values) < tolerances.SPECTRUM_FROM_DOUBLE


def test_an_accelerator_without_float64_does_its_best(monkeypatch):
    given_factors = product_factors(1e-6, "float32")
    reference = references.singular_values(references.product_update(*given_factors))
    monkeypatch.setattr(measure_arrays, "is_cpu", lambda device: False)
    with jax.enable_x64(False):
        found = product_update_spectrum(*map(jnp.asarray, given_factors))
    assert found.values.dtype == jnp.float32
    assert error(found, reference) < tolerances.SPECTRUM_IN_SINGLE


@pytest.mark.parametrize(
    "half",
    [
        lambda X: X.astype(np.float16),
        lambda X: torch.asarray(X).to(torch.bfloat16),
        lambda X: torch.asarray(X).half(),
        lambda X: jnp.asarray(X, dtype=jnp.bfloat16),
    ],
)
def test_half_precision_is_upcast_before_anything_else(half):
    def in_single(X):
        return X.float() if isinstance(X, torch.Tensor) else X.astype("float32")

    halves = [half(X) for X in product_factors(0.3, "float32")]
    found, upcast = product_update_spectrum(*halves), product_update_spectrum(*map(in_single, halves))
    np.testing.assert_array_equal(np.asarray(found.values), np.asarray(upcast.values))
    assert np.all(np.asarray(found.noise_floor) > 1000 * np.asarray(upcast.noise_floor))
    assert error(spectrum(halves[0]), np.asarray(spectrum(in_single(halves[0])).values)) == 0


@pytest.mark.parametrize("stored", ["float32", "float16"])
@pytest.mark.parametrize("relative", [1.0, 0.3, 1e-2])
def test_the_noise_floor_is_the_effect_of_rounding_the_weights(stored, relative):
    exact = product_factors(relative, batch=(4,), d=120, d2=90, h=10)
    rounded = [X.astype(stored) for X in exact]
    for measured in (update, orders) if relative == 0.3 else (update,):
        for one, with_rounding, without in zip(*measured(*rounded), measured(*exact)[1], strict=True):
            norms = references.singular_values(with_rounding - without)[..., 0]
            assert np.all(norms < one.noise_floor)
            assert np.all(one.noise_floor < 4 * norms)

    W, W0 = np.swapaxes(exact[0], -1, -2) + 1.0, np.swapaxes(exact[2], -1, -2)
    noise = (W.astype(stored) - W) - (W0.astype(stored) - W0)
    floor = np.asarray(update_spectrum(W.astype(stored), W0.astype(stored)).noise_floor)
    assert np.all(references.singular_values(noise)[..., 0] < floor)
    assert np.all(floor < 3 * references.singular_values(noise)[..., 0])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("h", [6, 30])
def test_zeros_of_an_exactly_low_rank_update_are_below_the_floor(dtype, h):
    small = np.random.default_rng(0).integers(-3, 4, (2, 4, 50, 2)) @ np.eye(2, h)  # integers: no rounding
    L, R = small.astype(dtype)
    found = product_update_spectrum(L, R, np.zeros_like(L), np.zeros_like(R))
    assert np.all(found.values[:, 1] > 1)
    assert np.all(found.values[:, 2] < found.noise_floor)
    assert np.all(found.noise_floor < 1e-5 * found.values[:, 0])
    found = spectrum(np.concatenate([L, L], axis=-1))
    assert np.all(found.values[:, 2] < found.noise_floor)


def singular_factors():
    """Left factors [L - L0, L0] of every kind of exact and near dependence between columns."""
    draw, d, h = np.random.default_rng(1).standard_normal, 200, 16
    yield np.full((d, h), 0.1), np.full((d, h), 0.3)
    yield np.outer(draw(d), draw(h)), draw((d, h))
    yield np.outer(np.abs(draw(d)), np.abs(draw(h))), np.outer(np.abs(draw(d)), np.abs(draw(h)))
    yield draw((d, 3)) @ draw((3, h)), np.zeros((d, h))
    yield 1 / (np.arange(d)[:, None] + np.arange(h) + 1), 1 / (np.arange(d)[:, None] + np.arange(h) + 17)
    yield np.linspace(0, 1, d)[:, None] ** np.arange(h), np.linspace(0, 1, d)[:, None] ** np.arange(h, 2 * h)
    yield np.exp(5 * draw((d, 1))) * draw((d, h)), np.exp(5 * draw((d, 1))) * draw((d, h))
    yield np.eye(d, h), np.eye(d, h)


@pytest.mark.parametrize("pair", list(singular_factors()))
def test_dependent_columns_do_not_change_the_spectrum(pair):
    step, L0 = (X.astype("float32") for X in pair)
    R0 = np.random.default_rng(2).standard_normal(L0.shape).astype("float32")
    arrays = [L0 + step, 2 * R0, L0, R0]
    reference = references.singular_values(references.product_update(*arrays))
    assert error(product_update_spectrum(*arrays), reference) < tolerances.SPECTRUM_FROM_SINGLE


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("library", LIBRARIES)
def test_no_update_is_exactly_zero(dtype, library):
    L, R, *_ = (LIBRARIES[library](X) for X in product_factors(1.0, dtype))
    for found in (
        product_update_spectrum(L, R, L, R),
        product_spectrum(L * 0, R),
        product_spectrum(L * 0, R * 0),
        update_spectrum(L, L),
        spectrum(L * 0),
    ):
        assert np.all(np.asarray(found.values) == 0)
        assert np.all(np.isfinite(np.asarray(found.noise_floor)))


@pytest.mark.parametrize(
    ("dtype", "scale"), [("float32", 1e-30), ("float32", 1e30), ("float64", 1e-140), ("float64", 1e140)]
)
def test_tiny_and_huge_weights_neither_vanish_nor_overflow(dtype, scale):
    scaled = [(X * scale).astype(dtype) for X in product_factors(1e-2)]
    reference = references.singular_values(references.product_update(*(X.astype(float) / scale for X in scaled)))
    found = product_update_spectrum(*scaled)
    assert error(found.values / scale / scale, reference) < TOLERANCE[dtype]
    assert np.all(found.noise_floor > 0)
    assert np.all(np.isfinite(found.noise_floor))


def test_gradients_are_not_followed():
    weight = torch.nn.Parameter(torch.ones(3, 2))
    found = product_update_spectrum(weight, weight, weight.detach(), weight.detach())
    assert not found.values.requires_grad


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
