"""The claims of the first version's Figure 2 hold at the quick size; what did not happen is undecided."""

import numpy as np

from saddlescope.reproduction import find_entry

NAME = "gradual-rank/figure-2-v1"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    found.pop("law")  # judged at the default size
    assert set(found.values()) == {"seen"}


def test_all_at_once_and_late_entries_are_seen(run, outcomes):
    run.in_transit.values[-1] = 3.0
    run.diagonal_found_time.values[2] *= 1.5
    found = outcomes(ENTRY, run)
    assert (found["one-by-one"], found["diagonal"]) == ("not seen", "not seen")


def test_what_did_not_happen_is_undecided(run, outcomes):
    assert outcomes(ENTRY, run.isel(scale=[0]))["law"] == "undecided"
    run.found_time.values[-1, 1] = np.nan
    run.diagonal_found_time.values[2] = np.nan
    got = outcomes(ENTRY, run)
    assert {got[name] for name in ("order", "law", "diagonal")} == {"undecided"}
