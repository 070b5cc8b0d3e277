"""What killed processes leave among results: marks of Dask clients, pipes, dangling links, batches."""

import os

import pytest

from saddlescope import store
from saddlescope.reproduction import reproduce
from saddlescope.store import RunFolder


def test_marks_of_killed_clients_are_removed_and_those_of_others_stay(tmp_path):
    pytest.importorskip("distributed")
    from saddlescope.sweeps.dask_workers import _token

    (tmp_path / ".seen-by-killed").write_text("killed")
    os.mkfifo(tmp_path / ".seen-by-pipe")
    with _token(tmp_path) as first, _token(tmp_path) as second:
        assert first.exists()
        assert second.exists()
        assert not (tmp_path / ".seen-by-killed").exists()
    assert [path.name for path in tmp_path.iterdir()] == [".seen-by-pipe"]


def test_pipes_and_dangling_links_among_results_are_reported_and_others_shown(call, tiny, tmp_path):
    reproduce(tiny, out=tmp_path / "runs")
    place = tmp_path / "runs" / "tiny" / "staircase"
    os.mkfifo(place / "pipe.nc")
    (place / "gone.nc").symlink_to("nowhere")
    (place / "folder.nc").mkdir()
    status, err = call("check runs")
    assert status == 2
    said = err.splitlines()
    assert len(said) == 2
    assert any("pipe.nc must be a stored run; got a pipe" in line for line in said)
    assert any("gone.nc" in line for line in said)
    status, err = call("show tiny/staircase --out runs")
    assert status in {0, 2}
    assert err.count("\n") == 1


def test_an_interrupted_rerun_keeps_its_parts_and_a_finished_one_does_not(tmp_path):
    folder = RunFolder(tmp_path, "tiny/run", {"a": 1})
    store.write_bytes(b"result", folder.file)
    folder.scratch.mkdir()
    part = folder.scratch / "part"
    part.write_text("newer than the result")
    later = folder.file.stat().st_mtime_ns + 10**9
    os.utime(part, ns=(later, later))
    folder.tidy()
    assert part.exists()
    earlier = folder.file.stat().st_mtime_ns - 10**9
    os.utime(part, ns=(earlier, earlier))
    folder.tidy()
    assert [path.name for path in folder.file.parent.iterdir()] == [folder.file.name]


def test_nothing_is_removed_while_another_process_is_at_the_run(tmp_path):
    folder = RunFolder(tmp_path, "tiny/run", {"a": 1})
    with folder.lock() as scratch:
        store.write_bytes(b"result", folder.file)
        RunFolder(tmp_path, "tiny/run", {"a": 1}).tidy()
        assert scratch.is_dir()
