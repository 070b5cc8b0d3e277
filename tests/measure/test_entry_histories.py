"""Histories of entries: on paths in closed form, and on flows against the independent theory."""

import math

import numpy as np
import pytest

from saddlescope.flow import symmetric_path
from saddlescope.measure import EntryKind, compare, entry_histories
from saddlescope.theory.concepts import concept_stages

FIGURE_8 = np.array([1.0, 2.25, 4.84]) / 3 + 0.05**2


class Parabola:
    """Path W(t) = [[t/10, m], [m, 0]] with m = -t (4 - t) / 10, on [0, 10]: all roots by hand."""

    until = 10.0

    def __call__(self, times):
        t = np.atleast_1d(np.asarray(times, float))
        m = -t * (4 - t) / 10
        return np.stack([np.stack([t / 10, m], -1), np.stack([m, 0 * t], -1)], -1)

    def crossings(self, i, j, level):
        if i == j:
            return np.array([10 * level]) if i == 0 and 0 < level < 1 else np.zeros(0)
        roots = np.roots([1.0, -4.0, -10 * level])  # t (t - 4) / 10 = level
        real = np.sort(roots[np.isreal(roots)].real)
        return real[(real > 0) & (real < 10)]

    def turns(self, i, j):
        return np.array([2.0]) if i != j else np.zeros(0)


def test_the_roots_of_a_parabola():
    found = entry_histories(Parabola(), [1.0, 0.0], level=0.25)
    major, minor, rest = (found[e] for e in ((0, 0), (1, 0), (1, 1)))
    assert (major.kind, minor.kind, rest.kind) == (EntryKind.MAJOR, EntryKind.MINOR, EntryKind.IRRELEVANT)
    np.testing.assert_allclose([major.grows, major.top, major.settles], [2.5, 5.0, 7.5])
    assert minor.groups == (0,)
    assert (minor.top, minor.height, minor.settles) == (math.inf, 6.0, math.inf)  # larger at the end than at the turn
    np.testing.assert_allclose(minor.grows, 2 + math.sqrt(19))  # t (t - 4) = 15
    assert (rest.height, rest.grows, rest.settles) == (0.0, math.inf, 0.0)
    np.testing.assert_allclose(found.staircase.times, [5.0], rtol=1e-12)
    assert found.staircase.supports == ((), (0,))


def test_a_minor_entry_from_rise_to_suppression():
    a, U = [1.0, 0.25], np.array([[1e-3, 0.0], [-1e-3, 1e-3]])
    path = symmetric_path(a, U, until=25.0, tolerance=1e-11)
    entry = entry_histories(path, a, level=0.2)[0, 1]
    assert entry.groups == (0, 1)
    assert entry.height < 0
    assert 0 < entry.grows < entry.top < entry.settles
    np.testing.assert_allclose(path([entry.grows, entry.settles])[:, 0, 1], 0.2 * entry.height, rtol=1e-9)
    times = np.linspace(0, 25, 100_001)
    w = path(times)[:, 0, 1]
    assert entry.height == pytest.approx(w.min(), rel=1e-7)  # the grid is that fine
    assert abs(entry.top - times[np.argmin(w)]) < 3e-4
    assert np.all(np.abs(w[times > entry.settles]) <= 0.2 * abs(entry.height))


@pytest.mark.parametrize(("scale", "within"), [(1e-3, 0.02), (1e-5, 1e-3)])
def test_the_staircase_is_the_predicted_one(scale, within):
    U = scale * np.random.default_rng(4).standard_normal((3, 3))
    predicted = concept_stages(FIGURE_8, U)
    found = entry_histories(symmetric_path(FIGURE_8, U, until=40.0, tolerance=1e-11), FIGURE_8)
    result = compare(predicted.staircase, found.staircase)
    assert (len(result.matches), result.missed, result.extra) == (3, (), ())
    for k in range(3):
        assert abs(found[k, k].top - predicted.times[k]) < within
    np.testing.assert_allclose(found.staircase.times, sorted(found[k, k].top for k in range(3)), rtol=1e-12)
    np.testing.assert_allclose(
        result.loss_errors, 0, atol=0.04
    )  # plateaus are short; their levels differ by .17 or more


def test_a_lower_rank_never_learns_the_weakest():
    U = 1e-2 * np.random.default_rng(0).standard_normal((3, 2))
    found = entry_histories(symmetric_path(FIGURE_8, U, until=60.0, tolerance=1e-11), FIGURE_8)
    assert found[0, 0].top == math.inf
    assert found[0, 0].settles == math.inf
    assert found.staircase.supports[-1] == (1, 2)
