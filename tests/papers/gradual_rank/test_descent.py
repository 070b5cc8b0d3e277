"""Gradient descent beside the flow: each claim is refuted by a run that violates it."""

import dataclasses

import numpy as np
import pytest
import xarray as xr

import problems
from saddlescope._shared.errors import InputError
from saddlescope.models import diagonal_linear_network
from saddlescope.papers.gradual_rank import gradient_descent
from saddlescope.reproduction import RunContext, find_entry
from saddlescope.theory import incremental_learning

NAME = "gradual-rank/gradient-descent"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


@pytest.fixture
def ideal():
    """Three stages that descent reaches late by eta / (2 T_1), and SGD with a spread of 1/B."""
    rates, batches, times = np.array([2.0, 1.0, 0.5]), np.array([5, 20, 80]), np.array([50.0, 70.0, 90.0])
    noise = np.linspace(-1, 1, 40)
    late = times * (1 + 0.25 / 100)
    three = np.zeros((2, 2, 3))
    three[:, -1] = gradient_descent.TEACHER
    lost = three.copy()
    lost[1, -1] = gradient_descent.SADDLE
    dims = ("returning_scale", "moment", "place")
    return xr.Dataset(
        {
            "predicted_time": ("stage", times),
            "flow_time": (("scale", "stage"), times[None]),
            "descent_time": (("scale", "rate", "stage"), times * (1 + rates[:, None] / 100)[None]),
            "full_time": ("stage", late),
            "instance_ratio": ("instance", np.array([0.97, 1.02])),
            "sgd_time": (
                ("batch", "run", "stage"),
                late + noise[:, None] / batches[:, None, None],
            ),
            "returning_descent": (dims, lost),
            "returning_flow": (dims, three),
        },
        coords={
            "scale": [-8.0],
            "rate": rates,
            "batch": batches,
            "run": np.arange(40),
            "returning_scale": [-2.0, -16.0],
            "moment": [0.0, 60.0],
            "stage": [1, 2, 3],
        },
    )


def test_all_claims_hold_for_descent_that_follows_the_laws(ideal, outcomes):
    found = outcomes(ENTRY, ideal)
    assert found.pop("sgd-order") == "seen"
    assert set(found.values()) == {"reproduced"}


def test_the_laws_hold_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found.pop("sgd-spread") in {"reproduced", "undecided"}  # few runs
    assert found.pop("sgd-order") == "undecided"  # four of four
    assert set(found.values()) == {"reproduced"}


def test_the_three_coordinates_do_what_is_said_of_them():
    features, teacher = np.array(gradient_descent.FEATURES), np.array(gradient_descent.TEACHER)
    assert (gradient_descent.FEATURES, gradient_descent.TEACHER, gradient_descent.SADDLE) == (
        problems.RETURNING_FEATURES,
        problems.RETURNING_TEACHER,
        problems.RETURNING_LAST_SADDLE,
    )
    stages = incremental_learning(diagonal_linear_network(features, features @ teacher), 3).stages
    assert [stage.entered for stage in stages[1:]] == [(2,), (0,), (1,), (0,)]
    assert [stage.signs for stage in stages[1:]] == [(-1,), (1,), (-1,), (-1,)]
    assert stages[3].left == (0,)
    np.testing.assert_allclose(stages[3].beta, gradient_descent.SADDLE, atol=1e-12)
    assert [round(stage.time, 2) for stage in stages[1:]] == [0.14, 0.32, 2.25, 20.25]


def square_root_law(run):
    run.descent_time.values[:] = run.flow_time.values * (1 + np.sqrt(run.rate.values[:, None]) / 100)


def twice_as_late(run):
    run.instance_ratio.values[1] = 2.0


def too_early(run):
    run.instance_ratio.values[0] = -1.0


def another_order(run):
    run.sgd_time.values[-1, :20] = run.sgd_time.values[-1, :20, ::-1].copy()


def not_learned(run):
    run.sgd_time.values[-1, :20, 2] = np.nan


def independent_draws(run):
    mean = run.sgd_time.mean("run")
    run.sgd_time.values[:] = (mean + (run.sgd_time - mean) * np.sqrt(run.batch)).transpose(*run.sgd_time.dims).values


def descent_lost_early(run):
    run.returning_descent.values[0] = run.returning_descent.values[1]


def descent_is_right(run):
    run.returning_descent.values[:] = run.returning_flow.values


def flow_is_lost(run):
    run.returning_flow.values[:] = run.returning_descent.values


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (square_root_law, "descent-power"),
        (twice_as_late, "descent-delay"),
        (too_early, "descent-delay"),
        (another_order, "sgd-order"),
        (not_learned, "sgd-order"),
        (independent_draws, "sgd-spread"),
        (descent_lost_early, "descent-right"),
        (descent_is_right, "descent-wrong"),
        (flow_is_lost, "flow-right"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(ideal, outcomes, spoil, claim):
    spoil(ideal)
    assert outcomes(ENTRY, ideal)[claim] == ("not seen" if claim == "sgd-order" else "refuted")


def test_what_did_not_happen_is_undecided(ideal, outcomes):
    ideal.descent_time.values[0, -1, 0] = np.nan
    ideal.instance_ratio.values[0] = np.nan
    ideal.sgd_time.values[0, 0, 0] = np.nan
    found = outcomes(ENTRY, ideal.isel(returning_scale=[0]))
    for claim in ("descent-power", "descent-delay", "sgd-spread", "descent-wrong", "flow-right"):
        assert found[claim] == "undecided", claim


@pytest.mark.slow
def test_a_killed_run_keeps_its_finished_parts(tmp_path):
    class KilledError(Exception):
        pass

    def kill(fraction: float, note: str) -> None:
        if "batches" in note:
            raise KilledError

    params = dataclasses.replace(
        ENTRY.configure("quick"),
        samples=4,
        batches=(1, 2),
        runs=2,
        dim=2,
        stages=1,
        instances=(11,),
        returning_scales=(-2.0,),
    )
    with pytest.raises(KilledError):
        ENTRY.run(params, RunContext(scratch=tmp_path, report=kill))
    kept = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert set(kept) == {"theory.nc", "full.nc"}
    ENTRY.run(params, RunContext(scratch=tmp_path))
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in kept} == kept


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"log10_scales": "-200"},
            "log10_scales must be one or more numbers, each at least -100 and below 0",
        ),
        ({"learning_rates": "0.1,0.2"}, "learning_rates must be two or more positive numbers, decreasing"),
        ({"batches": "10,5"}, "batches must be two or more integers, each at least 1, increasing"),
        ({"batches": "10,500"}, "batches must be at most samples=40"),
        ({"runs": "1"}, "runs must be at least 2"),
        ({"rate": "0"}, "rate must be positive"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)
