"""Lemma 5.1's claims hold, and spoilt runs refute them."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "softmax-attention/lemma-5-1"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def lost(run):
    run.alignment[:2, :, -1] = 1e-6


def turned(run):
    run.across[0, :, 2] = 1e-6


def moved(run):
    run.resting[0, :, 2] = 1e-6


def kept_without_pairs(run):
    run.alignment[2] = 1e-4


def attracted(run):
    run.perturbed_alignment[..., -1] = 1e-3 * run.perturbed_alignment[..., 0]


def repelled(run):
    run.perturbed_alignment[..., -1] = 3 * run.perturbed_alignment[..., 0]


def elsewhere(run):
    run.excess[..., -1] = 0.01


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (lost, ["preserved", "without-ii"]),
        (turned, ["same-bases"]),
        (moved, ["resting"]),
        (kept_without_pairs, ["without-iii"]),
        (attracted, ["not-attracting", "settled"]),
        (repelled, ["not-repelling"]),
        (elsewhere, ["misaligned"]),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claims):
    spoil(run)
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in claims} == {"refuted"}


def test_a_flow_without_a_direction_decides_nothing(run, outcomes):
    run.excess[..., -1] = np.nan
    assert outcomes(ENTRY, run)["misaligned"] == "undecided"


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"etas": "1,0.1"}, "etas must be one or more numbers, each above 0 and at most 1, increasing"),
        ({"etas": "2"}, "etas must be"),
        ({"tokens": "4"}, "tokens must be odd"),
        ({"dim": "2"}, "dim must be at least 3"),
        ({"tolerance": "1"}, "tolerance must be between"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
