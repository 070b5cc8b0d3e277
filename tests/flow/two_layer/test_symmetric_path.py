"""One symmetric flow with its series: against the batched flow, long doubles, and its roots."""

import numpy as np
import pytest

from saddlescope.flow import symmetric_flows, symmetric_path

A = np.array([1.0, 2.25, 4.84]) / 3 + 0.05**2  # Figure 8
START = 0.1 * np.random.default_rng(7).standard_normal((3, 3))


def test_it_is_the_batched_flow():
    times = np.linspace(0, 25, 40)
    path = symmetric_path(A, START, until=25.0, tolerance=1e-11)
    flows = symmetric_flows(A, START[None], test_point=np.ones(3), until=25.0, record=times, tolerance=1e-11)
    np.testing.assert_allclose(path(times), flows.W[0], atol=1e-12)
    np.testing.assert_allclose(path(3.0), path([1.0, 3.0])[1:], atol=0)
    assert "to t = 25" in repr(path)


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4])
def test_crossings_and_turns_against_a_fine_grid(scale):
    path = symmetric_path(A, scale * START, until=30.0, tolerance=1e-11)
    times = np.linspace(0, 30, 60_001)
    W = path(times)
    for i, j in np.argwhere(np.triu(np.ones((3, 3)))).tolist():
        w = W[:, i, j]
        for level in (0.5, 0.3 * float(np.abs(w).max()), -0.3 * float(np.abs(w).max())):
            seen = times[np.flatnonzero((w[1:] - level) * (w[:-1] - level) < 0)]
            found = path.crossings(i, j, level)
            np.testing.assert_allclose(found, seen, atol=6e-4)
            np.testing.assert_allclose(path(found)[:, i, j], level, atol=1e-14)
        v = np.diff(w)
        clear = np.abs(w[1:-1]) > 1e-6 * np.abs(w).max()  # what is smaller is rounding on the grid
        seen = times[1:-1][(v[1:] * v[:-1] < 0) & clear & (np.abs(w[1:-1] - (i == j)) > 1e-9)]
        turns = path.turns(i, j)
        turns = turns[np.abs(path(turns)[:, i, j]) > 1e-6 * np.abs(w).max()]
        np.testing.assert_allclose(turns, seen, atol=1e-3)


def test_the_half_of_a_diagonal_start_is_where_its_closed_form_says():
    sizes = np.array([1e-3, 1e-2, 0.3])
    path = symmetric_path(A, np.diag(sizes), until=20.0, tolerance=1e-11)
    for k, s in enumerate(sizes**2):
        for level in (0.1, 0.5, 0.9):
            time = np.log((1 / s - 1) * level / (1 - level)) / (4 * A[k])
            np.testing.assert_allclose(path.crossings(k, k, level), [time], atol=1e-10)
        assert len(path.turns(k, k)) == 0
    assert len(path.turns(0, 1)) == 0
    assert len(path.crossings(0, 1, 0.5)) == 0


def test_a_wide_start_is_that_of_its_map():
    wide = np.random.default_rng(1).standard_normal((3, 7)) / 30
    square = np.linalg.cholesky(wide @ wide.T)
    one, other = (symmetric_path(A, U, until=20.0, tolerance=1e-11) for U in (wide, square))
    np.testing.assert_allclose(one(np.arange(20.0)), other(np.arange(20.0)), atol=1e-11)
    np.testing.assert_allclose(one.turns(0, 1), other.turns(0, 1), atol=1e-8)


def test_what_is_learned_stays():
    path = symmetric_path(A, START, until=500.0, tolerance=1e-11)
    assert path.edges[-1] < 100
    np.testing.assert_allclose(path([100.0, 500.0]), np.broadcast_to(np.eye(3), (2, 3, 3)), atol=2e-12)
