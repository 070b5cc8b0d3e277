"""Proposition 3.3's claims hold, and spoilt ratios refute them."""

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/proposition-3-3"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found.pop("sign-needed") in ("reproduced", "undecided")  # six data sets
    assert set(found.values()) == {"reproduced"}


def one_exceeds(run):
    run.ratio.loc[{"kind": "v ≥ 0"}][0, 0, 0] = 0.5


def one_exceeds_beyond_the_plane(run):
    run.beyond_ratio[0, 0, 0] = 0.5


def two_neurons(run):
    run.excess.loc[{"kind": "v ≥ 0"}][0, 3] = 1e-6


def two_neurons_beyond_the_plane(run):
    run.beyond_excess[0, 1] = 1e-6


def linear_in_eps(run):
    run.ratio.loc[{"kind": "v ≥ 0"}] = 0.1 * run.share.sel(kind="v ≥ 0")


def sign_does_not_matter(run):
    run.ratio.loc[{"kind": "v of both signs"}] = 1e-12


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (one_exceeds, "holds"),
        (one_exceeds, "sharper"),
        (one_exceeds_beyond_the_plane, "holds-beyond-plane"),
        (one_exceeds_beyond_the_plane, "sharper"),
        (two_neurons, "one-neuron"),
        (two_neurons_beyond_the_plane, "one-neuron-beyond-plane"),
        (linear_in_eps, "sharper"),
        (sign_does_not_matter, "sign-needed"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_data_far_from_one_ray_are_not_judged(run, outcomes):
    """Only where the theorem's condition holds: the last distance of the run is beyond it on most data sets."""
    spoilt = run.assign(excess=run.excess.where(run.share < 2**0.5 - 1, 0.5))
    assert outcomes(ENTRY, spoilt)["one-neuron"] == "reproduced"


def test_the_first_relu_has_something_to_cut(run):
    assert float((run.ratio.sel(kind="v ≥ 0", name="relu") > 0).mean()) > 0.1


def test_bounds_without_content_leave_it_undecided(run, outcomes):
    run.share.values[:] = 0.5
    assert outcomes(ENTRY, run)["holds"] == "undecided"


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"log10_distances": "-1,-2"}, "must be two or more numbers, each between -7 and 0, increasing"),
        ({"points": "1"}, "points must be at least 2"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
