"""Assumption 3: lost samples are counted in units of one, and flows that did not end are left out."""

import numpy as np

from saddlescope.reproduction import find_entry

NAME = "softmax-attention/assumption-3"
ENTRY = find_entry(NAME)


def test_it_holds_at_the_larger_gap_alone(run):
    assert np.all(run.log_start.sel(gap=7.0) <= 0)
    assert np.all(run.log_start.sel(gap=0.25) > 0)


def test_flows_lose_whole_samples(run):
    ends = np.exp(run.log_lost.isel(time=-1).values)
    np.testing.assert_allclose(ends, np.rint(ends), atol=1e-3)


def test_a_lost_sample_counts_one(run):
    """At zero weights all of attention is even: n (L - L*) / (e^gap - 1) is n (e^(gap (L-1)/L) - 1) / (e^gap - 1)."""
    start = np.log(4 * np.expm1(0.25 * 4 / 5) / np.expm1(0.25))
    np.testing.assert_allclose(run.log_start.sel(gap=0.25), start, rtol=1e-12)


def test_flows_that_did_not_end_are_left_out_of_the_share(run):
    many = run.isel(instance=np.zeros(40, int)).copy(deep=True)
    many.log_lost.values[:, :20] = np.nan
    many.log_lost.values[:, 20:, :, -1] = -10.0
    many.log_lost.loc[{"gap": 0.25}][{"instance": slice(20, 30), "time": -1}] = 0.0
    (found,) = (verdict for verdict in ENTRY.judge(many) if verdict.claim == "not-necessary")
    assert found.value == 0.5
    assert "20 more did not end" in found.remark
