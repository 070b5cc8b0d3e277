"""SIGKILL at random moments over runs of entries: nothing finished is lost, and the result is equal.

The moments are given by lines of progress and a random wait, so that they cover a run on any machine.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr

from saddlescope import store

HERE = Path(__file__).parent
TINY = [sys.executable, str(HERE.parent / "sweeps" / "tiny_sweep.py"), "run", "tiny/walk", "--set", "pause=0.01"]


def run(command, folder):
    """Run a program to its end."""
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    assert done.returncode in {0, 1, 3}, done.stderr.decode()


def killed(command, folder, moments, lines):
    """Start a program and kill it after at most `lines` lines of progress; return True if it was still running."""
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        for _ in range(moments.randint(1, lines)):
            process.stderr.readline()
        time.sleep(moments.uniform(0.0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.stderr.read()
    return process.returncode == -signal.SIGKILL


def environment(folder):
    return os.environ | {"TINY_HERE": str(folder), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def kill_and_resume(command, folder, done, *, kills, lines, seed):
    """Kill running programs `kills` times; each resumes its predecessor, and a new round starts once one is done."""
    moments, alive, rounds, ends = random.Random(seed), 0, 0, []
    while alive < kills:
        here = folder / f"round {rounds}"
        here.mkdir()
        while alive < kills and not done(here):
            alive += killed(command(here), folder, moments, lines)
        run(command(here), folder)
        ends.append(here)
        rounds += 1
        assert rounds < kills, "runs end before they can be killed"
    return ends


def stored(folder):
    """Return the one stored run; nothing else may be left."""
    (file,) = store.find_runs(folder)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    return store.read(file)


def same_runs(found, reference):
    xr.testing.assert_identical(found.drop_attrs(deep=False), reference.drop_attrs(deep=False))
    assert found.attrs["params"] == reference.attrs["params"]


PAPERS = ("gradual-rank/figure-2", "concept-learning/descents", "deep-relu/proposition-3-3")
RUNS = {name: [sys.executable, "-m", "saddlescope", "run", name, "--size", "quick"] for name in PAPERS}


@pytest.mark.slow  # test_killed_writes kills in the fast tests
@pytest.mark.parametrize(("words", "kills"), [(TINY, 10), *((words, 4) for words in RUNS.values())])
def test_a_run_of_an_entry_is_killed_again_and_again(tmp_path, words, kills):
    def command(here):
        return [*words, "--out", str(here)]

    run(command(tmp_path / "undisturbed"), tmp_path)
    ends = kill_and_resume(command, tmp_path, lambda here: list(here.rglob("*.nc")), kills=kills, lines=4, seed=kills)
    for here in ends:
        same_runs(stored(here), stored(tmp_path / "undisturbed"))
