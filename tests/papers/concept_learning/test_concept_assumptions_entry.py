"""The entry on the assumptions: its times by interpolation, and its numbers."""

import numpy as np

from saddlescope.papers.concept_learning.shared.two_layer_runs import half_times
from saddlescope.reproduction import find_entry

NAME = "concept-learning/assumptions"
ENTRY = find_entry(NAME)


def test_when_a_half_is_passed():
    times = np.array([0.0, 1.0, 3.0])
    values = np.array([[0.0, 0.25, 0.75], [0.6, 0.7, 1.0], [0.0, 0.1, 0.2]]).T[None]
    np.testing.assert_array_equal(half_times(times, values), [[2.0, 0.0, np.nan]])


def test_margins_of_the_figures(run):
    strengths = {"Figure 5": (0.5025, 1.1275), "Figure 8": (1 / 3 + 0.0025, 0.7525, 2.2**2 / 3 + 0.0025)}
    for name, a in strengths.items():
        least = min(b - 3 * c for k, c in enumerate(a) for b in a[k + 1 :]) / a[0]
        np.testing.assert_allclose(run.margin.sel(data=name), least, rtol=1e-12)
    assert np.isnan(run.figure_log10_omega.sel(data=["Figure 5", "Figure 8", "Figure 9"])).all()
    assert run.figure_log10_omega.sel(data="Figure 10") < -60


def test_more_concepts_and_larger_ratios_of_entries_need_smaller_starts(run):
    assert (run.log10_omega.diff("beta") < 0).all()
    assert (run.log10_omega_three < run.log10_omega.isel(beta=0)).all()


def test_outcomes_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert (found["in-practice"], found["largest-omega"]) == ("differs", "seen")
    run.margin[:] = 1.0
    assert outcomes(ENTRY, run)["in-practice"] == "agrees"
