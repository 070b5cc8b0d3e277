"""The board of the benchmarks: what a row says, what is kept between runs, and that the page shows all of it."""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import linregress

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


def script(name):
    """A file of benchmarks/, which is no package, as a module."""
    sys.path.insert(0, str(BENCHMARKS))  # its scripts import each other by name
    try:
        spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look themselves up
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


board, runner, page = script("board"), script("__main__"), script("page")

TINY = """
'''A tiny benchmark of *stars* and |bars|.'''
from pathlib import Path
from board import Board, play

def main(board):
    runs = Path(__file__).with_suffix(".runs")
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    board.compare("one problem", "time", "s", {"ours": [1.0, 2.0], "theirs": 6.0}, {"theirs": "slow"})
    if not board.quick:
        board.curve("one problem", "ours", "p", {1.0: 1.0, 2.0: 4.0, 4.0: 16.0}, "time", "s")

play(main)
""".replace("'''", '"""').lstrip()


@pytest.fixture
def place(tmp_path):
    """A folder of benchmarks: a tiny one, one that fails and one that does not end."""
    here = tmp_path / "benchmarks"
    here.mkdir()
    (here / "board.py").write_text((BENCHMARKS / "board.py").read_text())
    (here / "tiny.py").write_text(TINY)
    (here / "fails.py").write_text("raise SystemExit('no')\n")
    (here / "hangs.py").write_text("import time\nwhile True: time.sleep(1)\n")
    return here


def runs(place):
    """Return the number of runs of the tiny benchmark."""
    return len((place / "tiny.runs").read_text())


def test_exponent_and_error_are_those_of_scipy():
    rng = np.random.default_rng(0)
    sizes, values = np.geomspace(1, 100, 7), np.geomspace(1, 1e3, 7) * rng.lognormal(0, 0.3, 7)
    expected = linregress(np.log(sizes), np.log(values))
    np.testing.assert_allclose(board.exponent(sizes, values), (expected.slope, expected.stderr), rtol=1e-12)


def test_ratios_are_to_the_first_method_turn_by_turn():
    made = board.Board()
    made.compare("p", "time", "s", {"ours": [1.0, 2.0, 4.0], "theirs": [3.0, 4.0, 4.0], "once": 6})
    ours, theirs, once = made.rows
    assert (ours.value, ours.ratio, ours.low, ours.high) == (2.0, None, None, None)
    assert (theirs.value, theirs.ratio, theirs.low, theirs.high) == (4.0, 2.0, 1.0, 3.0)
    assert (once.value, once.ratio, once.low, once.high) == (6.0, 3.0, 1.5, 6.0)


def test_variants_of_our_own_are_no_peers_and_peers_that_win_come_first():
    made = board.Board()
    values = {"ours": 4.0, "ours, looser": 1.0, "slow peer": 8.0, "fast peer": 2.0}
    made.compare("p", "time", "s", values, own=["ours, looser"])
    made.compare("q", "time", "s", {"ours": 1.0, "slow peer": 3.0})
    assert [row.own for row in made.rows] == [True, True, False, False, True, False]
    shown = page._glance([{"benchmark": "b", **made.record()}])
    peers, variants = shown.split("variants of our own methods")
    assert [line for line in peers.splitlines() if line.startswith("| b ")] == [
        "| b | fast peer | time | 1 | 0.5 |  |",
        "| b | slow peer | time | 2 | 2.5 | 2 to 3 |",
    ]
    assert "| b | ours, looser | time | 1 | 0.25 |  |" in variants
    with pytest.raises(AssertionError, match="no such methods"):
        made.compare("p", "time", "s", values, own=["ours, lose"])


def test_what_is_not_finite_is_null_in_the_record():
    made = board.Board()
    made.report("p", "m", "error", math.inf)
    made.curve("p", "m", "n", {1.0: 1.0, 2.0: 2.0}, "time", "s")
    record = json.loads(json.dumps(made.record(), allow_nan=False))
    assert record["rows"][0]["value"] is None
    assert record["curves"][0]["error"] is None
    assert record["curves"][0]["end"] == pytest.approx(1.0)


def test_a_finished_benchmark_is_kept_until_its_code_changes(place, tmp_path, capsys):
    def run_all(**settings):
        given = {"quick": False, "again": False, "limit": 60.0} | settings
        (record,), failed = runner.run_all(["tiny"], tmp_path / "out", **given, here=place)
        assert not failed
        return record

    record = run_all()
    assert record["title"] == "A tiny benchmark of *stars* and |bars|."
    assert [row["ratio"] for row in record["rows"]] == [None, 4.0]
    assert record["curves"][0]["exponent"] == pytest.approx(2.0)
    assert run_all() == record
    assert runs(place) == 1
    assert "tiny: kept from" in capsys.readouterr().out
    run_all(again=True)
    assert runs(place) == 2
    assert not run_all(quick=True)["curves"]
    assert runs(place) == 3
    run_all()
    (place / "tiny.py").write_text(TINY + "# changed\n")
    run_all()
    assert runs(place) == 5


def test_one_that_fails_is_reported_and_the_others_go_on(place, tmp_path, capsys):
    settings = {"quick": True, "again": False, "limit": 60.0, "here": place}
    records, failed = runner.run_all(["fails", "tiny"], tmp_path, **settings)
    assert failed == ["fails"]
    assert [record["benchmark"] for record in records] == ["tiny"]
    assert "== fails failed with status 1" in capsys.readouterr().err
    runner.run_all(["fails"], tmp_path, **settings)
    assert "== fails failed with status 1" in capsys.readouterr().err  # it is tried again


def test_one_that_does_not_end_is_stopped_at_the_limit(place, tmp_path, capsys):
    records, failed = runner.run_all(["hangs"], tmp_path, quick=True, again=False, limit=1.0, here=place)
    assert (records, failed) == ([], ["hangs"])
    assert "== hangs did not end within 1 s" in capsys.readouterr().err


def test_the_page_shows_every_row_and_curve_as_it_stands(place, tmp_path):
    records, _ = runner.run_all(["tiny"], tmp_path / "out", quick=False, again=False, limit=60.0, here=place)
    shown = page.page(records)
    assert r"A tiny benchmark of \*stars\* and \|bars\|." in shown
    assert "| one problem | time | ours | 1.5 s |  |  |" in shown
    assert "|  |  | theirs | 6 s | 4 (3 to 6) | slow |" in shown
    assert "| tiny | theirs | time | 1 | 4 |  |" in shown
    assert "| ours | one problem | p | 1 | 4 | 2 ± 0 | 2 |" in shown
    (panel,) = page.figure(records).panels
    assert panel.x.label == "p"
    np.testing.assert_array_equal(panel.marks[0].y, [1, 4, 16])


def test_new_records_replace_old_ones_and_those_without_a_script_go(tmp_path):
    stored = tmp_path / "stored.json"
    stored.write_text(json.dumps([{"benchmark": name, "of": "before"} for name in ("a", "b", "gone")]))
    made = page.merged([{"benchmark": "b", "of": "now"}, {"benchmark": "c", "of": "now"}], ["a", "b", "c"], stored)
    assert [(record["benchmark"], record["of"]) for record in made] == [("a", "before"), ("b", "now"), ("c", "now")]


def test_the_stored_figures_make_a_board():
    records = json.loads(page.STORED.read_text())
    shown = page.page(records)
    assert all(row["quantity"] in shown for record in records for row in record["rows"])
    assert not any(record["quick"] for record in records)
    assert page.PICTURE.exists() == any(record["curves"] for record in records)


def test_a_real_benchmark_gives_its_rows(tmp_path):
    record = runner.run("stages", tmp_path, quick=True, limit=120.0)
    assert {row["method"].partition(",")[0] for row in record["rows"]} >= {"find_plateaus", "SciPy find_peaks"}
    assert all(row["value"] >= 0 for row in record["rows"])
    assert list(tmp_path.iterdir()) == [tmp_path / "stages.json"]


@pytest.mark.slow
@pytest.mark.parametrize("name", runner.names())
def test_every_benchmark_runs_in_its_small_form(tmp_path, name):
    record = runner.run(name, tmp_path, quick=True, limit=600.0)
    assert record["rows"] or record["curves"]
    fields = {"problem", "method", "quantity", "unit", "value", "ratio", "low", "high", "note", "own"}
    assert all(set(row) == fields for row in record["rows"])
    assert page.page([record]).count("\n| ") >= len(record["rows"]) + len(record["curves"])


def test_a_name_that_is_no_benchmark_is_one_sentence():
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS), "flwo", "--quick"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "there is no benchmark flwo; known: attention_svm, batch" in done.stderr
