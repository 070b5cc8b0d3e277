"""Deep linear networks: every claim can fail, each on a run with the error that it guards against."""

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import find_entry

NAME = "deep-relu/deep-linear"
ENTRY = find_entry(NAME)


def test_what_the_quick_size_resolves_holds(run, outcomes):
    verdicts = outcomes(ENTRY, run)
    # A noise it leaves out, and too few staircases for the share at another.
    assert {name for name, verdict in verdicts.items() if verdict == "undecided"} == {
        "synthetic-0.0001",
        "synthetic-0.001",
    }
    assert "refuted" not in verdicts.values()


def one_stage_too_many(run):
    run.stages_found[0] += 1


def a_layer_of_another_rank(run):
    run.stage_layer_rank.loc[{"stage": 2, "layer": 2}] = 1


def a_plateau_off_its_level(run):
    run.stage_loss.loc[{"stage": 1}] += 0.01 * run.level.sel(stage=0)


def a_plateau_at_no_saddle(run):
    run.fitted[:] = 0.01


def a_slow_direction(run):
    run.speed_share[:] = 0.8


def a_direction_faster_than_the_optimum(run):
    run.speed_share[:] = 1.001


def a_staircase_missed(run):
    run.right.loc[{"loss_noise": 0.0, "sampling": "linear"}] -= 1


def noise_confuses(run):
    run.right.loc[{"loss_noise": 1e-3}] = 1


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (one_stage_too_many, "stages"),
        (a_layer_of_another_rank, "stages"),
        (a_plateau_off_its_level, "levels"),
        (a_plateau_at_no_saddle, "saddles"),
        (a_slow_direction, "speed"),
        (a_direction_faster_than_the_optimum, "speed"),
        (a_staircase_missed, "synthetic-0"),
        (noise_confuses, "synthetic-0.001"),
    ],
)
def test_a_wrong_run_refutes(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_enough_staircases_decide(run, outcomes):
    run["staircases"] = 1000
    run.right[:] = 1000
    verdicts = outcomes(ENTRY, run)
    assert verdicts["synthetic-0"] == verdicts["synthetic-0.001"] == "reproduced"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("depths", (1,)),
        ("depths", (3, 3)),
        ("deviations", (0.1,)),
        ("deviations", (0.1, 0.0)),
        ("seeds", ()),
        ("seeds", (-1,)),
        ("strengths", ()),
        ("strengths", (1.0, -1.0)),
        ("noise", -1.0),
        ("noises", (2.0,)),
        ("rate", 0.0),
        ("steps", 0),
        ("staircases", 0),
        ("width", 0),
    ],
)
def test_bad_parameters_are_named(field, value):
    with pytest.raises(InputError, match=f"{field} must be"):
        ENTRY.params(**{field: value})
