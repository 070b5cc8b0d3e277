"""Proposition 3.3's claims hold, and spoilt ratios refute them."""

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/proposition-3-3"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def one_exceeds(run):
    run.ratio.loc[{"kind": "v ≥ 0"}][0, 0, 0] = 0.5


def linear_in_eps(run):
    run.ratio.loc[{"kind": "v ≥ 0"}] = 1e-4 * 10.0**run.log10_distance


def sign_does_not_matter(run):
    run.ratio.loc[{"kind": "v of both signs"}] = 1e-12


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (one_exceeds, "holds"),
        (one_exceeds, "not-sharp"),
        (linear_in_eps, "power"),
        (sign_does_not_matter, "sign-needed"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_bounds_without_content_leave_it_undecided(run, outcomes):
    run.bound.values[:] = 2.0
    assert outcomes(ENTRY, run)["holds"] == "undecided"


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"log10_distances": "-1,-2"}, "must be two or more numbers, each between -7 and 0, increasing"),
        ({"points": "1"}, "points must be at least 2"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
