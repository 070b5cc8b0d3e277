"""The job for a GPU, rehearsed on the processor: cut off, it keeps its records; resumed, it ends as one run."""

import importlib
import json
from pathlib import Path

import pytest

from saddlescope import store

SCRIPTS = Path(__file__).parents[3] / "scripts"
TINY = ["images=100", "depth=1", "embedding=8", "mlp=8", "batch=20", "precision=float32", "epochs=12"]


@pytest.fixture
def job(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("gpu_figure_4")


def command(out, *more):
    settings = [word for one in TINY for word in ("--set", one)]
    return ["train", "--out", str(out), "--size", "quick", "--probe", "0.2", "--records", "20", *settings, *more]


def test_a_run_that_is_cut_off_keeps_its_records_and_resumes(job, tmp_path, monkeypatch, capsys):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert job.main(command(whole)) == 0
    plan = json.loads((whole / "plan.json").read_text())
    assert plan["epochs"] == 12
    cut.mkdir()
    (cut / "plan.json").write_text(json.dumps(plan))
    keep, calls = job.keep_records, []

    def stop(records, out):
        keep(records, out)
        calls.append(out)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(job, "keep_records", stop)
        with pytest.raises(KeyboardInterrupt):
            job.main(command(cut))
    assert job.main(["join", str(cut), str(tmp_path / "cut.nc")]) == 0
    short = store.read(tmp_path / "cut.nc")
    assert (short.attrs["finished"], int(short.step[-1])) == (0, 24)
    assert job.main(command(cut)) == 0
    for out in (whole, cut):
        assert job.main(["join", str(out), str(out / "run.nc")]) == 0
    run = store.read(whole / "run.nc")
    assert (run.attrs["finished"], int(run.step[-1])) == (1, 60)
    assert store.read(cut / "run.nc").equals(run)
    assert short.update_spectrum.equals(run.update_spectrum.sel(step=short.step))


def test_too_little_time_is_said(job, tmp_path, capsys):
    assert job.main(command(tmp_path, "--minutes", "0.0001")) == 2
    assert "at least 2 epochs" in capsys.readouterr().err


def test_nothing_to_join_is_said(job, tmp_path, capsys):
    assert job.main(["join", str(tmp_path), str(tmp_path / "run.nc")]) == 2
    assert "records-*.nc" in capsys.readouterr().err
