"""Examples of docs/sweeps.md."""

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import snippets
from saddlescope.reproduction import find_entry
from saddlescope.sweeps import Grid

_PAGE = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text().replace("\\\n", "")


def _block(words):
    return snippets.snippet("docs/sweeps.md", words)


@pytest.mark.parametrize("line", re.findall(r"^saddlescope sweep .*$", _PAGE, re.M))
def test_the_grids_of_the_commands(line):
    words = shlex.split(line.partition(" #")[0])[2:]
    entry, axes = find_entry(words[0]), [axis for option, axis in pairwise(words) if option == "--grid"]
    grid = Grid.parse(entry, axes, seeds=words[words.index("--seeds") + 1])
    assert len(grid.params) >= 64


def test_the_job_that_slurm_is_given():
    (arguments,) = re.findall(r"SLURMCluster\((.*?)\)", _block("SLURMCluster").code, re.S)
    code = (
        "if __name__ == '__main__':\n"
        "    from dask_jobqueue.slurm import SLURMJob\n"
        f"    job = SLURMJob(scheduler='tcp://10.0.0.1:8786', name='worker', {arguments})\n"
        "    print(job.job_script())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    script = done.stdout.splitlines()
    assert {"#SBATCH -p cpu", "#SBATCH --cpus-per-task=1", "#SBATCH --mem=4G", "#SBATCH -t 04:00:00"} <= set(script), (
        done
    )
    assert "distributed.cli.dask_worker tcp://10.0.0.1:8786 --name worker --nthreads 1" in done.stdout
    assert "--nanny" in done.stdout
