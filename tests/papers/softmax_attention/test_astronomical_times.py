"""Agreement at astronomical times at the quick size, the naive gradients, and that spoilt runs refute."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.models.tokens.losses import SelectionLoss
from saddlescope.papers.softmax_attention.shared.naive_flow import run_naive_solver, shift_scores
from saddlescope.reproduction import find_entry

NAME = "softmax-attention/astronomical-times"
ENTRY = find_entry(NAME)
AGREE = {"agree-xi", "agree-w", "agree-matrix", "agree-keys-queries"}


def test_formulations_agree_and_stable_rates_raise_no_alarm(run, outcomes):
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in AGREE} == {"reproduced"}
    assert found["no-false-alarm"] == "undecided"  # one data set
    assert outcomes(ENTRY, run.isel(data_set=[0, 0]))["no-false-alarm"] == "reproduced"


def test_formulations_that_part_refute_their_claim(run, outcomes):
    for k, claim in enumerate(("agree-xi", "agree-w", "agree-matrix", "agree-keys-queries")):
        spoilt = run.copy(deep=True)
        spoilt.apart.values[k, -1] = 1e-6
        found = outcomes(ENTRY, spoilt)
        assert {name for name in AGREE if found[name] == "refuted"} == {claim}


def test_silent_failures_are_counted_and_compared_with_the_balance(run, outcomes):
    run = run.isel(data_set=[0, 0]).copy(deep=True)
    run.says_success.values[:] = 1
    run.error.values[:], run.defect.values[:] = 1e-7, 1e-4
    found = outcomes(ENTRY, run)
    assert found["formula-is-silent"] == found["autodiff-is-silent"] == "refuted"
    assert found["balance-catches"] == "undecided"
    run.error.loc[{"kind": "formula"}] = 0.1
    assert outcomes(ENTRY, run)["formula-is-silent"] == "reproduced"
    assert outcomes(ENTRY, run)["balance-catches"] == "refuted"
    run.defect.loc[{"kind": "formula"}] = 0.2
    assert outcomes(ENTRY, run)["balance-catches"] == "reproduced"
    run.defect.loc[{"kind": "stable"}] = 0.2
    assert outcomes(ENTRY, run)["no-false-alarm"] == "refuted"


def test_all_gradients_are_one_while_margins_are_small():
    data = shift_scores(gaussian_tokens(3, 4, 6, seed=1, gap=2.0), 0.7)
    runs = [
        run_naive_solver(data, kind, "RK45", scale=0.2, log_time=2.0, tolerance=1e-8, max_evaluations=5000)
        for kind in ("autodiff", "formula", "stable")
    ]
    assert all(run.reported_success and run.defect < 1e-5 for run in runs)
    for other in runs[1:]:
        np.testing.assert_allclose(other.beta, runs[0].beta, rtol=1e-9)


def test_a_shift_of_the_scores_keeps_the_gaps():
    data = gaussian_tokens(3, 4, 6, seed=1)
    moved = shift_scores(data, 0.7)
    np.testing.assert_allclose(moved.scores, data.scores + 0.7, atol=1e-12)
    np.testing.assert_allclose(moved.differences, data.differences, atol=1e-12)
    assert SelectionLoss(moved.optimal_scores, moved.gaps).equal_gaps


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        (
            {"log10_times": "10,400"},
            "log10_times must be one or more numbers, each at least 1 and below 301, increasing",
        ),
        ({"solvers": "RK45,Heun"}, "solvers must be one or more words, each one of RK45"),
        ({"naive_log10_time": "400"}, "naive_log10_time must be between"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
