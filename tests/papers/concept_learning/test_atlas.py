"""The atlas: a killed run resumes to the same result, its numbers agree, and a wrong run refutes."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.reproduction import RunContext, find_entry

NAME = "concept-learning/atlas"
ENTRY = find_entry(NAME)


def test_a_killed_run_resumes_to_the_same_result(run, tmp_path):
    def dies(fraction, note):
        if fraction > 0.4:
            raise KeyboardInterrupt

    params = ENTRY.configure("quick")
    with pytest.raises(KeyboardInterrupt):
        ENTRY.run(params, RunContext(scratch=tmp_path, report=dies))
    rows = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("row-*.nc")}
    assert len(rows) == 1  # of 4
    notes = []
    again = ENTRY.run(params, RunContext(scratch=tmp_path, report=lambda fraction, note: notes.append(fraction)))
    assert notes[0] == 1 / 4
    assert rows.items() <= {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("row-*.nc")}.items()
    xr.testing.assert_identical(again.drop_attrs(), run.drop_attrs())


def test_numbers_agree(run):
    assert (run.counts.sum("descents") == 64).all()
    assert (run.visible.sum("descents") == 64).all()
    assert (((run.counts - run.visible) * run.descents).sum("descents") >= 0).all()
    assert (run.counts.sel(concepts=2, descents=slice(3, None)) == 0).all()


def test_an_exception_and_wide_networks_that_rise_as_often(run, inside):
    assert {"conjecture", "wide"} <= inside(ENTRY, run)
    run.exceptions[{"concepts": 1, "ratio": 1, "sigma": 0, "scale": 0, "factor": 0}] = 1
    run.visible[:] = np.array([0, 48, 16, 0, 0])
    assert not {"conjecture", "wide"} & inside(ENTRY, run)
