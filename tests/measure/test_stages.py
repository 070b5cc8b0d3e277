import math

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tolerances
from saddlescope.measure import Spectrum, Stage, Staircase, find_stages

ALPHA, LEVEL = 1e-12, 1e-3
RATES = np.array([2.0, 0.5, 1.0])  # components 0, 2 and 1 arrive, in this order
CROSSINGS = np.log(LEVEL / ALPHA) / RATES
FINAL = np.array([1.0, 0.5, 0.7])
PLATEAUS = [np.sum(FINAL**2), FINAL[1] ** 2 + FINAL[2] ** 2, FINAL[1] ** 2, 0.0]


def logistic(t):
    """Growth from ALPHA at RATES to FINAL, and the loss sum (FINAL - activity)^2."""
    growth = ALPHA * np.exp(np.outer(t, RATES))
    activity = growth / (1 + growth / FINAL)
    return activity, np.sum((FINAL - activity) ** 2, axis=1)


def logistic_crossings(level):
    return np.sort(np.log(level / ALPHA / (1 - level / FINAL)) / RATES)


def test_attributes_of_a_staircase():
    stages = (Stage(0.0, 2.0, 1.0, 0, ()), Stage(2.0, 5.0, 0.5, 1, (4,)), Stage(5.0, math.inf, 0.0, 3, (1, 3, 4)))
    staircase = Staircase(stages, "steps")
    assert staircase.times == (2.0, 5.0)
    assert staircase.losses == (1.0, 0.5, 0.0)
    assert staircase.ranks == (0, 1, 3)
    assert staircase.supports == ((), (4,), (1, 3, 4))
    assert staircase.layer_ranks == (None, None, None)
    assert len(staircase) == 3
    assert repr(staircase) == "Staircase(3 stages, rank 0 to 3, loss 1 to 0, time 0 to inf in 'steps')"


def test_exponential_growth_is_located_exactly_between_coarse_samples():
    t = np.array([0.0, 3.0, 7.7, 12.0, 18.5, 24.0, 33.0, 47.0])
    activity = ALPHA * np.exp(np.outer(t, RATES))
    found = find_stages(t, -t, activity, level=LEVEL, time_unit="t")
    np.testing.assert_allclose(found.times, np.sort(CROSSINGS), rtol=tolerances.CROSSING)
    assert found.supports == ((), (0,), (0, 2), (0, 1, 2))
    assert (found.stages[0].start, found.stages[-1].end) == (0.0, 47.0)


def test_exponential_decay_is_located_exactly_too():
    t = np.array([0.0, 10.0, 26.0])
    found = find_stages(t, t, -np.exp(-t)[:, None], level=math.exp(-14), time_unit="t")
    np.testing.assert_allclose(found.times, [14.0], rtol=tolerances.CROSSING)
    assert found.supports == ((0,), ())


def test_components_entering_within_one_sample_are_ordered_by_their_crossings():
    t = np.array([0.0, 100.0])
    rates = np.array([0.30, 0.32, 0.31])
    found = find_stages(t, t, ALPHA * np.exp(np.outer(t, rates)), level=LEVEL, time_unit="t")
    assert found.supports == ((), (1,), (1, 2), (0, 1, 2))
    np.testing.assert_allclose(found.times, np.log(LEVEL / ALPHA) / rates[[1, 2, 0]], rtol=tolerances.CROSSING)


def test_exact_ties_make_one_stage():
    activity = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 2.0]])
    found = find_stages([0, 1, 2], [1, 1, 0], [*activity, activity[-1]][:3], level=0.5, time_unit="steps")
    assert len(found) == 1  # 0 extends to the last sample
    found = find_stages([0, 1, 2, 3], [1, 1, 0, 0], np.vstack([activity, activity[-1]]), level=0.5, time_unit="steps")
    assert found.times == (2.0,)
    assert found.ranks == (0, 2)


@pytest.mark.parametrize("samples", [400, 4000])
def test_logistic_staircase_has_the_right_times_and_levels(samples):
    t = np.linspace(0, 80, samples)
    activity, loss = logistic(t)
    found = find_stages(t, loss, activity, level=LEVEL, time_unit="t")
    np.testing.assert_allclose(found.times, logistic_crossings(LEVEL), atol=1e-4)
    np.testing.assert_allclose(found.losses, PLATEAUS, atol=1e-4)


@given(scale=st.floats(0.01, 100), shift=st.floats(-50, 50), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_time_signs_and_columns_may_be_relabelled(scale, shift, seed):
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0, 60, 300))
    activity, loss = logistic(t)
    order, signs = rng.permutation(3), rng.choice([-1.0, 1.0], 3)
    one = find_stages(t, loss, activity, level=LEVEL, time_unit="t", min_duration=0.5)
    moved = scale * t + shift
    other = find_stages(moved, loss, activity[:, order] * signs, level=LEVEL, time_unit="t", min_duration=0.5 * scale)
    np.testing.assert_allclose(other.times, scale * np.array(one.times) + shift, rtol=1e-9, atol=1e-9)
    assert other.supports == tuple(tuple(sorted(np.argsort(order)[list(s)].tolist())) for s in one.supports)
    np.testing.assert_allclose(other.losses, one.losses, atol=1e-3)


def test_a_component_that_leaves_and_returns_starts_stages():
    t = np.linspace(0, 40, 401)
    dip = np.where(np.abs(t - 20) < 5, 1e-9, 1.0)
    found = find_stages(t, t, np.stack([np.ones_like(t), dip], axis=1), level=LEVEL, time_unit="t")
    assert found.supports == ((0, 1), (0,), (0, 1))
    # Down 9 decades within a sample, a third of the way to the level; and back up.
    np.testing.assert_allclose(found.times, [15.0 + 0.1 / 3, 25.0 - 0.1 / 3], atol=1e-9)


def test_short_activity_is_ignored():
    t = np.arange(100.0)
    activity = np.full((100, 2), 1e-9)
    activity[30:, 0] = 1.0
    activity[50:53, 0] = 1e-9  # an absence of about 3
    activity[10:12, 1] = 1.0  # a presence of about 2
    activity[98:, 1] = 1.0  # seen for 1.3 only
    assert find_stages(t, -t, activity, level=LEVEL, time_unit="t").ranks == (0, 1, 0, 1, 0, 1, 2)
    found = find_stages(t, -t, activity, level=LEVEL, time_unit="t", min_duration=5.0)
    assert found.supports == ((), (0,))
    assert 29 < found.times[0] < 30
    assert find_stages(t, -t, activity, level=LEVEL, time_unit="t", min_duration=3.0).ranks == (0, 1, 0, 1)


def test_a_flicker_that_leads_to_a_change_is_split_where_it_is_least_wrong():
    t = np.arange(0, 40, 0.25)
    present = np.isin(np.floor(t), [10, 12, 15, 16, 17, 19, 20, 22]) | (t >= 24)
    for signal in (present, ~present):
        found = find_stages(t, t, np.where(signal, 1.0, 1e-9)[:, None], level=LEVEL, time_unit="t", min_duration=4.0)
        assert len(found) == 2
        assert abs(found.times[0] - 15.0) < 0.25
    brute = min(np.unique(t), key=lambda edge: np.sum(present[t < edge]) + np.sum(~present[t >= edge]))
    assert brute == 15.0


def test_pieces_cut_by_the_ends_of_the_record_are_like_their_neighbours():
    t = np.arange(20.0)
    activity = np.full((20, 3), 1.0)
    activity[:2, 0] = 1e-9
    activity[18:, 1] = 1e-9
    activity[::2, 2] = 1e-9  # never settles, and is absent for a little longer
    activity[5, 2] = 1e-9
    found = find_stages(t, -t, activity, level=LEVEL, time_unit="t", min_duration=5.0)
    assert found.supports == ((0, 1),)


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_hide_the_staircase(seed):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 80, 4000)
    activity, loss = logistic(t)
    activity = np.abs(activity * rng.lognormal(0, 0.3, activity.shape) + 0.03 * rng.standard_normal(activity.shape))
    loss = loss + 0.02 * rng.standard_normal(loss.shape)
    found = find_stages(t, loss, activity, level=0.1, time_unit="t", min_duration=1.0)
    assert found.supports == ((), (0,), (0, 2), (0, 1, 2))
    np.testing.assert_allclose(found.times, logistic_crossings(0.1), atol=0.6)  # 0.3 e-folds
    np.testing.assert_allclose(found.losses, PLATEAUS, atol=0.03)


def test_the_level_is_that_of_the_plateau_not_of_the_drop():
    """Let the new component exceed the level long before the loss drops, and remain for a while after."""
    t = np.linspace(0, 30, 301)
    activity, loss = np.exp(t - 20)[:, None], 1 / (1 + np.exp(3 * (t - 22)))
    found = find_stages(t, loss, activity, level=1e-4, time_unit="t")
    np.testing.assert_allclose(found.losses, [1.0, 0.0], atol=1e-8)


def test_the_level_is_that_of_the_plateau_where_samples_are_far_apart():
    """Let a solver with long steps on plateaus leave one, after its middle, with samples of the next drop alone."""
    arrivals = np.array([10.0, 20.0])
    t = np.concatenate([[0.0, 4.0], np.linspace(9, 13, 200), [14.0, 14.5], np.linspace(19.5, 24, 200), [26.0, 30.0]])
    activity = np.minimum(np.exp(3 * (t[:, None] - arrivals)), 1.0)
    loss = np.sum(1 / (1 + np.exp(6 * (t[:, None] - arrivals - 0.5))), axis=1)
    found = find_stages(t, loss, activity, level=0.1, time_unit="t")
    np.testing.assert_allclose(found.losses, [2.0, 1.0, 0.0], atol=1e-8)


def test_singular_values_have_ranks_and_no_supports():
    t = np.linspace(0, 60, 2000)
    activity, loss = logistic(t)
    values = -np.sort(-activity, axis=1)
    found = find_stages(t, loss, Spectrum(values, np.zeros(2000)), level=LEVEL, time_unit="t")
    assert found.ranks == (0, 1, 2, 3)
    assert found.supports == (None,) * 4
    assert found.times == find_stages(t, loss, activity, level=LEVEL, time_unit="t").times


def test_nothing_is_active_below_the_noise_floor():
    t = np.linspace(0, 60, 2000)
    activity, loss = logistic(t)
    values = -np.sort(-activity, axis=1)
    found = find_stages(t, loss, Spectrum(values, np.full(2000, 0.6)), level=LEVEL, time_unit="t")
    assert found.ranks == (0, 1, 2)  # the last is 0.5 at its largest
    np.testing.assert_allclose(found.times[0], np.log(0.6 / 0.4 / ALPHA) / 2.0, atol=1e-4)


@pytest.mark.parametrize("convert", [jnp.asarray, torch.asarray, lambda x: x.tolist(), np.float32])
def test_any_array_will_do(convert):
    t = np.linspace(0, 60, 500)
    activity, loss = logistic(t)
    found = find_stages(convert(t), convert(loss), convert(activity), level=LEVEL, time_unit="t")
    assert found.supports == ((), (0,), (0, 2), (0, 1, 2))


def hyperbolic(t, blow_up, degree):
    """Growth m' = c m^(degree - 1) from 1e-6 to infinity at a time, stopped at 1."""
    power = degree - 2
    return np.minimum(1e-6 * np.maximum(1 - t[:, None] / blow_up, 1e-300) ** (-1 / power), 1.0)


@pytest.mark.parametrize("degree", [3, 4, 6])
@pytest.mark.parametrize("level", [1e-3, 0.3])
def test_growth_of_units_of_higher_degree_is_located_exactly_between_even_samples(degree, level):
    t, blow_up = np.linspace(0.0, 1.0, 402), np.array([0.31, 0.5203, 0.77])
    exact = blow_up * (1 - (1e-6 / level) ** (degree - 2))
    found = find_stages(t, t, hyperbolic(t, blow_up, degree), level=level, time_unit="t")
    np.testing.assert_allclose(found.times, exact, rtol=1e-9)
    back = find_stages(t, t, hyperbolic(1.0 - t, blow_up, degree), level=level, time_unit="t")
    np.testing.assert_allclose(back.times, 1 - exact[::-1], rtol=1e-9)


def test_a_rate_that_changes_between_stages_is_no_curve():
    """Growth at a rate of 1 to time 10, and of 5 after: exponential in each part."""
    t = np.arange(0.0, 20.0, 2.5)
    height = -30 + t + 4 * np.maximum(t - 10, 0)
    found = find_stages(t, t, np.exp(np.minimum(height, 0.0))[:, None], level=np.exp(-10.0), time_unit="t")
    np.testing.assert_allclose(found.times, [12.0], rtol=tolerances.CROSSING)
