"""Figure 15: statistics of signals whose answer is known, figures that show the stored images, and refused circles."""

import numpy as np
import pytest

from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-15"
ENTRY = find_entry(NAME)


@pytest.fixture
def values(run):
    return lambda: {claim.name: claim.statistic(run).value for claim in ENTRY.claims}


def test_statistics_by_hand(run, values):
    for name in ("mu", "signal", "signal_by_size"):
        run[name] = 0 * run[name] + 2.0
    assert values() == pytest.approx({"stronger": 1, "independent": 1, "small-circles": 1} | values())
    run.mu.loc[{"color_setting": 0.7, "concept": "color"}] = 3.0  # colour leads on the left, by 3/2
    run.mu.loc[{"color_setting": 0.2, "concept": "color"}] = 1.0  # size on the right, by 2
    run.signal_by_size[{"size_setting": -1}] = 0.5
    run.signal.loc[{"color_setting": 0.7, "concept": "color"}] = 1.0
    found = values()
    assert (found["stronger"], found["independent"], found["small-circles"]) == pytest.approx((1.5, 4, 0.5))


def test_the_film_shows_the_images_by_class_and_setting(run):
    (figure,) = ENTRY.figures(run)
    left, right = run.shown.transpose("color_setting", "class", "example", "row", "column", "channel").values
    assert figure.film is not None
    both = figure.film.images[0]
    np.testing.assert_array_equal(both[:, :3], left)
    np.testing.assert_array_equal(both[:, 4:], right)
    assert both[:, 3].min() == 255
