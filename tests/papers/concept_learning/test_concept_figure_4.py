"""Figure 4 at the quick size: rates and times of the entries."""

import numpy as np

from saddlescope.reproduction import find_entry

NAME = "concept-learning/figure-4"
ENTRY = find_entry(NAME)


def test_all_claims_are_inside_their_bounds(run, inside):
    assert inside(ENTRY, run) == {claim.name for claim in ENTRY.claims}


def test_rates_and_values_are_those_of_the_initial_phase(run):
    a = np.sort(run.strength.values[run.strength.values > 0])[::-1]
    rates = run.rate.isel(scale=-1).values
    np.testing.assert_allclose(rates, np.broadcast_to(2 * (a[:, None] + a), rates.shape), rtol=0.05)


def test_a_minor_entry_peaks_after_its_stronger_concept_is_half_learned(run):
    when = run.major_time.values[..., run.strong.values]
    assert np.all(run.peak_time.values > when)
    assert np.all(run.suppressed.values > run.peak_time.values)


def test_entries_that_peak_together_or_are_never_suppressed_are_out_of_order(run, inside):
    never = run.copy(deep=True)
    never.suppressed[0, 0, 0] = np.inf
    assert "groups" not in inside(ENTRY, never)
    run.peak_time[:] = run.peak_time.values.max()
    assert "groups" not in inside(ENTRY, run)
