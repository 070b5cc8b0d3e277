"""Unequal scores: claims at the quick size, and runs that would contradict them."""

import numpy as np
import pytest

from saddlescope.reproduction import find_entry

NAME = "softmax-attention/unequal-scores"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"agrees", "seen"}


@pytest.mark.parametrize(
    ("place", "claim"),
    [
        ({"spread": 0.1, "gap": 20.0, "flow": "diagonal weights"}, "assumption-3-of-the-second-best"),
        ({"spread": 0.9, "gap": 1.0, "flow": "W alone"}, "w-alone-loses-none"),
    ],
)
def test_a_lost_sample_would_show_and_flows_that_did_not_end_decide_nothing(run, outcomes, place, claim):
    run.lost.loc[place] = 1.0
    assert outcomes(ENTRY, run)[claim] == "not seen"
    run.lost.values[:] = np.nan
    assert outcomes(ENTRY, run)[claim] == "undecided"
