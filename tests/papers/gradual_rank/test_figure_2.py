"""Figure 2's claims can fail: each is refuted on a run that violates it."""

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import RunContext, find_entry

NAME = "gradual-rank/figure-2"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def swap_first_two(run):
    times = run.found_time.values
    times[:, [0, 1]] = times[:, [1, 0]]


def two_percent_late(run):
    run.found_time.values[:] *= 1.02


def wrong_teacher(run):
    run.teacher.values[0] += 1e-9


def one_too_many(run):
    stage = np.flatnonzero(run.resolved.values[-1])[0]
    missing = np.flatnonzero(run.predicted_beta.values[stage] == 0)[0]
    run.plateau_beta.values[-1, stage, missing] = 1.0


def one_too_few(run):
    stage = np.flatnonzero(run.resolved.values[-1, :10])[-1]
    run.plateau_beta.values[-1, stage, run.predicted_coordinate.values[stage]] = 0.0


def loss_stops_converging(run):
    run.loss.values[-1] = run.loss.values[-2] + 0.05


def weights_stop_converging(run):
    run.plateau_beta.values[-1] += 1.0


def one_leaves(run):
    run.predicted_left.values[2] = 1


def no_plateau(run):
    run.loss.values[list(run.scale.values).index(-2)] = np.exp(-run.time.values / 50)


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (swap_first_two, "order"),
        (two_percent_late, "times"),
        (wrong_teacher, "end"),
        (one_too_many, "support"),
        (one_too_few, "support"),
        (loss_stops_converging, "loss-converges"),
        (weights_stop_converging, "weights-converge"),
        (no_plateau, "one-percent"),
        (one_leaves, "nobody-leaves"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_what_did_not_happen_is_undecided(run, outcomes):
    run.found_time.values[-1, 3] = np.nan
    assert outcomes(ENTRY, run)["times"] == "undecided"
    assert outcomes(ENTRY, run)["order"] == "undecided"
    run.resolved.values[-1, :10] = False
    assert outcomes(ENTRY, run)["support"] == "undecided"
    assert outcomes(ENTRY, run.isel(scale=[0]))["loss-converges"] == "undecided"


@pytest.mark.slow
def test_a_killed_run_keeps_its_finished_parts(run, tmp_path):
    class KilledError(Exception):
        pass

    def kill(fraction: float, note: str) -> None:
        if "alpha = 1e-16" in note and "done" not in note:
            raise KilledError

    params = ENTRY.configure("quick")
    with pytest.raises(KilledError):
        ENTRY.run(params, RunContext(scratch=tmp_path, report=kill))
    kept = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert kept
    again = ENTRY.run(params, RunContext(scratch=tmp_path))
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in kept} == kept
    xr.testing.assert_identical(again.drop_attrs(), run.drop_attrs())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"log10_scales": "-8,-2"}, "log10_scales must be one or more negative numbers, decreasing"),
        ({"log10_scales": "2"}, "log10_scales must be one or more negative numbers, decreasing"),
        ({"dim": "0"}, "dim must be at least 1"),
        ({"until": "inf"}, "until must be a finite number"),
        ({"tolerance": "0"}, "tolerance must be between"),
        ({"seed": "-1"}, "seed must be at least 0"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)
