"""Assumption 3: claims at the quick size, and spoilt runs."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "softmax-attention/assumption-3"
ENTRY = find_entry(NAME)


def test_the_exact_claims_hold_at_the_quick_size(run, outcomes, inside):
    found = outcomes(ENTRY, run)
    for claim in ("sufficient", "whole-samples", "w-alone-loses-none"):
        assert found[claim] == "reproduced"


def test_the_assumption_holds_at_the_larger_gap_alone(run):
    assert np.all(run.log_start.sel(gap=7.0) <= 0)
    assert np.all(run.log_start.sel(gap=0.25) > 0)


def test_a_lost_sample_counts_one(run):
    """At zero weights all of attention is even: n (L - L*) / (e^gap - 1) is n (e^(gap (L-1)/L) - 1) / (e^gap - 1)."""
    start = np.log(4 * np.expm1(0.25 * 4 / 5) / np.expm1(0.25))
    np.testing.assert_allclose(run.log_start.sel(gap=0.25), start, rtol=1e-12)


@pytest.mark.parametrize(
    ("gap", "flow", "samples", "claim"),
    [
        (7.0, "diagonal weights", 1.0, "sufficient"),
        (0.25, "diagonal weights", 0.4, "whole-samples"),
        (0.25, "W alone", 1.0, "w-alone-loses-none"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, gap, flow, samples, claim):
    run.log_lost.loc[{"gap": gap, "flow": flow}][{"instance": 0, "time": -1}] = np.log(samples)
    assert outcomes(ENTRY, run)[claim] == "refuted"


@pytest.mark.parametrize(("samples", "claim"), [(1.0, "not-necessary"), (1.0, "a-small-gap-loses-samples")])
def test_many_draws_that_all_lose_a_sample_refute_the_shares(run, outcomes, samples, claim):
    many = run.isel(instance=np.zeros(40, int)).copy(deep=True)
    many.log_lost.loc[{"gap": 0.25}] = np.log(samples)
    assert outcomes(ENTRY, many)[claim] == "refuted"


def test_flows_that_did_not_end_decide_nothing_or_are_left_out(run, outcomes):
    many = run.isel(instance=np.zeros(40, int)).copy(deep=True)
    many.log_lost.values[:, :20] = np.nan
    many.log_lost.loc[{"gap": 0.25}][{"instance": slice(20, 30), "time": -1}] = 0.0
    found = {verdict.claim: verdict for verdict in ENTRY.judge(many)}
    assert str(found["w-alone-loses-none"].outcome) == "undecided"
    assert found["a-small-gap-loses-samples"].value == 0.5
    assert "20 more did not end" in found["a-small-gap-loses-samples"].remark


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"gaps": "0,1"}, "gaps must be one or more positive numbers, increasing"),
        ({"gaps": "2,1"}, "gaps must be one or more positive numbers, increasing"),
        ({"instances": "0"}, "instances must be at least 1"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
