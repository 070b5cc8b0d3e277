import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from saddlescope import cli, store
from saddlescope.reproduction import Claims, Reproduction, entry_names, reproduce
from saddlescope.reproduction.catalogue import entry_costs
from saddlescope.sweeps.point import Point

TINY = [sys.executable, str(Path(__file__).parents[1] / "tiny.py")]


@pytest.fixture
def saddlescope(tiny, typed):
    """Run the command line, with the tiny entry alone."""
    return typed


def process(line, folder, **environment):
    """Run the command line with the tiny entry in another process."""
    given = os.environ | {"PYTHONWARNINGS": "error"} | environment
    return subprocess.run(
        [*TINY, *shlex.split(line)], cwd=folder, env=given, capture_output=True, text=True, check=False
    )


def test_list_names_every_entry(saddlescope):
    import tiny

    status, out, _ = saddlescope("list")
    assert status == 0
    assert "tiny/staircase" in out
    assert "A tiny paper" in out
    (entry,) = json.loads(saddlescope("list --json")[1])
    kinds = {"printed": 1, "reading": 1, "extension": 1}
    assert entry == {"name": "tiny/staircase"} | tiny.HEADING._asdict() | {"claims": kinds, "cpu_seconds": {}}


def test_list_takes_a_paper_and_words(capsys):
    def names(line):
        assert cli.main(line.split()) == 0
        return re.findall(r"^  ([a-z-]+/[a-z0-9-]+) ", capsys.readouterr().out, re.MULTILINE)

    every, of_paper = names("list"), names("list deep-relu")
    assert of_paper == [name for name in every if name.startswith("deep-relu/")]
    found = names("list --search nuclear --search NORM")
    assert found
    assert set(found) < set(every)
    assert set(names("list softmax-attention --search nuclear --search norm")) <= set(found)
    for line, reported in [
        ("list deep-rleu", "There is no paper 'deep-rleu'; did you mean deep-relu?\n"),
        ("list softmax", "There is no paper 'softmax'; did you mean softmax-attention?\n"),
        ("list deep-relu --search zebra", "No entry of deep-relu has 'zebra' in its name, title or source."),
        ("run figure-2", "did you mean concept-learning/figure-2 or deep-relu/figure-2 or gradual-rank/figure-2?\n"),
        (
            "run zzzz",
            "There is no entry 'zzzz'. List all with: saddlescope list; give the file of your own with --entry\n",
        ),
    ]:
        assert cli.main(line.split()) == 2
        assert reported in capsys.readouterr().err


def test_show_reports_parameters_claims_and_stored_runs(saddlescope):
    out = saddlescope("show tiny/staircase")[1]
    assert "steps of the staircase" in out
    assert "in [5, 100] stages" in out
    assert "Limits: It is one run." in out
    assert "No run is stored in results" in out
    saddlescope("run tiny/staircase")
    out = saddlescope("show tiny/staircase")[1]
    tallies = "printed: 1 fails; reading: 1 undecided; extension: 1 seen"
    assert f"results/tiny/staircase/default.nc: {tallies}" in out
    reported = json.loads(saddlescope("show tiny/staircase --json")[1])
    stages = reported["parameters"]["properties"]["stages"]
    assert (stages["description"], stages["type"], stages["minimum"]) == ("steps of the staircase", "integer", 1)
    assert [reported["sizes"][size]["stages"] for size in ("quick", "default", "paper")] == [2, 4, 9]
    assert [(c["low"], c["high"], c["kind"]) for c in reported["claims"]] == [
        (None, 0.5, "extension"), (5, 100, "printed"), (0.5, 2, "reading")
    ]  # fmt: skip
    assert reported["claims"][0]["quantity"] == "Last over first"
    assert reported["stored"] == ["results/tiny/staircase/default.nc"]


def test_run_stores_and_check_says_the_same(saddlescope, tmp_path):
    status, out, err = saddlescope("run tiny/staircase --json")
    assert status == 0
    reported = json.loads(out)
    assert "stage 1 of 4" in err
    assert [(v["entry"], v["size"], v["claim"], v["outcome"]) for v in (reported[0], reported[2])] == [
        ("tiny/staircase", "default", "falls", "seen"),
        ("tiny/staircase", "default", "unresolved", "undecided"),
    ]
    assert (reported[2]["value"], reported[2]["uncertainty"], reported[2]["remark"]) == (
        None,
        None,
        "The run ended too early.",
    )
    status, out, err = saddlescope("check results --json")
    assert (status, json.loads(out), err) == (1, reported, "")
    status, out, _ = saddlescope("check results")
    assert "✗ fails" in out
    assert "Verdicts by kind of claim: printed: 1 fails; reading: 1 undecided; extension: 1 seen." in out


def test_the_status_is_the_worst_verdict(saddlescope, tiny, monkeypatch):
    def only(*names):
        chosen = Claims(claim for claim in tiny.claims if claim.name in names)
        entry = replace(tiny, claims=chosen)
        monkeypatch.setattr("saddlescope.reproduction.entry.find_entry", lambda name: entry)

    assert saddlescope("run tiny/staircase --check")[0] == 1
    assert saddlescope("run tiny/staircase")[0] == 0
    only("falls")
    assert saddlescope("run tiny/staircase --check")[0] == 0
    assert saddlescope("check results")[0] == 0
    only("falls", "unresolved")
    assert saddlescope("run tiny/staircase --check")[0] == 3
    assert saddlescope("check results")[0] == 3


def test_the_stored_command_makes_the_same_run(saddlescope):
    saddlescope("run tiny/staircase --size quick --set seed=7")
    (file,) = store.find_runs("results")
    stored = Reproduction.open(file)
    saddlescope(stored.provenance.command.removeprefix("saddlescope ") + " --out there")
    (again,) = store.find_runs("there")
    assert again.name == file.name
    assert Reproduction.open(again).run.identical(stored.run.assign_attrs(Reproduction.open(again).run.attrs))


def test_check_names_what_is_damaged_and_judges_the_rest(saddlescope):
    saddlescope("run tiny/staircase")
    saddlescope("run tiny/staircase --size quick")
    damaged = Path("results/tiny/staircase/quick.nc")
    damaged.write_bytes(damaged.read_bytes()[:-100])
    status, out, err = saddlescope("check results --json")
    assert status == 2
    assert err.startswith("results/tiny/staircase/quick.nc is damaged")
    assert err.count("\n") == 1
    assert {v["size"] for v in json.loads(out)} == {"default"}
    status, _, err = saddlescope("run tiny/staircase --size quick")
    assert status == 2
    assert "quick.nc is damaged" in err
    assert saddlescope("run tiny/staircase --size quick --again")[0] == 0


def test_an_interrupt_says_how_to_go_on(tmp_path):
    stopped = process("run tiny/staircase", tmp_path, TINY_DIE_AT="2", TINY_SIGNAL="SIGINT")
    assert stopped.returncode == 130
    assert (
        "Interrupted; finished parts, if any, are kept below results. Rerun the same command to resume"
        in stopped.stderr
    )
    assert stopped.stderr.endswith(
        "resume: it repeats only the part in progress, from its last checkpoint if it has one.\n"
    )
    assert "Traceback" not in stopped.stderr
    assert "Resuming" in process("run tiny/staircase", tmp_path).stderr


def test_a_defect_has_a_status_of_its_own(tmp_path):
    failed = process("run tiny/staircase", tmp_path, TINY_FAILS="1")
    assert failed.returncode == 70
    assert "RuntimeError: a defect" in failed.stderr
    assert not any(tmp_path.iterdir())


def test_a_reader_that_leaves_is_no_defect(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "saddlescope", "list"]
    done = subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_on_a_terminal_there_is_a_bar(tmp_path):
    import pty

    leader, follower = pty.openpty()
    command = [*TINY, "run", "tiny/staircase"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=follower) as done:
        os.close(follower)
        content = b""
        with suppress(OSError):  # raised at the end of the process
            while part := os.read(leader, 1 << 16):
                content += part
    os.close(leader)
    assert done.returncode == 0
    shown = content.decode()
    assert "\x1b[" in shown
    assert "tiny/staircase (default)" in shown


def test_gallery_says_where_it_is(saddlescope, undrawn, tmp_path):
    saddlescope("run tiny/staircase --size quick")
    status, out, err = saddlescope("gallery results --site there")
    assert (status, err) == (0, "gallery:   0%  quick.nc\n")
    assert out == f"Open {tmp_path / 'there' / 'index.html'} in a browser.\n"


def test_version_and_help(saddlescope):
    from saddlescope import __version__

    assert saddlescope("--version")[:2] == (0, f"saddlescope {__version__}\n")
    for line in ("", "--help", "run --help", "-h"):
        status, out, _ = saddlescope(line)
        assert status == 0
        assert "Usage: saddlescope" in out
    assert "1 a printed claim fails" in saddlescope("--help")[1]


def test_an_interrupted_sweep_counts_its_points(saddlescope, monkeypatch):
    def stop(point, *_):
        if point.params.seed == 2:
            raise KeyboardInterrupt
        return run(point, *_)

    run = Point.run
    monkeypatch.setattr(Point, "run", stop)
    status, _, err = saddlescope("sweep tiny/staircase --seeds 0:5 --processes 1")
    assert status == 130
    assert (
        "Interrupted; 2 of 5 points are stored in results/sweeps/tiny/staircase/points. Rerun the same command to "
        in err
    )
    assert "run the other 3; points in progress resume from their finished parts." in err
    monkeypatch.setattr(Point, "run", run)
    assert "2 of 5 points are stored already." in saddlescope("sweep tiny/staircase --seeds 0:5 --processes 1")[2]


def test_what_keeps_nothing_says_so_when_interrupted(monkeypatch, capsys, tmp_path):
    def stop(*_, **__):
        raise KeyboardInterrupt

    site = tmp_path / "site"
    monkeypatch.setattr("saddlescope.gallery.build", stop)
    line = ["gallery", str(tmp_path), "--site", str(site)]
    assert cli.main(line) == 130
    assert (
        capsys.readouterr().err == f"Interrupted; {site} was not written. The same command starts from the beginning.\n"
    )
    site.mkdir()
    assert cli.main(line) == 130
    assert f"Interrupted; {site} is unchanged." in capsys.readouterr().err
    monkeypatch.setattr("saddlescope.reproduction.stored_files", stop)
    assert cli.main(["check", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "Interrupted; what is stored is unchanged.\n"


def test_after_a_run_the_outcome_comes_first_then_the_pictures_in_at_most_25_lines(saddlescope):
    lines = saddlescope("run tiny/staircase")[1].splitlines()
    assert lines[0] == "tiny/staircase (default): printed: 1 fails; reading: 1 undecided; extension: 1 seen."
    assert lines[1] == "See the pictures: saddlescope gallery results"
    assert [line.split()[:2] for line in lines if line.startswith(("  ✗", "  ?", "  ✓"))] == [
        ["✗", "fails"], ["?", "undecided"], ["✓", "seen"]
    ]  # fmt: skip
    assert lines[-1] == "Stored in results/tiny/staircase/default.nc."
    assert len(lines) + (12 - 3) + 2 <= 25  # with twelve claims, a data set and a scaled size


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--size quick", "A quick run is a smoke test; the default size judges the claims."),
        ("--set seed=7", "The bounds were set for the default parameters, and this run has seed=7."),
    ],
)
def test_runs_of_other_parameters_are_not_judged(saddlescope, options, reason):
    status, out, _ = saddlescope(f"run tiny/staircase --check {options}")
    assert status == 0
    assert f"not judged. {reason}" in out
    assert not re.search("fails|seen", out)
    status, out, _ = saddlescope("check results")
    assert status == 0
    assert f"Not judged. {reason}" in out
    assert not re.search("fails|seen", out)
    assert json.loads(saddlescope("check results --json")[1])[0]["unjudged"] == reason
    assert f"1 inside the bounds, 1 outside, 1 undecided; not judged. {reason}" in saddlescope("show tiny/staircase")[1]
    saddlescope("run tiny/staircase")
    status, out, _ = saddlescope("check results")
    assert status == 1
    assert "Verdicts by kind of claim: printed: 1 fails; reading: 1 undecided; extension: 1 seen." in out


def test_a_toy_judges_nothing(tmp_path):
    made = reproduce("toys/concepts", out=tmp_path, size="quick", settings={"seed": 3})
    assert made.unjudged == "The bounds of a toy only guide the eye."
    assert {record["unjudged"] for record in made.records()} == {made.unjudged}


def test_the_command_is_a_module_and_the_cost_of_every_entry_is_listed(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "saddlescope", "list"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert re.search(r"gradual-rank/figure-2 .* \d+ s[ |]+\d+ (s|min)", done.stdout)
    assert all(entry_costs(name)["quick"] > 0 for name in entry_names())
