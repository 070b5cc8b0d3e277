"""Figure 2: its claims hold at the quick size, what did not happen is undecided, and a killed run resumes."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.reproduction import RunContext, find_entry

NAME = "gradual-rank/figure-2"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"agrees"}


@pytest.mark.parametrize("one_too_many", [True, False])
def test_one_wrong_entry_on_one_plateau_is_seen(run, outcomes, one_too_many):
    stage = np.flatnonzero(run.resolved.values[-1, :10])[-1]
    missing = np.flatnonzero(run.predicted_beta.values[stage] == 0)[0]
    entry = missing if one_too_many else run.predicted_coordinate.values[stage]
    run.plateau_beta.values[-1, stage, entry] = float(one_too_many)
    assert outcomes(ENTRY, run)["support"] == "differs"


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
