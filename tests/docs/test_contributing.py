"""The entry that docs/contributing.md shows is found by being there, runs, is judged and drawn, and is in style."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import saddlescope.papers.gradual_rank as folder
from saddlescope._shared.errors import InputError
from saddlescope.plot import draw_matplotlib
from saddlescope.reproduction import Outcome, catalogue, entry, field_comments, reproduce

ROOT = Path(__file__).parents[2]
SHOWN, MODEL = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "contributing.md").read_text(), re.S)
NAME = "gradual-rank/independent-coordinates"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return the entry of the page, in a folder that is searched in addition to the paper's."""
    (tmp_path / "independent_coordinates.py").write_text(SHOWN)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    monkeypatch.setattr(catalogue, "entry_names", lambda: (NAME,))
    yield entry.find_entry(NAME)
    entry.find_entry.cache_clear()
    sys.modules.pop("saddlescope.papers.gradual_rank.independent_coordinates")


def test_it_is_told_apart_by_title_place_and_comments(own):
    assert own.title == "Independent coordinates: each is learned at its own time, 1 / (a_i |b_i|)"
    assert own.source == "Section 4.1"
    comments = field_comments(own.params_type)
    assert all(comments[field.name] for field in dataclasses.fields(own.params_type))


def test_it_runs_and_is_reproduced(own, tmp_path, types_unchecked):
    with types_unchecked():
        made = reproduce(own, out=tmp_path / "out")
    (verdict,) = made.verdicts
    assert verdict.outcome is Outcome.REPRODUCED
    draw_matplotlib(made.figures[0])


def test_its_claim_can_be_refuted(own, tmp_path, types_unchecked):
    with types_unchecked():
        made = reproduce(own, out=tmp_path / "out", size="quick", settings={"log10_scale": "-2"})
    assert made.verdicts[0].outcome is Outcome.REFUTED


@pytest.mark.parametrize("wrong", [{"minima": "1,1,1"}, {"curvatures": "0,0"}, {"log10_scale": "nan"}])
def test_bad_parameters_are_refused(own, wrong):
    with pytest.raises(InputError, match="must be"):
        own.configure("quick", wrong)


def test_it_is_in_the_style_of_the_others(tmp_path):
    file = tmp_path / "independent_coordinates.py"
    file.write_text(SHOWN)
    for command in (["check"], ["format", "--check"]):
        ruff = [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--no-cache",
            "--config",
            str(ROOT / "pyproject.toml"),
            str(file),
        ]
        done = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_model_learns_in_stages(types_unchecked):
    made: dict = {}
    with types_unchecked():
        exec(MODEL, made)
    learned = made["learned"]
    assert learned.status == "converged"
    assert len(learned.stages) >= 3
    np.testing.assert_allclose(learned.stages[-1].beta, made["teacher"], atol=1e-10)
