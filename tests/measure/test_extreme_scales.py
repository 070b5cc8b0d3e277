"""Records whose numbers are near the ends of float64 have the stages of the same records at moderate scales."""

import numpy as np
import pytest

from saddlescope.measure import find_plateaus, find_stages


@pytest.mark.parametrize("scale", [5e-309, 1e-310, 1e307, 1.7e308])
def test_times_losses_and_weights_of_extreme_scales_have_the_same_stages(scale):
    t = np.linspace(0.0, 1.0, 401)
    growth = 1e-12 * np.exp(60 * np.outer(t, [2.0, 0.5, 1.0]))
    activity = growth / (1 + growth)
    losses = np.mean((1 - activity) ** 2, axis=1)
    plain = find_stages(t, losses, activity, level=1e-3, time_unit="t", min_duration=1e-3)
    for of_time, of_loss, of_weight in [(scale, 1, 1), (1, scale, 1), (1, 1, scale / 2), (scale, scale, scale / 2)]:
        found = find_stages(
            of_time * t,
            of_loss * losses,
            of_weight * activity,
            level=of_weight * 1e-3,
            time_unit="t",
            min_duration=of_time * 1e-3,
        )
        assert found.supports == plain.supports
        assert np.allclose(np.array(found.times) / of_time, plain.times, rtol=1e-6, atol=0)
        assert np.allclose(np.array(found.losses) / of_loss, plain.losses, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-310, 1e307, 1.7e308])
def test_times_losses_and_spectra_of_extreme_scales_have_the_same_plateaus(scale):
    t, learned = (
        np.linspace(0.0, 1.0, 401),
        1 / (1 + np.exp(-np.clip(40 * (np.linspace(0.0, 10.0, 401)[:, None] - [3.0, 6.0]), -500, 500))),
    )
    losses = 1 - learned.mean(axis=1)
    plain = find_plateaus(losses, steps=t, singular_values=[learned] * 3).staircase
    assert plain.ranks == (0, 1, 2)
    for of_time, of_loss, of_weight in [(scale, 1, 1), (1, scale, 1), (1, 1, scale), (scale, scale, scale)]:
        found = find_plateaus(of_loss * losses, steps=of_time * t, singular_values=[of_weight * learned] * 3).staircase
        assert found.layer_ranks == plain.layer_ranks
        assert np.allclose(np.array(found.times) / of_time, plain.times, rtol=1e-6, atol=0)
        assert np.allclose(np.array(found.losses) / of_loss, plain.losses, rtol=1e-6, atol=1e-9)
