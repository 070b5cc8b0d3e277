"""Folders that are replaced whole: killed before each call that writes, twice at once, beside files of others."""

import subprocess
import sys

import pytest

from saddlescope._shared.errors import BusyError, InputError
from saddlescope._shared.file_locks import file_lock
from saddlescope._shared.replaced_folder import recover_folder, replaced_folder

PROGRAM = """
import os, sys
from pathlib import Path
from saddlescope._shared.replaced_folder import replaced_folder

folder, moment, calls = Path(sys.argv[1]), int(sys.argv[2]), 0

def die(event, args):
    global calls
    writes = event in {"os.rename", "os.mkdir", "os.remove", "os.rmdir"}
    if writes or (event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        calls += 1
        if calls == moment:
            os._exit(9)

sys.addaudithook(die)
with replaced_folder(folder) as new:
    (new / "one").write_text(sys.argv[3])
    (new / "two").write_text(sys.argv[3])
"""


def replace(folder, moment, text):
    """Replace a folder in another process, which dies before its system call number `moment` that writes."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(moment), text], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 9), done.stderr
    return done.returncode == 0


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}


def test_a_kill_at_any_moment_loses_nothing(tmp_path):
    folder, moments = tmp_path / "site", 0
    replace(folder, 0, "0")
    held = "0"
    while True:
        moments += 1
        finished = replace(folder, moments, str(moments))
        recover_folder(folder)
        found = content(folder)
        assert found in (dict.fromkeys(("one", "two"), text) for text in (held, str(moments)))
        held = found["one"]
        if finished:
            break
    assert moments > 10
    assert held == str(moments)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_one_at_a_time(tmp_path):
    folder = tmp_path / "site"
    with replaced_folder(folder) as new:
        (new / "one").write_text("first")
        with pytest.raises(BusyError, match=rf"Process \d+ is writing {folder}; wait for it"):
            recover_folder(folder)
        with pytest.raises(BusyError), replaced_folder(folder):
            pass
    assert content(folder) == {"one": "first"}
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_many_at_once_leave_one_whole_folder(tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "site"), "0", str(k)], stderr=subprocess.PIPE, text=True
        )
        for k in range(4)
    ]
    errors = [one.communicate()[1] for one in started]
    assert 0 in [one.returncode for one in started]
    assert [e for one, e in zip(started, errors, strict=True) if one.returncode and "BusyError" not in e] == []
    found = content(tmp_path / "site")
    assert len(found) == 2
    assert found["one"] == found["two"]
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize("error", [FileExistsError, FileNotFoundError])  # mkdir of one that goes raises either
def test_a_working_folder_that_another_removes_is_made_anew(tmp_path, monkeypatch, error):
    tries = []

    def gone_once(mark, busy):
        tries.append(mark)
        if len(tries) == 1:
            mark.parent.rmdir()
            raise error(mark)
        return file_lock(mark, busy)

    monkeypatch.setattr("saddlescope._shared.replaced_folder.file_lock", gone_once)
    with replaced_folder(tmp_path / "site") as new:
        (new / "one").write_text("1")
    assert content(tmp_path / "site") == {"one": "1"}
    assert len(tries) == 2


def test_files_of_others_stay(tmp_path):
    names = [".site.new", ".site.old", ".site.part", ".site.lock"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis").write_text("years")
    with replaced_folder(tmp_path / "site"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["site", *names])
    (tmp_path / ".site.saddlescope").mkdir()
    (tmp_path / ".site.saddlescope" / "old").write_text("years")
    with (
        pytest.raises(InputError, match="got files of others; move"),
        replaced_folder(tmp_path / "site"),
    ):
        pass
    assert (tmp_path / ".site.saddlescope" / "old").read_text() == "years"


def test_an_error_leaves_the_earlier_folder(tmp_path):
    folder = tmp_path / "site"
    with replaced_folder(folder) as new:
        (new / "one").write_text("1")
    with pytest.raises(ZeroDivisionError), replaced_folder(folder) as new:
        raise ZeroDivisionError
    assert content(folder) == {"one": "1"}
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "site").symlink_to(tmp_path / "disk" / "site")
    for text in ("1", "2"):
        with replaced_folder(tmp_path / "site") as new:
            (new / "one").write_text(text)
        assert (tmp_path / "site").is_symlink()
        assert content(tmp_path / "disk" / "site") == {"one": text}
