"""Separability of Gaussian data: claims at the quick size, Cover's counts, and spoilt runs."""

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention.separability import _cover_share
from saddlescope.reproduction import find_entry

NAME = "softmax-attention/separability"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found.pop("diagonal-w-above-n-and-l") == "undecided"  # twenty draws
    assert set(found.values()) == {"reproduced"}


def test_covers_counts_in_the_plane():
    assert _cover_share(3, 1) == 0.25  # both orders of a line, of 8 sign patterns
    assert _cover_share(3, 2) == 0.75  # 6 of 8: three directions cut the circle of w into six arcs
    assert _cover_share(3, 3) == _cover_share(3, 9) == 1.0


@pytest.mark.parametrize(
    ("variable", "kind", "size", "value", "claim"),
    [
        ("separable", "any W", 2, 19, "any-w-above-n-and-l"),
        ("separable", "diagonal W", 1, 20, "diagonal-w-above-n-and-l"),
        ("separable", "diagonal W", 2, 19, "diagonal-w-above-all-differences"),
        ("separable", "diagonal W", 3, 20, "two-tokens-diagonal-w"),
        ("separable", "any W", 3, 0, "two-tokens-any-w"),
        ("worst_proof", "any W", 0, 1e-9, "every-answer-is-proven"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, variable, kind, size, value, claim):
    run[variable].loc[{"kind": kind}][{"size": size}] = value
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_sizes_that_do_not_show_it_leave_it_undecided(run, outcomes):
    found = outcomes(ENTRY, run.isel(size=[0, 3, 4]))
    assert found["diagonal-w-above-all-differences"] == "undecided"
    assert found["diagonal-w-above-n-and-l"] == "undecided"


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"dims": "3,2"}, "dims must be one or more integers, each at least 1, increasing"),
        ({"pairs": "1"}, "pairs must be at least 2"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
