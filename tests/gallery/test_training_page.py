"""The page of a training run and `saddlescope watch`: while it trains, when it is finished, and with other files."""

import os
import signal
import subprocess
import sys
import time

import pytest
import xarray as xr
from test_spectra_page import spectra

import tiny
from saddlescope._shared.errors import InputError
from saddlescope.cli import main
from saddlescope.gallery import build_training
from saddlescope.store import RecordLog, read


def records(steps):
    """Records of attention heads at some steps."""
    names = ["base_model.model.<b>a</b>", "base_model.model.b"]
    made = spectra(len(steps), matrices=False).drop_vars("checkpoint").drop_attrs()
    return made.assign_coords(step=steps, layer=names)


def test_a_finished_run_has_its_page_and_its_data(undrawn, tmp_path, capsys):
    RecordLog(tmp_path / "ranks.jsonl").write(records([1, 2, 4, 8, 16, 32]))
    (tmp_path / "log.csv").write_text("step,train loss\n1,3.5\n32,0.25\n")
    line = ["watch", str(tmp_path / "ranks.jsonl"), "--site", str(tmp_path / "site"), "--once"]
    assert main([*line, "--loss", str(tmp_path / "log.csv")]) == 0
    page = (tmp_path / "site/index.html").read_text("utf-8")
    assert str(tmp_path / "site/index.html") in capsys.readouterr().out
    assert "6 records, the last after 32 steps." in page
    assert 'http-equiv="refresh"' not in page
    assert "<b>a</b>" not in page
    assert "base_model" not in page
    assert '"y":[3.5,0.25]' in page
    assert "The step of each loss is its column step in the log" in page
    assert page.index("Loss and ranks over training") < page.index("Stable rank of the learned updates by layer")
    assert page.index("Stable rank of the learned updates by layer") < page.index("over depth")
    xr.testing.assert_identical(read(tmp_path / "site/spectra/ranks.nc"), records([1, 2, 4, 8, 16, 32]))


def test_the_page_follows_the_records_until_it_is_interrupted(tmp_path):
    log, single = RecordLog(tmp_path / "ranks.jsonl"), spectra(4, heads=False).assign_coords(step=[1, 2, 4, 8])
    page = tmp_path / "site/index.html"
    loss = tmp_path / "log.csv"  # which never has a line
    command = [sys.executable, tiny.__file__, "watch", str(log.path), "--site", str(page.parent), "--loss", str(loss)]
    blank = os.environ | {"TINY_BLANK": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=blank) as watching:
        assert watching.stderr is not None
        notes = iter(watching.stderr.readline, "")
        assert any("Waiting for" in note for note in notes)
        log.write(single.isel(step=slice(2)))
        assert any("Open" in note for note in notes)
        assert 'http-equiv="refresh"' in page.read_text("utf-8")
        loss.write_text("step,train")
        log.append(single.isel(step=slice(2, 4)))
        pages = (page.read_text("utf-8") for note in notes if str(page) in note)
        assert any("4 records, the last after 8 steps." in text for text in pages)
        time.sleep(0.2)
        os.kill(watching.pid, signal.SIGINT)
        out = watching.communicate(timeout=120)[0]
    assert watching.returncode == 0
    assert "has all records and no longer reloads" in out
    assert 'http-equiv="refresh"' not in page.read_text("utf-8")


@pytest.mark.parametrize("once", [[], ["--once"]])
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_refused_at_once(kind, once, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert main(["watch", str(tmp_path / kind), "--site", str(tmp_path / "site"), *once]) == 2
    assert f"{kind} must be a file of records; got a {kind}." in capsys.readouterr().err


def test_files_without_records_are_refused(tmp_path):
    log = RecordLog(tmp_path / "ranks.jsonl")
    log.write(records([1]).isel(step=slice(0, 0)))
    with pytest.raises(InputError, match="must have a record"):
        build_training(log.path, tmp_path / "site")
    log.write(xr.Dataset({"x": ("step", [1.0])}, {"step": [1]}))
    with pytest.raises(InputError, match="must have spectra"):
        build_training(log.path, tmp_path / "site")
    assert not (tmp_path / "site").exists()
    assert main(["watch", str(tmp_path / "none.jsonl"), "--once", "--site", str(tmp_path / "site")]) == 2
