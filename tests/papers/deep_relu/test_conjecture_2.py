"""Conjecture 2's evidence holds at the quick size, and spoilt runs are refuted."""

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/conjecture-2"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def faster(run):
    run.speed.values[0, 1, 0] = 0.5 + 1e-8


def slower(run):
    run.best.values[0, 1] = 0.49


def rank_two(run):
    run["rank"].loc[{"layer": 4, "depth": 4}] = 2


def rank_two_beyond_the_plane(run):
    run["beyond_rank"].loc[{"beyond_layer": 3, "beyond_depth": 4}] = 2


def faster_beyond_the_plane(run):
    run.beyond_descent_best.values[0, 1] *= 1.01


def no_direction(run):
    run.residual.values[0, 0] = 1e-6


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (faster, "none-faster"),
        (slower, "plateau"),
        (rank_two, "rank-one"),
        (rank_two_beyond_the_plane, "beyond-plane"),
        (faster_beyond_the_plane, "beyond-plane-none-faster"),
        (no_direction, "escape-directions"),
    ],
)
def test_a_spoilt_run_is_refuted(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


@pytest.mark.parametrize("changed", [{"depths": "2,3"}, {"data": "sphere"}, {"width": "0"}])
def test_bad_parameters_are_refused(changed):
    with pytest.raises(InputError):
        ENTRY.configure("quick", changed)
