"""Power-law tails: recovery of a known exponent, invariances, and the package `powerlaw`."""

import warnings

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.measure import power_law_tail


def spectra(alpha, size, count=1, seed=0):
    """Return singular values whose squares are Pareto with this exponent of the density."""
    uniform = np.random.default_rng(seed).random((count, size))
    return np.sqrt(uniform ** (-1 / (alpha - 1)))


@pytest.mark.parametrize("alpha", [1.5, 2.5, 4.0])
def test_a_known_exponent_is_recovered_within_its_error(alpha):
    found = power_law_tail(spectra(alpha, 4000, count=8))
    assert (found.count > 400).all()
    z = (found.alpha - alpha) / found.error
    assert abs(z).max() < 5  # the start is chosen from the data, so the spread is wider than 1
    assert 0.2 < abs(z).mean() < 2


@pytest.mark.parametrize("seed", range(6))
def test_the_package_powerlaw_finds_the_same(seed):
    powerlaw = pytest.importorskip("powerlaw")
    s = np.concatenate([spectra(2.2, 40, seed=seed)[0], np.random.default_rng(seed).random(30)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Version 2 allows no exponent above 3 by default; above 3 it maximises the likelihood numerically.
        fit = powerlaw.Fit(s**2, parameter_ranges={"alpha": [1, 20]}, verbose=False)
        expected = (fit.alpha, fit.xmin, fit.D, fit.sigma)
    found = power_law_tail(s)
    np.testing.assert_allclose(
        (found.alpha, found.start, found.distance, found.error), [float(one) for one in expected], rtol=1e-5
    )


def test_the_fit_by_hand():
    """Eigenvalues 1, e and e^2: the tail of all three has alpha = 1 + 3 / 3, that of two has 1 + 2 / 1."""
    found = power_law_tail(np.exp([1.0, 0.0, 0.5]))
    whole = max(0.0, abs(1 - np.exp(-1.0) - 1 / 3), abs(1 - np.exp(-2.0) - 2 / 3))
    two = max(0.0, abs(1 - np.exp(-2.0) - 1 / 2))
    assert whole < two
    assert found.alpha == pytest.approx(2)
    assert found.distance == pytest.approx(whole)
    assert found.start == pytest.approx(1)
    assert found.count == 3
    assert found.error == pytest.approx(1 / np.sqrt(3))


def test_units_order_and_batches_do_not_matter():
    s = spectra(2.0, 100, count=6)
    found = power_law_tail(s)
    scaled = power_law_tail(1e-200 * s[:, ::-1])
    np.testing.assert_allclose(scaled.alpha, found.alpha, rtol=1e-9)
    np.testing.assert_array_equal(scaled.count, found.count)
    batched = power_law_tail(s.reshape(2, 3, 100))
    assert batched.alpha.shape == (2, 3)
    np.testing.assert_array_equal(batched.alpha.ravel(), found.alpha)
    assert power_law_tail(s[0]).alpha == found.alpha[0]


def test_values_below_the_level_are_ignored():
    s = spectra(2.0, 100, count=2)
    noise = np.full((2, 50), 1e-3) * np.linspace(1, 2, 50)
    together = np.concatenate([s, noise], axis=1)
    np.testing.assert_array_equal(power_law_tail(together, level=np.full(2, 0.01)).alpha, power_law_tail(s).alpha)
    assert (power_law_tail(together, level=0.01).count <= 100).all()


def test_spectra_without_a_tail():
    s = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [np.nan] * 3, [3.0, 2.0, 1.0]])
    found = power_law_tail(s)
    assert np.isnan(found.alpha).tolist() == [True, True, True, False]
    assert found.count.tolist()[:3] == [0, 0, 0]


def test_bad_input():
    with pytest.raises(InputError, match="values must be at least 0 and finite, or NaN"):
        power_law_tail(np.array([1.0, -1.0]))
    with pytest.raises(InputError, match=r"values must have shape \(..., r\) with at least one value; got \(\)"):
        power_law_tail(np.array(1.0))
    with pytest.raises(InputError, match=r"level must be a number or have shape \(2,\); got \(3,\)"):
        power_law_tail(np.ones((2, 3)), level=np.ones(3))
    with pytest.raises(InputError, match="must be real numbers"):
        power_law_tail(["one"])


@pytest.mark.parametrize(
    ("values", "alpha", "start", "distance"),
    [
        (lambda k: k**-0.7, 1.7272619358584218, 0.000600562216990716, 0.006623054542484241),
        (lambda k: np.exp(-k / 40), 1.2010050251256281, 4.539992976248485e-05, 0.1551600524394845),
        (lambda k: (1 + k / 30) ** -2, 1.3626407063464496, 0.00028945008058147304, 0.06335762204952072),
    ],
)
def test_weightwatcher_finds_the_same_by_its_stated_values(values, alpha, start, distance):
    """Alpha, xmin and D of weightwatcher 0.7.7 (`WW_powerlaw.WWFit` of the squares), for 200 singular values."""
    found = power_law_tail(values(np.arange(1, 201.0)))
    np.testing.assert_allclose((found.alpha, found.start, found.distance), (alpha, start, distance), rtol=1e-9)
