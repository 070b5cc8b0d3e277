import signal
import subprocess
import sys
from pathlib import Path

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.store import RunFolder


def place(out, size="quick", **params):
    return RunFolder(Path(out), "paper/entry", {"seed": 0, "scale": 0.1} | params, size)


HOLDER = """
import os, signal, sys
from pathlib import Path
from saddlescope.store import RunFolder
with RunFolder(Path(sys.argv[1]), "paper/entry", {"seed": 0, "scale": 0.1}, "quick").lock() as scratch:
    (scratch / "checkpoint").write_text("half")
    print("held", flush=True)
    signal.pause()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that is at the same run, half-way."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_file_is_named_by_size_or_by_digest(tmp_path):
    assert place(tmp_path).file == tmp_path / "paper" / "entry" / "quick.nc"
    assert place(tmp_path, size="").file == tmp_path / "paper" / "entry" / f"{place(tmp_path).digest}.nc"


def test_the_digest_reports_parameters_apart_and_not_their_order(tmp_path):
    same = RunFolder(tmp_path, "paper/entry", {"scale": 0.1, "seed": 0}, "default")
    assert same.digest == place(tmp_path).digest
    assert same.scratch == place(tmp_path).scratch
    others = [place(tmp_path, seed=1), place(tmp_path, scale=0.1000000001), place(tmp_path, new=0)]
    others.append(RunFolder(tmp_path, "paper/another", {"seed": 0, "scale": 0.1}))
    assert len({other.digest for other in [same, *others]}) == 5


def test_what_was_left_is_given_again_until_it_is_cleared(tmp_path):
    here = place(tmp_path)
    with here.lock() as scratch:
        (scratch / "checkpoint").write_text("half")
    with here.lock() as scratch:
        assert (scratch / "checkpoint").read_text() == "half"
    with place(tmp_path, seed=1).lock() as other:
        assert not any(other.iterdir())
    here.clear()
    assert not here.scratch.exists()


def test_nothing_empty_stays(tmp_path):
    with place(tmp_path / "out").lock():
        pass
    assert not any(tmp_path.iterdir())


def test_two_processes_at_one_run_are_kept_apart(tmp_path, holder):
    busy = pytest.raises(InputError, match=rf"Process {holder.pid} is at this run of paper/entry")
    with busy, place(tmp_path).lock():
        pytest.fail("both work")
    with place(tmp_path, seed=1).lock():
        pass
    assert (place(tmp_path).scratch / "checkpoint").read_text() == "half"


def test_a_killed_holder_is_not_in_the_way(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert list((tmp_path / "paper" / "entry").glob("*.lock"))
    with place(tmp_path).lock() as scratch:
        assert (scratch / "checkpoint").read_text() == "half"
    assert not list((tmp_path / "paper" / "entry").glob("*.lock"))


def test_a_full_disk_is_reported_before_the_work(tmp_path, disk_full):
    refused = pytest.raises(InputError, match=r"Cannot write in .*: File too large")
    with disk_full(), refused, place(tmp_path / "out").lock():
        pytest.fail("the work began")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("out", ["file", "file/below", "/proc/saddlescope"])
def test_an_unwritable_folder_is_reported_before_the_work(tmp_path, out):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match="Cannot write in"), place(tmp_path / out).lock():
        pytest.fail("the work began")
    assert (tmp_path / "file").read_text() == "kept"


def test_a_failure_of_the_work_itself_passes_through(tmp_path):
    with pytest.raises(FileNotFoundError), place(tmp_path).lock():
        (tmp_path / "absent").read_text()
