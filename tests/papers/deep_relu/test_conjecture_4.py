"""Conjecture 4: every claim can fail, each on a run with the error that it guards against."""

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/conjecture-4"
ENTRY = find_entry(NAME)
OTHERS = {"equal", "equal-stops", "digits"}  # tasks that the quick size leaves out


def test_what_the_quick_size_runs_holds(run, outcomes):
    verdicts = outcomes(ENTRY, run)
    assert {name for name, verdict in verdicts.items() if verdict == "undecided"} == OTHERS
    assert {verdicts[name] for name in verdicts.keys() - OTHERS} == {"reproduced"}


def test_ranks_of_the_students(run):
    for ranks in run.stage_rank.values:
        assert ranks[:4].tolist() == [0, 1, 2, -1]


def a_rise_by_two(run):
    run.stage_rank[{"network": 0, "stage": 1}] = 2


def a_fall(run):
    run.stage_rank[{"network": 0, "stage": 2}] = 0


def one_more_than_it_takes(run):
    run.stage_rank[{"network": 0, "stage": 3}] = 3


def layers_of_different_ranks(run):
    run.stage_layer_rank[{"stage": 2, "layer": 1}] = 4


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (a_rise_by_two, "by-one"),
        (a_fall, "by-one"),
        (one_more_than_it_takes, "stops"),
        (layers_of_different_ranks, "shared"),
    ],
)
def test_a_wrong_run_refutes(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


@pytest.mark.parametrize(("task", "claim"), [("equal", "equal"), ("images", "digits")])
def test_claims_are_about_their_own_task(run, outcomes, task, claim):
    run["task"] = ("network", [task] * run.sizes["network"])
    verdicts = outcomes(ENTRY, run)
    assert verdicts[claim] == "reproduced"
    assert verdicts["by-one"] == verdicts["stops"] == verdicts["shared"] == "undecided"
    a_rise_by_two(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_students_that_do_not_fit_do_not_count(run, outcomes):
    run.loss[:] = run.loss.clip(min=0.1 * float(run.loss.max()))
    one_more_than_it_takes(run)
    assert outcomes(ENTRY, run)["stops"] == "undecided"


def test_networks_that_stay_at_the_origin_decide_nothing(run, outcomes):
    run.loss[:] = 2.3 + 1e-6 * run.loss
    a_rise_by_two(run)
    assert outcomes(ENTRY, run)["by-one"] == "undecided"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("depths", ()),
        ("depths", (1,)),
        ("rates", (0.1,)),
        ("deviations", (0.1, 0.0)),
        ("teachers", 0),
        ("equal", -1),
        ("images", -1),
        ("seed", -1),
        ("strengths", (1.0,)),
        ("steps", 0),
        ("width", 0),
    ],
)
def test_bad_parameters_are_named(field, value):
    with pytest.raises(InputError, match=f"{field} must be"):
        ENTRY.params(**{field: value})
