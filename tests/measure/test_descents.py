"""Descents of a loss: by hand, and laws of hysteresis."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from saddlescope.measure import find_descents

ZIGZAG = np.array([1.0, 0.4, 0.7, 0.2, 0.21, 0.0])


def test_by_hand():
    found = find_descents(np.stack([ZIGZAG, [1.0, 2.0, 1.5, 1.6, 0.0, 0.0], np.ones(6), np.arange(1.0, 7.0)]))
    np.testing.assert_array_equal(found.counts, [3, 2, 0, 0])
    np.testing.assert_allclose(found.rises, [[0, 0.3, 0.01], [1, 0.1, 0], [0, 0, 0], [0, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(found.falls, [[0.6, 0.5, 0.21], [0.5, 1.6, 0], [0, 0, 0], [0, 0, 0]], atol=1e-15)


def test_hysteresis_is_a_part_of_the_first_loss():
    for factor in (1.0, 1e-6, 1e6):
        counts = [int(find_descents(factor * ZIGZAG, hysteresis=h).counts[0]) for h in (0.0, 0.02, 0.31, 0.99)]
        assert counts == [3, 2, 1, 1]
    assert find_descents([1.0, 0.5], hysteresis=0.6).counts[0] == 0


def test_sampling_does_not_matter():
    """Curves through the same extrema have equal counts at any sampling density."""
    t = np.linspace(0, 1, 1001)
    dense = np.interp(t, np.linspace(0, 1, len(ZIGZAG)), ZIGZAG)
    one, other = find_descents(ZIGZAG, hysteresis=0.015), find_descents(dense, hysteresis=0.015)
    np.testing.assert_array_equal(one.counts, other.counts)
    np.testing.assert_allclose(one.rises, other.rises, atol=1e-12)
    np.testing.assert_allclose(one.falls, other.falls, atol=1e-12)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(0, 30))
def test_laws(values, least):
    """Rises and falls between descents exceed the hysteresis, a larger one gives no more descents, and all sum up."""
    losses = np.array([50.0, *values])
    found = find_descents(losses, hysteresis=least / 50)
    k = int(found.counts[0])
    assert np.all(found.falls[0] > least - 1e-9)
    assert np.all(found.rises[0, 1:k] > least - 1e-9)
    assert k <= find_descents(losses, hysteresis=max(least - 3, 0) / 50).counts[0]
    lowest = 50 + np.sum(found.rises) - np.sum(found.falls)
    if k:
        assert lowest in losses
    if least == 0:
        steps = np.sign(np.diff(losses))
        steps = steps[steps != 0]
        assert k == np.sum(np.diff(np.concatenate([[1.0], steps])) < 0)
