"""Stage times are read off paths whose crossings are known."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import xarray as xr

from saddlescope.papers.gradual_rank.shared.stage_times import halfway_times, passings


@dataclass
class Polygon:
    """A trajectory of straight lines between its records."""

    times: np.ndarray
    beta: np.ndarray

    def __call__(self, times):
        return np.stack([np.interp(times, self.times, column) for column in self.beta.T], axis=1)


def polygon(*columns) -> Any:
    return Polygon(np.arange(float(len(columns[0]))), np.array(columns, dtype=float).T)


def stages(coordinates, plateaus):
    """Stages that coordinate i enters with the value on its plateau."""
    beta = np.zeros((len(coordinates), 2))
    beta[np.arange(len(coordinates)), coordinates] = plateaus
    return xr.Dataset(
        {"predicted_coordinate": ("stage", coordinates), "predicted_beta": (("stage", "coordinate"), beta)}
    )


def test_halfway_is_at_half_the_plateau_with_its_sign():
    run = polygon([0, 0, 1, 1, 1], [0, 1, -4, -4, -4])
    np.testing.assert_allclose(halfway_times(run, stages([0, 1], [1.0, -4.0])), [1.5, 1.6])


def test_what_does_not_happen_is_nan():
    run = polygon([0, 0, 0.4, 0.4], [0, 1, 1, 1])
    assert np.isnan(halfway_times(run, stages([0, 1], [1.0, -1.0]))).all()


@pytest.mark.parametrize("second", [0.4, 1.0, 1.8])
def test_a_coordinate_that_enters_again_is_looked_for_after_it_has_left(second):
    """Below, at and above the level of its first time, all of which the first rise passes."""
    run = polygon([0, 2, 2, 0, 0, 2], [0] * 6)
    np.testing.assert_allclose(halfway_times(run, stages([0, 0], [1.0, second])), [0.25, 4 + second / 4])


def test_a_coordinate_that_returns_with_the_other_sign():
    run = polygon([0, 2, 2, 0, 0, -2], [0] * 6)
    np.testing.assert_allclose(halfway_times(run, stages([0, 0], [2.0, -2.0])), [0.5, 4.5])


def test_all_passings_of_a_share_of_two_coordinates():
    run = polygon([0, 1, 0, 1], [0, 1, 1, 1])
    np.testing.assert_allclose(passings(run, lambda beta: beta.sum(1) / 1.5), [0.75, 2.5])
