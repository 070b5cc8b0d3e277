"""The entry on narrow heads: residuals that identify stationary points, and claims that a wrong run refutes."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.flow import FlowError
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.papers.softmax_attention.narrow_heads import _residual
from saddlescope.papers.softmax_attention.shared.head_flows import draw_head, follow_in_balance
from saddlescope.reproduction import find_entry
from saddlescope.theory import nuclear_svm

NAME = "softmax-attention/narrow-heads"
ENTRY = find_entry(NAME)


def test_the_residual_is_zero_at_a_stationary_point_alone():
    data = gaussian_tokens(4, 5, 8, seed=0)
    found = nuclear_svm(data, 1, num_starts=4)
    assert found.local is not None
    rates = 3.0 * found.local.multipliers  # any multiple
    assert _residual(data, rates, found.K, found.Q) < 1e-10
    assert _residual(data, rates, 2 * found.K, found.Q) < 1e-10
    moved = found.K + 0.1 * np.linalg.norm(found.K) * np.eye(8)[:, :1]
    assert _residual(data, rates, moved, found.Q) > 0.03
    assert _residual(data, np.ones_like(rates), found.K, found.Q) > 0.1


def test_values_lie_between_the_bounds_of_the_svms(run):
    last = run.value.isel(time=-1)
    assert np.all(run.bounded >= run.least)
    assert np.all(last >= run.least * (1 - 1e-9))
    wide = run.bounded.where(run.columns >= run["rank"])
    np.testing.assert_allclose((wide / run.least).values[wide.notnull().values], 1.0, rtol=1e-10)


def test_what_the_quick_size_can_say(run, outcomes, inside):
    verdicts = outcomes(ENTRY, run)
    assert verdicts["one-column-stationary"] == verdicts["none-better"] == "reproduced"
    assert inside(ENTRY, run) >= {"separates", "wide", "rank-is-enough"}


def many(run):
    """The same draws fifty times."""
    return run.isel(draw=[0, 1] * 50)


def nowhere(run):
    run["value"][:] = np.nan


def far(run):
    run["value"][:] = 3 * run["value"]


def unsteady(run):
    run["residual"][:] = 0.5


def search_failed(run):
    run["bounded"][:] = 2 * run["bounded"]


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (nowhere, {"separates", "wide", "rank-is-enough", "one-column"}),
        (far, {"wide", "rank-is-enough", "one-column"}),
        (unsteady, {"one-column-stationary"}),
        (search_failed, {"none-better"}),
    ],
)
def test_a_wrong_run_refutes(run, outcomes, spoil, claims):
    run = many(run).copy(deep=True)
    spoil(run)
    assert {outcomes(ENTRY, run)[claim] for claim in claims} == {"refuted"}


def test_best_heads_reproduce_and_no_wide_enough_head_says_nothing(run, outcomes):
    run = many(run).copy(deep=True)
    run["value"][:] = run.bounded
    verdicts = outcomes(ENTRY, run)
    assert {verdicts[name] for name in ("separates", "wide", "rank-is-enough", "one-column")} == {"reproduced"}
    run["rank"][:] = 8
    assert outcomes(ENTRY, run)["rank-is-enough"] == "undecided"


def test_heads_have_the_scale_asked_for_and_flows_are_tightened_once_refused():
    K, Q = draw_head((1, 2), 400, 30, 0.1)
    assert K.shape == Q.shape == (400, 30)
    assert np.std(K) == pytest.approx(0.1 / 20, rel=0.03)
    asked = []

    def flow(word, *, log_until, record, tolerance):
        assert log_until == record[-1] == 2.0
        asked.append(tolerance)
        if tolerance > 5e-9:
            raise FlowError.__new__(FlowError)
        return word

    assert follow_in_balance(flow, "done", log_times=np.array([1.0, 2.0])) == "done"
    assert asked == [1e-7, 1e-8, 1e-9]


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"columns": "2,3"}, "columns must begin with 1"),
        ({"columns": "1,8"}, "be below dim=8"),
        ({"log10_times": "100,10"}, "log10_times must be two or more numbers, each at least 5, increasing"),
        ({"search": "0"}, "search must be at least 1"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
