"""SIGKILL at random moments: of the client, its processes, the workers and the scheduler. Nothing finished is lost."""

import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr

from saddlescope.sweeps import Sweep, stored_sweeps
from waiting import until

_SWEEP = ["sweep", "tiny/walk", "--seeds", "0:8", "--grid", "kind=walk,fails", "--set", "pause=0.04"]


class Killed:
    """A sweep that is killed again and again, watched from outside."""

    def __init__(self, command, folder, begun, *options, seed):
        self.command, self.folder, self.begun = [*command, *_SWEEP, "--out", "out", *options], folder, begun
        self.random = random.Random(seed)
        self.seen: dict[Path, str] = {}
        self.killed: set[str] = set()
        self.kills = 0

    def start(self):
        """Start the client; return it a random moment after a run has begun."""
        before = len(self.begun())
        client = subprocess.Popen(
            self.command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        until(lambda: len(self.begun()) > before or client.poll() is not None)
        self.wait()
        return client

    def wait(self):
        time.sleep(self.random.uniform(0.0, 0.5))

    def kill(self, process):
        """Kill it, and check that all finished points are unchanged."""
        self.look()
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
            self.kills += 1
        self.look()

    def kill_worker(self):
        """Kill the process whose run began last, once there is one that was not killed yet."""
        until(lambda: self.begun()[-1][0] not in self.killed)
        worker = self.begun()[-1][0]
        self.killed.add(worker)
        self.kill(int(worker))
        self.wait()

    def look(self):
        now = {file: _digest(file) for file in self.folder.glob("out/sweeps/tiny/walk/points/[0-9a-f]*.nc")}
        assert self.seen.items() <= now.items(), "a finished point is gone, or not what it was"
        self.seen = now

    def finish(self):
        """Run the sweep to its end; return the stored sweep."""
        before, done = len(self.begun()), len(self.seen)
        ended = subprocess.run(self.command, cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 1, ended.stderr  # half the points fail
        assert "Traceback" not in ended.stderr
        self.look()
        again = [(kind, seed) for _, kind, seed, _ in self.begun()[before:]]
        assert len(again) <= 16 - done, "finished points are not made again"
        (file,) = stored_sweeps(self.folder / "out")
        return Sweep.open(file)


@pytest.fixture
def undisturbed(swept, tmp_path, types_unchecked):
    with types_unchecked():
        return swept("kind=walk,fails", seeds="0:8", size="default", settings={"pause": "0.0"}, out=tmp_path / "other")


def same(made, undisturbed):
    """Return True if two sweeps have the same results, whatever the pauses."""
    names = ["value", "uncertainty", "outcome", "metrics", "state", "error"]
    one, other = (sweep.data[names].transpose("kind", "seed", ...).drop_attrs() for sweep in (made, undisturbed))
    xr.testing.assert_identical(one, other)
    return True


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_sweep_over_processes(walk, command, tmp_path, begun, undisturbed, rounds):
    sweep = Killed(command, tmp_path, begun, "--processes", "2", seed=1)
    for _ in range(rounds):
        client = sweep.start()
        sweep.kill_worker()
        sweep.kill_worker()
        sweep.kill(client.pid)
        client.communicate()
    assert sweep.kills == 3 * rounds
    assert same(sweep.finish(), undisturbed)


@contextlib.contextmanager
def _cluster(workers):
    program = [sys.executable, str(Path(__file__).parent / "cluster_program.py"), str(workers)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.stdin.close()


@pytest.mark.slow
def test_a_sweep_on_a_cluster(walk, command, tmp_path, begun, undisturbed):
    with _cluster(2) as (cluster, address):
        first = Killed(command, tmp_path, begun, "--scheduler", address, seed=2)
        client = first.start()
        first.kill_worker()
        first.kill(client.pid)
        client.communicate()
        client = first.start()
        first.kill(cluster.pid)
        reported = client.communicate(timeout=120)[1]
        assert client.returncode == 2, reported
        assert "The scheduler ended" in reported
        assert "Traceback" not in reported, reported
    with _cluster(1) as (_, address):
        second = Killed(command, tmp_path, begun, "--scheduler", address, seed=4)
        second.seen = first.seen
        client = second.start()
        second.kill_worker()
        client.communicate(timeout=120)
        assert first.kills + second.kills == 4
        assert same(second.finish(), undisturbed)


def _digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()
