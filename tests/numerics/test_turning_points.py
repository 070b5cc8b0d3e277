"""Turning points of polynomials constructed from their roots, and roots along a step."""

import numpy as np

from saddlescope.numerics.step_roots import root_along
from saddlescope.numerics.turning_points import bernstein, persistent, sign_changes, turning_points


def _from_roots(*roots):
    return np.polynomial.polynomial.polyfromroots(roots)


def _inside(coefficients):
    owners, places = turning_points(coefficients)
    return [sorted(places[owners == i]) for i in range(coefficients.shape[1])]


def test_all_roots_in_the_interval_are_found():
    roots = [(0.1, 0.2, 0.9), (0.5, 0.5000001, -1.0), (0.5, 2.0, 3.0), (-0.1, 1.1, 7.0), (0.25, 0.5, 0.75)]
    found = _inside(np.stack([_from_roots(*r) for r in roots], axis=1))
    for places, r in zip(found, roots, strict=True):
        np.testing.assert_allclose(places, [x for x in r if 0 < x < 1], atol=1e-9)


def test_a_touched_zero_is_no_turn():
    polynomials = np.stack(
        [_from_roots(0.5, 0.5), _from_roots(0.3, 0.3), np.array([1.0, 0.0, 0.0]), np.zeros(3)], axis=1
    )
    assert _inside(polynomials) == [[], [], [], []]


def test_bernstein_ends_and_signs():
    b = bernstein(np.stack([_from_roots(0.5, 3.0), np.array([1.0, 2.0, 3.0])], axis=1))
    np.testing.assert_allclose(b[[0, -1]], [[1.5, 1.0], [-1.0, 6.0]])
    np.testing.assert_array_equal(sign_changes(b), [1, 0])
    np.testing.assert_array_equal(sign_changes(np.array([[1.0], [0.0], [0.0], [-1.0]])), [1])


def test_ripples_are_smoothed_smallest_first():
    values = np.array([1.0, 1.05, 0.2, 0.6, 0.58, 0.9, 0.001, 0.5])
    owners = np.array([0, 0, 0, 0, 0, 0, 0, 1])
    keep = persistent(owners, values, np.array([2.0, 1.0]), np.array([0.0, 0.0]), 0.1)
    np.testing.assert_array_equal(values[keep], [0.2, 0.9, 0.5])
    assert persistent(owners, values, np.array([2.0, 1.0]), np.array([0.0, 0.0]), 0.0).all()


def test_a_root_along_a_step_is_found_to_rounding_and_one_just_outside_is_its_end():
    np.testing.assert_allclose(root_along(lambda t: t**3 - 2, 1.0, 2.0), 2 ** (1 / 3), rtol=1e-15)
    assert root_along(lambda t: 1e-200 * (t - 0.25), 0.0, 1.0) == 0.25
    assert root_along(lambda t: t + 1e-16, 0.0, 1.0) == 0
    assert root_along(lambda t: t - 1 - 1e-16, 0.0, 1.0) == 1
