"""The entry on section 4.2: excesses from the flows' matrices themselves, and claims that a wrong run refutes."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.flow import key_query_margin_flow
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.models.tokens.losses import SelectionLoss
from saddlescope.papers.softmax_attention.section_4_2 import FACTORS, WEIGHTS
from saddlescope.reproduction import find_entry
from saddlescope.theory import frobenius_svm, nuclear_svm

NAME = "softmax-attention/section-4-2"
ENTRY = find_entry(NAME)


def test_excesses_are_those_of_the_matrix_and_never_below_zero(run):
    data = gaussian_tokens(4, 5, 8, seed=41)
    start = 0.1 / 8**0.5 * np.random.default_rng((41, 1)).normal(size=(2, 8, 8))
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    log_times = run.log10_time.values * np.log(10)
    flow = key_query_margin_flow(
        loss, data.differences, data.z, (start[0], start[1]), log_until=log_times[-1], record=log_times, tolerance=1e-7
    )
    W = flow.keys(2) @ flow.queries(2).T
    W /= data.margins(W).min()
    found = run.sel(draw=1, flow=FACTORS).isel(time=2)
    assert float(found.nuclear) == pytest.approx(
        np.linalg.norm(W, "nuc") / nuclear_svm(data).certificate.primal - 1, rel=1e-6
    )
    assert float(found.frobenius) == pytest.approx(
        np.linalg.norm(W) / frobenius_svm(data).certificate.primal - 1, rel=1e-6
    )
    assert float(run.nuclear.min()) > -1e-9
    assert float(run.frobenius.min()) > -1e-9
    assert float(run.gap.max()) < 1e-10


def test_every_claim_holds_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found.pop("nuclear-rate") == "undecided"  # four draws have no interval of the median
    del found["nuclear"]  # its bar is for larger data
    assert set(found.values()) == {"reproduced"}


def swapped(run):
    """The other flow for each."""
    for name in ("nuclear", "frobenius", "loss_ratio"):
        run[name][:] = run[name].values[:, ::-1].copy()


def resting(run):
    """Directions that stay as they are at first."""
    for name in ("nuclear", "frobenius"):
        run[name][:] = run[name].isel(time=[0])


def half(run):
    run["loss_ratio"][:] = 0.5


def one_above(run):
    run.nuclear.loc[{"flow": FACTORS, "draw": 0}] = 2 * run.nuclear.sel(flow=WEIGHTS, draw=0)


def one_above_at_first(run):
    run.nuclear[{"flow": 1, "draw": 0, "time": 0}] = 2.0


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (swapped, {"frobenius", "nuclear", "below", "below-from-the-first", "not-nuclear", "not-frobenius"}),
        (resting, {"frobenius", "nuclear", "falls"}),
        (half, {"loss-of-weights", "loss-of-factors"}),
        (one_above, {"below", "below-from-the-first"}),
        (one_above_at_first, {"below-from-the-first"}),
    ],
)
def test_a_wrong_run_refutes(run, outcomes, spoil, claims):
    spoil(run)
    refuted = {name for name, outcome in outcomes(ENTRY, run).items() if outcome == "refuted"}
    assert claims <= refuted


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"samples": "1"}, "samples must be at least 2"),
        ({"scale": "0"}, "scale must be positive"),
        ({"log10_times": "10,50"}, "log10_times must have 100 among them"),
        ({"log10_times": "300,100"}, "log10_times must be two or more numbers, each at least 5, increasing"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
