"""Examples of docs/sweeps.md."""

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import snippets
from saddlescope import cli
from saddlescope.reproduction import Parameter, find_entry
from saddlescope.sweeps import Grid

_PAGE = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()


def _block(words):
    return snippets.snippet("docs/sweeps.md", words)


def test_a_sweep_in_python(tmp_path, monkeypatch, types_unchecked):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("joblib.cpu_count", lambda: 1)  # one processor: it is made here
    with types_unchecked():
        made = snippets.run(_block("Sweep.open(made.file)"), tmp_path)
    assert made["excess"].dims == ("log10_scale", "seed")
    assert float(made["excess"].sel(log10_scale=-64.0).max()) < float(made["excess"].sel(log10_scale=-1.0).min())
    assert float(made["share"].sel(claim="flow", log10_scale=-64.0)) == 1
    assert made["one"].provenance.params["seed"] == 1
    assert made["runs"].flow_norm.dims == ("log10_scale", "seed", "problem")
    assert "stage_time" in made["runs"].left_out, "problems differ in their number of stages"
    assert np.isfinite(made["again"].data.metrics).any()


@pytest.mark.parametrize("line", re.findall(r"^saddlescope sweep .*$", _PAGE, re.M))
def test_the_grids_of_the_commands(line):
    words = shlex.split(line.partition(" #")[0])[2:]
    entry, axes = find_entry(words[0]), [axis for option, axis in pairwise(words) if option == "--grid"]
    grid = Grid.parse(entry, axes, seeds=words[words.index("--seeds") + 1])
    assert len(grid.params) >= 64


@pytest.mark.parametrize("word", re.findall(r"^\| `([^|]*?=[^|]*?)` \|", _PAGE, re.M))
def test_the_spellings_of_the_table(word, walk):
    from saddlescope.sweeps.parse import expand

    for spelled in word.split("`, `"):
        name, values = spelled.split("=")
        kind = int if name not in ("noise", "log10_scales") else float
        record = Parameter(name=name, description=name, type=kind, many=name == "log10_scales", default=())
        assert len(expand(values, record)) >= 2


def test_the_job_that_slurm_is_given():
    (arguments,) = re.findall(r"SLURMCluster\((.*?)\)", _block("SLURMCluster").code)
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


def test_the_status_of_help_and_page_are_one(capsys):
    cli.main(["sweep", "--help"])
    assert "0 if all points are finished, whatever their verdicts" in " ".join(capsys.readouterr().out.split())
