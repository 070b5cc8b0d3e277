import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tolerances
from saddlescope.measure import effective_rank, energy_rank, numerical_rank, stable_rank

LIBRARIES = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.asarray}
RANKS = {
    "stable": stable_rank,
    "effective": effective_rank,
    "numerical": lambda values: numerical_rank(values, level=values[..., 0] * 1e-3),
    "energy": lambda values: energy_rank(values, fraction=0.9),
}
spectra = arrays(float, st.integers(1, 12), elements=st.floats(0, 1e3)).map(lambda s: np.sort(s)[::-1].copy())


@pytest.mark.parametrize("name", RANKS)
def test_equal_singular_values_count_each_and_zeros_do_not(name):
    for r in (1, 3, 10):
        s = np.concatenate([np.full(r, 2.5), np.zeros(4)])
        np.testing.assert_allclose(RANKS[name](s), 9 if (name, r) == ("energy", 10) else r, rtol=tolerances.RANK)
        assert energy_rank(s, fraction=1.0) == r


@pytest.mark.parametrize("name", RANKS)
@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-200, 1e200, 1e300])
def test_zero_has_rank_zero_and_no_scale_overflows(name, scale):
    s = np.array([4.0, 2.0, 1.0, 0.0])
    expected = RANKS[name](s) if scale else 0
    np.testing.assert_allclose(RANKS[name](s * scale), expected, rtol=tolerances.RANK)


@given(s=spectra, exponent=st.integers(-300, 300))
@settings(max_examples=50, deadline=None)
@pytest.mark.parametrize("name", ["stable", "effective", "energy"])
def test_scale_and_order_do_not_matter(name, s, exponent):
    s = np.where(s < 1e-6, 0.0, s)
    rank = RANKS[name](s)
    np.testing.assert_allclose(RANKS[name](s * 2.0**exponent), rank, rtol=tolerances.RANK)
    np.testing.assert_allclose(RANKS[name](s[::-1].copy()), rank, rtol=tolerances.RANK)


@given(s=spectra)
@settings(max_examples=50, deadline=None)
def test_ranks_lie_between_one_and_the_true_rank_in_their_order(s):
    true = np.count_nonzero(s)
    stable, effective, energy = stable_rank(s), effective_rank(s), energy_rank(s, fraction=0.9)
    assert (true > 0) * (1 - 1e-12) <= stable <= true + 1e-9
    assert (true > 0) * (1 - 1e-12) <= effective <= true + 1e-9
    assert (true > 0) <= energy <= energy_rank(s, fraction=1.0) <= true
    assert stable <= effective**2 * (1 + 1e-9)  # sum s^2 / max^2 <= (sum s / max)^2, and sum s / max <= exp(entropy)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", RANKS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_libraries_and_batches(library, name, dtype):
    s = np.sort(np.random.default_rng(0).random((2, 3, 5)).astype(dtype), axis=-1)[..., ::-1].copy()
    given_array = LIBRARIES[library](s)
    found = RANKS[name](given_array)
    assert type(found) is type(given_array)
    assert found.shape == (2, 3)
    for index in np.ndindex(2, 3):
        np.testing.assert_allclose(np.asarray(found)[index], RANKS[name](s[index].astype(float)), rtol=1e-9)


def test_level_may_be_given_for_each_matrix():
    s = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    assert numerical_rank(s, level=np.array([0.5, 2.0])).tolist() == [3, 1]
    assert numerical_rank(s, level=np.float32(2.5)).tolist() == [1, 1]
