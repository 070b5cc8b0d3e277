"""Proposition 3.2's claims hold, and violations of the construction's properties refute them."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/proposition-3-2"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def one_is_slower(run):
    run.gain.values[0, 2, 5] = -1e-9


def rank_two(run):
    run["tail"].values[0, 1, 1] = 1e-6


def relu_cuts(run):
    run.lost.values[0, 0, 0] = 1e-15


def off_the_sphere(run):
    run.off_sphere.values[0, 0, 0] = 1e-6


def nothing_gained(run):
    run.gain.values[:] = np.linspace(0, 1e-9, run.gain.size).reshape(run.gain.shape)


def falls_with_depth(run):
    run["shallow_upper"] = run.lower + 1e-6


def deeper_is_faster(run):
    run.searched.values[0, -1] = run.upper.values[0] * (1 + 1e-4)


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (one_is_slower, "not-slower"),
        (rank_two, "rank-one"),
        (relu_cuts, "no-relu"),
        (off_the_sphere, "on-the-sphere"),
        (nothing_gained, "gain"),
        (falls_with_depth, "not-falling"),
        (falls_with_depth, "rising"),
        (deeper_is_faster, "plateau"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_the_search_comes_near_the_optimum(run):
    assert np.nanmax((run.searched / run.upper).values) > 0.999  # else the plateau claim would hold for nothing


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"depths": "1,2"}, "depths must be one or more integers, each at least 2, each once"),
        ({"added": "0"}, "added must be at least 1"),
        ({"deepest": "3"}, "deepest must be at least 4"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)
