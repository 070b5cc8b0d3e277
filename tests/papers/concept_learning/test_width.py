"""The entry on widths: samples against an independent count, and moments of E.1."""

import numpy as np

from saddlescope.flow import symmetric_flows
from saddlescope.measure import find_descents
from saddlescope.papers.concept_learning.shared.random_starts import FIGURES, VISIBLE, draw_starts
from saddlescope.papers.concept_learning.shared.two_layer_runs import strengths_and_test_point
from saddlescope.papers.concept_learning.width import sample_starts

NAME = "concept-learning/width"


def test_directions_without_data_may_be_put_together():
    """The entry replaces their rows V by R of V = Q R; here all five dimensions are followed."""
    starts = draw_starts(np.random.default_rng((1, 2)), "normal", 0.1, (60, 5, 2))
    a, x = (np.pad(of, (0, 3)) for of in strengths_and_test_point(*FIGURES["Figure 5"]))
    flows = symmetric_flows(a, starts, test_point=x, until=40.0, tolerance=1e-7)
    visible = find_descents(flows.turning_losses, hysteresis=VISIBLE).counts
    assert int(sample_starts(5, 2, 0.1, 60, (1, 2)).visible) == np.sum(visible >= 2) > 4


def test_moments_of_the_start(run):
    errors = run.major_error * run.starts**0.5  # of w_ii over d' tau^2, the deviation of chi squared: sqrt(2 / d')
    np.testing.assert_allclose(errors.isel(dim=0), np.broadcast_to(np.sqrt(2 / run.width), (2, 2)), rtol=0.2)
    assert np.all(np.abs(run.major_mean - 1) < 4 * run.major_error)
    assert np.all(np.abs(run.minor_mean) < 4 / run.starts**0.5)
