"""Numbers of the trajectories of Figure 6: exact curves, and reference implementations by brute force."""

import numpy as np
import pytest

from saddlescope.papers.concept_learning.figure_6 import curves

STEPS = np.geomspace(50, 5000, 60)


def test_error_is_the_mean_over_concepts():
    np.testing.assert_allclose(curves.error(np.array([[0.0, 1.0], [0.5, -1.0]])), [0.5, (0.25 + 4.0) / 2])


def test_learned_between_records_by_the_logarithm_of_steps():
    path = np.stack([np.log(STEPS / 50) / np.log(100), np.zeros(60)], axis=1)  # linear in log step
    found = curves.learned_at(path, STEPS)
    assert found[0] == pytest.approx(50 * 100**0.75, rel=1e-12)
    assert found[1] == np.inf


def test_learned_for_good_skips_missing_records_and_passing_rises():
    path = np.array([[0.9, 0.9], [np.nan, 0.2], [0.5, 0.8], [0.8, 0.1], [0.9, 0.85]])
    steps = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    found = curves.learned_at(path, steps)
    assert found[0] == pytest.approx(4 * 2 ** (0.25 / 0.3))
    assert found[1] == pytest.approx(8 * 2 ** (0.65 / 0.75))
    assert curves.learned_at(path[:4], steps[:4])[1] == np.inf  # passed, and forgotten
    assert curves.learned_at(path[:1], steps[:1]).tolist() == [1.0, 1.0]  # above from the first record on


def test_lead_counts_once_a_concept_is_learned_and_has_the_sign_of_who_is_ahead():
    path = np.array([[np.nan, 0.0], [0.9, 0.1], [0.5, 0.7], [0.3, 0.8], [0.6, 0.9], [1.0, 1.0]])
    assert curves.lead(path) == pytest.approx(-0.5)
    assert curves.lead(path[:, ::-1]) == pytest.approx(0.5)
    assert np.isnan(curves.lead(0.5 * path))
    assert np.isnan(curves.lead(np.nan * path))


@pytest.mark.parametrize("seed", range(20))
def test_largest_rise_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    curve = np.cumsum(rng.standard_normal(12)) - (2 * np.arange(12) if seed % 4 == 0 else 0)
    curve[rng.random(12) < 0.2] = np.nan
    pairs = [(curve[j] - curve[i], i, j) for i in range(12) for j in range(i + 1, 12)]
    best = max(pair for pair in pairs if np.isfinite(pair[0]))
    assert curves.largest_rise(curve) == best[1:]


def test_speeds_are_distances_over_steps():
    path = np.stack([0.6e-3 * STEPS, 0.8e-3 * STEPS], axis=1)
    path[3] = np.nan
    at, speed = curves.speeds(path, STEPS)
    np.testing.assert_allclose(speed, 1e-3, rtol=1e-12)
    assert np.all(at[1:] / at[:-1] > 1.2)  # not closer than a quarter, but for rounding of the records
    assert 50 < at[0] < at[-1] < 5000


@pytest.mark.parametrize(("law", "rate"), [("exponential", 2e-3), ("power", 1.5)])
def test_approach_finds_its_own_law(law: curves.Law, rate):
    steps = np.linspace(500, 4000, 30)
    decay = np.exp(-rate * (steps - 500)) if law == "exponential" else (steps / 500) ** -rate
    curve = 0.97 - 0.4 * decay
    other: curves.Law = "power" if law == "exponential" else "exponential"
    found, wrong = curves.fit_approach(curve, steps, law), curves.fit_approach(curve, steps, other)
    assert found.resolved
    assert found.rate == pytest.approx(rate, rel=0.02)
    assert (found.end, found.gap) == (pytest.approx(0.97, abs=2e-3), pytest.approx(0.4, rel=0.01))
    assert np.sum((found.at(steps) - curve) ** 2) < 1e-3 * np.sum((wrong.at(steps) - curve) ** 2)


def test_straight_line_and_fall_resolve_no_rate():
    steps = np.linspace(500, 4000, 30)
    assert not curves.fit_approach(1e-4 * steps, steps, "exponential").resolved
    assert not curves.fit_approach(np.exp(-2e-3 * steps), steps, "exponential").resolved


def test_terminal_phase_is_the_slower_concepts():
    path = np.stack([np.minimum(STEPS / 200, 1), np.minimum(STEPS / 2000, 1)], axis=1)
    found = curves.terminal_phase(path, STEPS)
    mirrored = curves.terminal_phase(path[:, ::-1], STEPS)
    assert found is not None and mirrored is not None  # noqa: PT018
    assert (found.concept, mirrored.concept) == (1, 0)
    assert STEPS[found.records][0] >= 1000 > STEPS[found.records.start - 1]
    assert found.records.stop == len(STEPS)
    assert curves.terminal_phase(0.3 * path, STEPS) is None  # never half-way
    assert curves.terminal_phase(path[:42], STEPS[:42]) is None  # too few records are left
