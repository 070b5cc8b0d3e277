"""Steps of the rank: found where they were planted, and only there."""

import numpy as np
import pytest

from saddlescope.measure import Spectrum, rank_staircases, rank_stairs

LINEAR = np.linspace(1.0, 1000.0, 80)
GEOMETRIC = np.unique(np.floor(1.15 ** np.arange(65)))
clocks = pytest.mark.parametrize("t", [LINEAR, GEOMETRIC], ids=["linear", "geometric"])
noises = pytest.mark.parametrize("noise", [0.0, 1e-2])


def logistic(u, *at, width=0.004):
    """Return steps from 0 to 1, (n, len(at))."""
    return 1 / (1 + np.exp(-np.clip((u[:, None] - np.array(at)) / width, -500, 500)))


def planted(u, seed):
    """Draw eight singular values, two to five with steps; return the step times (in the record) and all values."""
    rng = np.random.default_rng(seed)
    count = rng.integers(2, 6)
    gaps = 0.1 + 0.3 * rng.dirichlet(np.ones(count + 1))
    at = np.cumsum(gaps[:-1]) / np.sum(gaps)
    values = np.zeros((len(u), 8))
    values[:, :count] = logistic(u, *at) * np.sort(rng.uniform(0.3, 1.0, count))[::-1]
    return at, values


def spectrum(values, noise=0.0, seed=0, floor=0.0):
    noisy = values + noise * np.random.default_rng(seed).standard_normal(values.shape)
    return Spectrum(-np.sort(-np.abs(noisy), axis=1), np.full(len(values), floor))


def stairs(t, *given, **policies):
    return rank_stairs(t, spectrum(*given), time_unit="steps", **policies)


@clocks
@noises
def test_planted_steps_are_found(t, noise):
    u, right = np.linspace(0.0, 1.0, len(t)), 0
    for seed in range(30):
        at, values = planted(u, seed)  # well apart in records, at any times
        found, times = stairs(t, values, noise, seed), np.interp(at, u, t)
        between = np.diff(t)[np.searchsorted(t, times) - 1]  # a step between two records is not closer to any
        right += found.ranks == tuple(range(len(at) + 1)) and np.all(np.abs(found.times - times) <= between)
    assert right >= 29


@clocks
@noises
@pytest.mark.parametrize(
    "curves",
    [
        lambda u: (u, 0.6 * u, 0.3 * u),
        lambda u: (u, 0.6 * u**2, 0.3 * u**3),
        lambda u: (u**0.5, 0.6 * u**0.5, 0.3 * u),
        lambda u: (1 - np.exp(-5 * u), 0.5 * u),
        lambda u: (np.expm1(4 * u) / 50, u / 10),
    ],
    ids=["line", "powers", "roots", "saturation", "exponential"],
)
def test_ramps_are_not_steps(t, curves, noise):
    found = stairs(t, np.stack(curves(t / t[-1]), axis=1), noise)
    assert found.ranks == (0,)
    assert (found.stages[0].start, found.stages[0].end) == (t[0], t[-1])


@noises
def test_growth_flattened_by_a_learning_rate_schedule_is_not_a_step(noise):
    """Warm-up and decay: all growth seems to be a step, at the same time."""
    clock = (1 - np.cos(np.pi * LINEAR / LINEAR[-1])) / 2
    together = np.stack([clock, 0.6 * clock, 0.3 * clock], axis=1)
    assert stairs(LINEAR, together, noise).ranks == (0,)
    assert stairs(LINEAR, np.stack([clock, 0.6 * clock**2], axis=1), noise).ranks == (0,)
    assert stairs(LINEAR, together[:, :1]).ranks == (
        0,
        1,
    )  # a single one: the plateaus decide


def test_two_singular_values_may_make_their_steps_at_once():
    """They are not alone, but abrupt."""
    values = np.hstack([logistic(LINEAR / 1000, 0.4, 0.4), 0.5 * logistic(LINEAR / 1000, 0.7)])
    found = stairs(LINEAR, values)
    assert found.ranks == (0, 2, 3)
    np.testing.assert_allclose(found.times, [400, 700], atol=LINEAR[1] - LINEAR[0])


def test_rescaled_time_moves_the_steps_but_preserves_their_number():
    for seed in range(5):
        at, values = planted((LINEAR / LINEAR[-1]) ** 1.5, seed)
        found = stairs(LINEAR, values)
        assert found.ranks == tuple(range(len(at) + 1))
        np.testing.assert_allclose(found.times, LINEAR[-1] * at ** (2 / 3), atol=LINEAR[1] - LINEAR[0])


def test_the_unit_of_the_matrix_does_not_matter():
    _, values = planted(LINEAR / LINEAR[-1], 3)
    assert stairs(LINEAR, 2.0**-20 * values) == stairs(LINEAR, values)


def test_a_larger_direction_may_come_later():
    """Then the first singular value makes two steps, and the second, which it overtook, makes the step that counts."""
    u = LINEAR / LINEAR[-1]
    found = stairs(LINEAR, logistic(u, 0.2, 0.6) * [1.0, 2.0])
    assert found.ranks == (0, 1, 2)
    np.testing.assert_allclose(found.times, [200, 600], atol=LINEAR[1] - LINEAR[0])


def test_directions_of_the_first_record_are_part_of_the_rank():
    values = np.hstack([np.full((80, 1), 2.0), logistic(LINEAR / 1000, 0.5)])
    assert stairs(LINEAR, values).ranks == (1, 2)


def test_below_the_level_nothing_counts():
    values = logistic(LINEAR / 1000, 0.3, 0.6) * [1.0, 0.2]
    assert stairs(LINEAR, values).ranks == (0, 1, 2)
    assert stairs(LINEAR, values, share=0.25).ranks == (0, 1)
    assert stairs(LINEAR, values, 0.0, 0, 0.25).ranks == (0, 1)  # the noise floor
    assert stairs(LINEAR, values, 0.0, 0, 2.0).ranks == (0,)
    assert stairs(LINEAR, np.zeros((80, 4))).ranks == (0,)


def test_the_loss_of_a_stage_is_the_energy_that_is_missing():
    found = stairs(LINEAR, logistic(LINEAR / 1000, 0.3, 0.6) * [4.0, 3.0])
    np.testing.assert_allclose(found.losses, [1.0, 9 / 25, 0.0], atol=1e-6)


def test_many_matrices_at_once():
    values = np.stack([spectrum(planted(LINEAR / 1000, seed)[1]).values for seed in range(4)], axis=1)
    values = values.reshape(80, 2, 2, 8)
    values[:, 1, 0] = np.nan  # a head missing in the second layer
    floors = np.full((80, 2, 2), 0.01)
    found = rank_staircases(LINEAR, values, floors, time_unit="steps")
    assert found.shape == (2, 2)
    assert found[1, 0] is None
    for place in ((0, 0), (0, 1), (1, 1)):
        at = (slice(None), *place)
        assert found[place] == rank_stairs(LINEAR, Spectrum(values[at], floors[at]), time_unit="steps")
