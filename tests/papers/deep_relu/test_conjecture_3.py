"""Conjecture 3: every claim can fail, each on a run with the error that it guards against."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/conjecture-3"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def arrival(run):
    """Return the first stored step at which the first network has completed 95 % of the first drop."""
    one = run.isel(network=0)
    high, low = one.stage_loss.values[:2]
    return {"network": 0, "mark": np.flatnonzero(one.loss.values <= low + 0.05 * (high - low))[0]}


def a_second_value_on_the_way(run):
    run.above_bulk[{**arrival(run), "layer": 3}] = 2


def in_the_second_layer(run):
    run.above_bulk[{**arrival(run), "layer": 1}] = 2


def a_plateau_of_rank_two(run):
    run.stage_layer_rank[{"network": 0, "stage": 1, "layer": 2}] = 2


def further_from_rank_one(run):
    run.second_ratio[{**arrival(run), "layer": 2}] = 1.0


def activations_of_rank_two(run):
    run.tail_activations[{**arrival(run), "layer": 2}] = 0.2


def nonlinear(run):
    run.nonlinearity[{**arrival(run), "layer": 2}] = 0.5


def first_layer_of_rank_one(run):
    run.second_ratio[{**arrival(run), "layer": 0}] = 0.01


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (a_second_value_on_the_way, "rank-one"),
        (a_plateau_of_rank_two, "plateau"),
        (further_from_rank_one, "sharper"),
        (activations_of_rank_two, "activations"),
        (nonlinear, "linear"),
        (in_the_second_layer, "second-layer"),
        (first_layer_of_rank_one, "first-layer"),
    ],
)
def test_a_wrong_run_refutes(run, outcomes, spoil, claim):
    spoil(run)
    verdicts = outcomes(ENTRY, run)
    assert verdicts[claim] == "refuted"
    assert list(verdicts.values()).count("refuted") == 1


def test_runs_that_never_escape_decide_nothing(run, outcomes):
    run.stages_found[:] = 1
    assert set(outcomes(ENTRY, run).values()) == {"undecided"}


def test_networks_that_stay_at_the_origin_decide_nothing(run, outcomes):
    """Stages that are found in the noise of a loss that does not fall are no saddles."""
    run.loss[:] = 2.3 + 1e-6 * run.loss
    assert set(outcomes(ENTRY, run).values()) == {"undecided"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("teachers", 0),
        ("images", -1),
        ("seed", -1),
        ("strengths", (1.0,)),
        ("strengths", (1.0, 0.0)),
        ("strengths", (1.0,) * 7),
        ("depth", 2),
        ("width", 0),
        ("steps", 0),
        ("rate", 0.0),
        ("deviation", float("inf")),
    ],
)
def test_bad_parameters_are_named(field, value):
    with pytest.raises(InputError, match=f"{field} must be"):
        ENTRY.params(**{field: value})
