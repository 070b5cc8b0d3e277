"""Progress where there is no terminal: a line at every tenth, on stderr."""

import pytest

from saddlescope import show_progress


def test_a_line_at_every_tenth(capsys):
    with show_progress("flow") as report:
        for k in range(1001):
            report(k / 1000, f"step {k}")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "flow:   0%  step 0"
    assert err.splitlines()[-1] == "flow: 100%  step 1000"
    assert len(err.splitlines()) == 11


def test_tenths_that_are_passed_at_once_are_one_line(capsys):
    with show_progress("flow") as report:
        for fraction in (0.05, 0.07, 0.55, 0.51, 1.0, 1.0):
            report(fraction, "")
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == ["5%", "55%", "100%"]


def test_what_fails_within_it_fails(capsys):
    with pytest.raises(RuntimeError, match="a defect"), show_progress("flow"):
        raise RuntimeError("a defect")
    assert capsys.readouterr().err == ""
