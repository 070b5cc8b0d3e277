"""Commands killed by SIGKILL at each system call that writes: the same command repairs and gives the same files.

A small library in C, preloaded into the process, counts these calls and kills at the chosen one.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.attacks.killed_commands import COMMANDS

HERE = Path(__file__).parent
SOME = tuple(name for name in COMMANDS if " of " in name or " in " in name)
FEW = 3  # kills of each command in the fast tests


@pytest.fixture(scope="module")
def killer(tmp_path_factory):
    """Return the compiled library."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("the library that kills needs a C compiler and Linux")
    library = tmp_path_factory.mktemp("killer") / "kill_at_write.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", library, HERE / "kill_at_write.c", "-ldl"]
    subprocess.run(command, check=True)
    return library


def kill(killer, folder, most, names):
    """Kill the commands at most so many times each; return kills and faults by name."""
    command = [sys.executable, str(HERE / "killed_commands.py"), str(folder), str(most), *names]
    more = {"LD_PRELOAD": str(killer), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=os.environ | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_some_writes(killer, tmp_path):
    for name, (kills, faults) in kill(killer, tmp_path, FEW, SOME).items():
        assert kills == FEW, name
        assert not faults, (name, faults)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_write(killer, name, tmp_path):
    ((kills, faults),) = kill(killer, tmp_path, 10_000, [name]).values()
    assert kills >= 20
    assert not faults
