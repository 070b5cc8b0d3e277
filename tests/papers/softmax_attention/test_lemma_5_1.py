"""Lemma 5.1's claims at the quick size, and runs that would contradict them."""

import pytest

from saddlescope.reproduction import find_entry

NAME = "softmax-attention/lemma-5-1"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"holds", "seen"}


@pytest.mark.parametrize(
    ("variable", "value", "claim", "outcome"),
    [
        ("alignment", 1e-6, "preserved", "fails"),
        ("across", 1e-6, "preserved", "fails"),
        ("alignment", 1e-6, "without-ii", "not seen"),
        ("alignment", 1e-4, "without-iii", "not seen"),
        ("perturbed_alignment", 1e-9, "not-attracting", "not seen"),
    ],
)
def test_a_spoilt_run_contradicts_the_claim(run, outcomes, variable, value, claim, outcome):
    run[variable][..., -1] = value
    assert outcomes(ENTRY, run)[claim] == outcome
