import json

import numpy as np
import pytest
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError, StorageError
from saddlescope.reproduction import Reproduction
from saddlescope.sweeps import Grid, Point, State, Sweep, stored_sweeps, sweep
from saddlescope.sweeps.assemble import assemble


def numbers(made):
    """Return the part of a data set that depends on the points alone."""
    return made.data.drop_vars("cpu_seconds").drop_attrs()


def test_every_point_is_the_run_of_its_parameters(swept, walk, tmp_path):
    made = swept("dim=1,2", seeds="0:3")
    assert made.data.value.dims == ("dim", "seed", "claim")
    assert made.data.seed.values.tolist() == [0, 1, 2]
    stored = made.at(dim=2, seed=1)
    assert isinstance(stored, Reproduction)
    assert stored.provenance.params["dim"] == 2
    assert stored.provenance.command == "saddlescope run tiny/walk --size quick --set dim=2 --set seed=1"
    here = {"dim": 2, "seed": 1}
    for verdict in stored.verdicts:
        cell = made.data.sel(here | {"claim": verdict.claim})
        assert (float(cell.value), float(cell.uncertainty)) == (verdict.value, verdict.uncertainty)
        assert str(cell.outcome.item()) == verdict.outcome
    assert float(made.data.metrics.sel(here).sel(metric="end")) == float(stored.run.end[0])
    assert made.data.claim_low.values.tolist() == [0.05, -np.inf]
    assert (made.data.cpu_seconds >= 0).all()
    assert {str(state) for state in made.data.state.values.ravel()} == {"finished"}
    assert made.data.attrs["entry"] == walk.name


def test_what_is_stored_opens_again(swept, tmp_path):
    made = swept("scales=0.1/0.01,0.5/0.1", seeds="0:2")
    again = Sweep.open(made.file)
    assert again.grid == made.grid
    xr.testing.assert_identical(again.data, made.data)
    assert repr(again) == "Sweep(tiny/walk, quick: scales[2] x seed[2]; 4 finished)"
    assert "two-scales" in again._repr_html_()
    assert stored_sweeps(tmp_path / "out") == (made.file,)
    assert again.at(scales="0.5/0.1", seed=1).provenance.params["scales"] == [0.5, 0.1]


def test_the_runs_lie_together_over_the_axes(swept):
    made = swept("noise=0.5,2", seeds="0:3")
    runs = made.runs()
    assert runs.walk.dims == ("noise", "seed", "scale", "step", "dim")
    np.testing.assert_allclose(runs.walk.sel(noise=2.0), 4 * runs.walk.sel(noise=0.5), rtol=1e-12)
    xr.testing.assert_equal(runs.walk.sel(noise=2.0, seed=1, drop=True), made.at(noise=2.0, seed=1).run.walk)


def test_a_point_that_another_process_finishes_meanwhile_is_finished_or_missing(walk, tmp_path, monkeypatch):
    grid = Grid.parse(walk, ["dim=1"], size="quick")
    point = Point(tmp_path, walk.name, grid.params[0], "quick", grid.at((0,)), grid.label((0,)))
    point.run()
    for missing in range(4):
        reads = iter([State.MISSING] * missing)
        monkeypatch.setattr(Point, "state", property(lambda _, reads=reads: next(reads, State.FINISHED)))
        data = assemble(grid, [point], tmp_path, {})
        assert (data.state == "finished").item() == data.value.notnull().all()


def test_what_differs_in_shape_is_left_out_of_the_runs_and_named(swept):
    runs = swept("dim=1,2").runs()
    assert runs.attrs["left_out"] == "walk"
    assert runs.end.dims == ("dim", "scale")
    other = swept("scales=0.1,0.5").runs()
    assert other.scale_of_run.values.ravel().tolist() == [0.1, 0.5]


def test_points_without_a_run_are_empty_among_the_runs(swept):
    runs = swept("kind=walk,fails").runs()
    assert np.isfinite(runs.walk.sel(kind="walk")).all()
    assert np.isnan(runs.walk.sel(kind="fails")).all()


def test_a_claim_that_needs_more_than_a_point_has_is_undecided_there(swept):
    made = swept("scales=0.1,0.5")
    assert made.data.outcome.sel(claim="two-scales").values.tolist() == ["undecided", "undecided"]
    assert "IndexError" in str(made.data.remark.sel(claim="two-scales")[0].item())
    assert set(made.data.outcome.sel(claim="walks").values.tolist()) <= {"seen", "not seen"}


def test_a_metric_that_a_point_does_not_have_is_nan_and_says_why(swept, walk, monkeypatch):
    import dataclasses

    metric = dataclasses.replace(walk.metrics[0], statistic=lambda run: float(run.end[1]))
    monkeypatch.setattr("saddlescope.reproduction.entry.find_entry", lambda name: entry)
    entry = dataclasses.replace(walk, metrics=(metric,))
    made = sweep(entry, Grid.parse(entry, ["scales=0.1/0.2,0.5"], size="quick"), out=swept("dim=1").folder, processes=1)
    assert np.isfinite(made.data.metrics[0]).all()
    assert np.isnan(made.data.metrics[1]).all()
    assert "IndexError" in str(made.data.metric_remark[1, 0].item())


def test_finished_points_are_passed_by_and_shared_between_sweeps(swept, begun, heard):
    first = swept("dim=1,2", seeds="0:2")
    assert len(begun()) == 4
    same = swept("dim=1,2", seeds="0:2")
    assert len(begun()) == 4
    assert heard[-1].startswith("4 of 4 points are stored already")
    xr.testing.assert_identical(numbers(same), numbers(first))
    wider = swept("dim=1,2,3", seeds="0:2")
    assert len(begun()) == 6
    assert heard[-1].startswith("4 of 6")
    assert wider.file != first.file
    xr.testing.assert_equal(
        wider.data[["value", "outcome"]].sel(dim=[1, 2], seed=[0, 1]), first.data[["value", "outcome"]]
    )
    swept("dim=1,2", seeds="0:2", again=True)
    assert len(begun()) == 10


def test_failed_points_are_reported_passed_by_and_tried_again_on_demand(swept, begun, heard):
    made = swept("kind=walk,fails,refuses", seeds="0:2")
    assert dict(made.counts) == {"finished": 2, "failed": 4, "missing": 0}
    assert made.failures == {
        "kind=fails seed=0": "ZeroDivisionError: a defect",
        "kind=fails seed=1": "ZeroDivisionError: a defect",
        "kind=refuses seed=0": "kind must be walk; got 'refuses'.",
        "kind=refuses seed=1": "kind must be walk; got 'refuses'.",
    }
    assert np.isnan(made.data.value.sel(kind="fails")).all()
    assert set(made.data.outcome.sel(kind="fails").values.ravel().tolist()) == {""}
    with pytest.raises(InputError, match="No run is stored at kind=fails seed=1: ZeroDivisionError"):
        made.at(kind="fails", seed=1)
    record = json.loads(next(made.folder.glob("points/*.failed.json")).read_text())
    assert "Traceback" in record["traceback"] or "refuses" in record["error"]
    assert len(begun()) == 6
    swept("kind=walk,fails,refuses", seeds="0:2")
    assert len(begun()) == 6
    assert heard[-1] == "4 of 6 points are skipped after an earlier failure. Pass --retry to retry."
    again = swept("kind=walk,fails,refuses", seeds="0:2", retry=True)
    assert len(begun()) == 10
    assert dict(again.counts) == dict(made.counts)


def test_a_point_that_failed_may_succeed_when_it_is_tried_again(swept, walk, monkeypatch):
    import tiny_sweep

    def broken(params):
        raise RuntimeError("no such machine")

    with monkeypatch.context() as patch:
        patch.setattr(tiny_sweep, "_break", broken)
        assert swept("dim=1").failures == {"dim=1": "RuntimeError: no such machine"}
    made = swept("dim=1", retry=True)
    assert made.failures == {}
    assert not list(made.folder.rglob("*.json"))


def test_an_interrupted_sweep_says_what_is_missing_and_goes_on(swept, begun, tmp_path):
    def stop(fraction, note):
        if fraction > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        swept("dim=1,2", seeds="0:2", report=stop)
    (file,) = stored_sweeps(tmp_path / "out")
    assert dict(Sweep.open(file).counts) == {"finished": 2, "failed": 0, "missing": 2}
    assert swept("dim=1,2", seeds="0:2").failures == {}
    assert len(begun()) == 5


def test_the_number_of_processes_changes_no_result(swept, tmp_path, begun):
    here = swept("dim=1,2", "kind=walk,fails")
    there = swept("dim=1,2", "kind=walk,fails", processes=2, out=tmp_path / "other")
    xr.testing.assert_identical(numbers(there), numbers(here))
    processes = {process for process, *_ in begun()}
    assert len(processes) == 3, "this one, and two more"


def test_a_point_whose_process_is_killed_is_tried_three_times_and_harms_no_other(swept, begun):
    made = swept("kind=walk,killed,exits", processes=2)
    assert str(made.data.state.sel(kind="walk").item()) == "finished"
    assert "was killed by signal 9, 3 times" in made.failures["kind=killed"]
    assert "ended with status 3, 3 times" in made.failures["kind=exits"]
    assert [kind for _, kind, *_ in begun()].count("killed") == 3


def test_sweeps_are_passed_by_where_single_runs_are_looked_for(swept, tmp_path):
    made = swept("dim=1,2")
    assert store.find_runs(tmp_path / "out") == ()
    with pytest.raises(InputError, match="must be a stored sweep"):
        Sweep.open(made.at(dim=1).file)
    assert len(store.find_runs(made.folder / "points")) == 2


def test_a_damaged_point_is_reported_and_is_no_result(swept):
    made = swept("dim=1,2")
    file = made.at(dim=2).file
    file.write_bytes(file.read_bytes()[:-100])
    again = swept("dim=1,2")
    assert dict(again.counts) == {"finished": 1, "failed": 0, "missing": 1}
    assert "is damaged" in again.failures["dim=2"]
    file.unlink()
    assert swept("dim=1,2").failures == {}


def test_a_full_disk_is_no_failure_of_the_points(swept, monkeypatch, begun):
    write = store.write

    def full(run, path):
        raise StorageError("Cannot write: no space.")

    with monkeypatch.context() as patch:
        patch.setattr(store, "write", full)
        with pytest.raises(StorageError, match="no space"):
            swept("dim=1,2")
    assert store.write is write
    assert swept("dim=1,2").failures == {}


def test_what_cannot_be_used_is_refused_in_a_sentence(swept, walk, tmp_path):
    with pytest.raises(InputError, match="data must be an existing folder"):
        swept("dim=1", data=tmp_path / "nowhere")
    with pytest.raises(InputError, match="There is no entry"):
        sweep("tiny/wlak", ["dim=1"], out=tmp_path)
    made = swept("dim=1,2")
    for values, reported in [({}, "dim must be given"), ({"dim": 3}, "one of 1, 2"), ({"dmi": 1}, "did you mean dim")]:
        with pytest.raises(InputError, match=reported):
            made.at(**values)


def test_a_sweep_of_another_version_or_hand_is_refused(swept, tmp_path):
    data = swept("dim=1,2").data
    outside = ("dim", ["../../../../elsewhere.nc", "points/x.nc"])
    for changed, reported in [
        (data.assign_attrs(entry="tiny/removed"), "There is no entry"),
        (data.assign_attrs(grid='[["dmi", ["1"]]]'), "did you mean dim"),
        (data.assign_attrs(grid="not JSON"), "no complete sweep"),
        (data.assign_attrs(grid="[3]"), "no complete sweep"),
        (data.assign_attrs(grid='[["dim", []]]'), "one or more values"),
        (data.assign_attrs(settings="{"), "no complete sweep"),
        (data.assign_attrs(kind="run"), "must be a stored sweep"),
        (data.assign(point=outside), "outside its folder of points"),
    ]:
        with pytest.raises(InputError, match=reported):
            Sweep.open(store.write(changed, tmp_path / "other.nc"))
