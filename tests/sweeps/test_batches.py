"""Entries that make many points at once."""

import dataclasses

import pytest
import tiny_sweep
import xarray as xr

from saddlescope._shared.errors import InputError, StorageError
from saddlescope.reproduction import RunContext
from saddlescope.sweeps import Grid, local_workers, sweep


@pytest.fixture
def batches():
    """Return the requested batches, as numbers of points."""
    return []


@pytest.fixture
def batched_walk(walk, monkeypatch, batches):
    """Return the walk with a `run_many`; its points of dimension 9 cannot run in a batch with others."""

    def run_many(points, context):
        batches.append(len(points))
        if any(params.dim == 9 for params in points):
            raise ValueError("dim 9 does not fit")
        made = []
        for k, params in enumerate(points):
            context.report(k / len(points), "batch")
            made.append(tiny_sweep.run(params, RunContext(context.scratch / f"{k}")))
        return made

    def run(params, context):
        context.scratch.mkdir(exist_ok=True)
        return tiny_sweep.run(params, context)

    def many(points, context):
        for k in range(len(points)):
            (context.scratch / f"{k}").mkdir(exist_ok=True)
        return run_many(points, context)

    entry = dataclasses.replace(walk, run=run, run_many=many)
    monkeypatch.setattr("saddlescope.reproduction.entry.find_entry", lambda name: entry)
    return entry


@pytest.fixture
def made(batched_walk, tmp_path, heard):
    def call(*words, **options):
        return sweep(
            batched_walk,
            Grid.parse(batched_walk, words, size="quick"),
            **({"out": tmp_path / "out"} | options),
            say=heard.append,
        )

    return call


def test_points_are_made_at_once_where_the_entry_can_do_that(made, batches, swept, tmp_path, monkeypatch):
    monkeypatch.setattr(local_workers, "BATCH", 4)
    one_by_one = made("dim=1,2", "seed=0:5", processes=1, out=tmp_path / "other")
    assert batches == []
    reported = []
    at_once = made("dim=1,2", "seed=0:5", report=lambda fraction, note: reported.append(fraction))
    assert batches == [4, 4, 2]
    assert reported == sorted(reported)
    xr.testing.assert_identical(
        at_once.data.drop_vars("cpu_seconds").drop_attrs(), one_by_one.data.drop_vars("cpu_seconds").drop_attrs()
    )
    assert at_once.at(dim=2, seed=3).provenance.settings == {"dim": "2", "seed": "3"}
    assert not list(at_once.folder.glob("points/*.partial"))


def test_a_batch_that_is_killed_goes_on_and_stored_points_are_passed_by(made, batches, monkeypatch):
    monkeypatch.setattr(local_workers, "BATCH", 4)

    def stop(fraction, note):
        if fraction > 0.6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made("seed=0:8", report=stop)
    assert batches == [4, 4]
    assert made("seed=0:8").failures == {}
    assert batches == [4, 4, 4]
    made("seed=0:10")
    assert batches == [4, 4, 4, 2]


def test_the_points_of_a_batch_that_fails_are_made_one_after_the_other(made, heard):
    done = made("dim=1,9", "kind=walk,fails")
    assert "4 points at once failed (ValueError: dim 9 does not fit)" in heard[-1]
    assert list(done.failures) == ["dim=1 kind=fails", "dim=9 kind=fails"]
    assert str(done.data.state.sel(dim=9, kind="walk").item()) == "finished"


def test_a_batch_without_a_run_for_each_point_is_no_result(batched_walk, tmp_path, heard):
    entry = dataclasses.replace(batched_walk, run_many=lambda points, context: [])
    done = sweep(entry, Grid.parse(entry, ["dim=1,2"], size="quick"), out=tmp_path / "out", say=heard.append)
    assert "run_many must return a run for each of 2 points; got 0" in heard[-1]
    assert done.failures == {}


def test_a_full_disk_stops_a_batch(batched_walk, tmp_path):
    def full(points, context):
        raise StorageError("no space")

    entry = dataclasses.replace(batched_walk, run_many=full)
    with pytest.raises(InputError, match="no space"):
        sweep(entry, Grid.parse(entry, ["dim=1,2"], size="quick"), out=tmp_path / "out")
