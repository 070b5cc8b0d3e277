"""The command `sweep`, as it is typed."""

import json

import pytest

from saddlescope.reproduction import Outcome
from saddlescope.sweeps import Sweep


@pytest.fixture
def swept_by(walk, typed):
    """Run the command `sweep`, with the walk alone."""
    return lambda line: typed(f"sweep {line}")


def test_a_sweep_prints_its_verdicts_and_where_it_lies(swept_by, tmp_path):
    status, out, err = swept_by("tiny/walk --grid dim=1,2 --seeds 0:3 --size quick --processes 1")
    assert status == 0
    assert "6 points: 6 finished." in out
    (line,) = [line for line in out.splitlines() if "two-scales" in line]
    assert line.split()[1:] == ["6", "0"]
    file = out.split("Stored in ")[1].strip().removesuffix(".")
    assert Sweep.open(tmp_path / file).grid.names == ("dim", "seed")
    assert "tiny/walk, 6 points: 100%" in err


def test_failed_points_are_reported_one_in_a_line_and_make_the_status_1(swept_by):
    line = "tiny/walk --grid kind=walk,fails --seeds 0:2 --size quick --processes 1"
    status, out, err = swept_by(line)
    assert status == 1
    assert "4 points: 2 finished, 2 failed." in out
    assert err.splitlines()[-2:] == [f"kind=fails seed={k}: ZeroDivisionError: a defect" for k in (0, 1)]
    reported = json.loads(swept_by(f"{line} --json")[1])
    assert reported["points"] == {"finished": 2, "failed": 2, "missing": 0}
    assert reported["axes"] == {"kind": ["walk", "fails"], "seed": [0, 1]}
    assert reported["claims"][1] == {**dict.fromkeys(Outcome, 0) | {"claim": "two-scales", "seen": 2}}
    assert reported["unfinished"][0] == {"point": "kind=fails seed=0", "error": "ZeroDivisionError: a defect"}


def test_many_failures_are_counted(swept_by):
    err = swept_by("tiny/walk --grid kind=fails --seeds 0:23 --size quick --processes 1")[2]
    assert err.splitlines()[-1] == "... and 3 more; the data set has them all."
