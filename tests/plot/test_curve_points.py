import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from saddlescope.plot import corners


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1.0))
def test_corners_leave_the_curve_within_the_tolerance(seed, tolerance):
    rng = np.random.default_rng(seed)
    x, y = np.cumsum(rng.uniform(0.01, 1, 60)), np.cumsum(rng.standard_normal(60))
    kept = corners(x, y, tolerance)
    assert np.abs(np.interp(x, x[kept], y[kept]) - y).max() <= tolerance * (1 + 1e-9)


def test_corners_of_a_staircase_are_its_corners():
    x = np.linspace(0, 1, 101)
    y = np.where(x < 0.5, 0.0, 1.0)
    assert corners(x, y, 1e-3).tolist() == [0, 49, 50, 100]
