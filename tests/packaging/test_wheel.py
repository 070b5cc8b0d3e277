"""The wheel as a stranger installs it: into an empty environment, without extras and with each, and used there."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from saddlescope.reproduction import entry_names

ROOT = Path(__file__).parents[2]
CONSTRAINTS = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
EXTRAS = ("", "torch", "jax", "papers", "explore", "sweep", "tensorboard", "all")
IMPORTS = {  # what an extra brings, by the names it is imported by
    "torch": ("torch", "safetensors"),
    "jax": ("jax", "equinox", "diffrax", "clarabel"),
    "language": ("transformers", "tokenizers", "accelerate", "peft"),
    "papers": ("sklearn",),
    "explore": ("starlette", "uvicorn"),
    "sweep": ("distributed",),
    "tensorboard": ("tensorboard",),
}
BRINGS = {  # others bring themselves
    "": (),
    "papers": ("torch", "jax", "language", "papers"),
    "explore": ("jax", "explore"),
    "all": tuple(IMPORTS),
}
LIGHT, VISION = "gradual-rank/diagonal-linear", "gradual-rank/figure-4"
TRACKED = """
import sys

from saddlescope import RankTracker

import torch

model = torch.nn.MultiheadAttention(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
tracker = RankTracker(model).watch(optimizer)
x = torch.ones(3, 1, 6)
model(x, x, x)[0].square().sum().backward()
optimizer.step()
print(tracker.stable_rank("VO").shape, "jax" in sys.modules)
"""
PREDICTED = """
from saddlescope import low_rank_learning

import jax.numpy as jnp
import numpy as np

target = np.diag([3.0, 1.0, 0.0])
learned = low_rank_learning(lambda B: 0.5 * jnp.sum((B[0] - target) ** 2), [(3, 3)])
print([stage.ranks for stage in learned.stages])
"""
CONSUMER = """
import saddlescope as ss

found = ss.find_stages([0.0, 1.0], [1.0, 0.5], [[0.0], [1.0]], level=0.5, time_unit="t")
wrong: int = found
reveal_type(found)
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folder of the wheel and the source distribution."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, env=os.environ | CONSTRAINTS, check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def wheel(built):
    """Return the wheel."""
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module", params=EXTRAS, ids=lambda extra: extra or "bare")
def environment(request, wheel, tmp_path_factory):
    """Return a new environment with the wheel and one extra: its packages, and a function that runs commands in it."""
    folder, extra = tmp_path_factory.mktemp("environment"), request.param
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    wanted = f"saddlescope[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    pip = [str(folder / "bin" / "python"), "-m", "pip"]
    subprocess.run([*pip, "install", "--quiet", wanted], env=os.environ | CONSTRAINTS, check=True)

    def call(command, *words):
        given = {"PATH": os.environ["PATH"], "HOME": str(folder), "OMP_NUM_THREADS": "1"}
        program = [str(folder / "bin" / command), *words]
        return subprocess.run(program, cwd=folder, env=given, capture_output=True, text=True, check=False)

    yield BRINGS.get(extra, (extra,)), call, folder
    shutil.rmtree(folder)  # a gigabyte each


def refused(done, reported):
    """Assert that a command ended with one sentence and nothing else."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    sentence = done.stderr.splitlines()[-1]
    assert reported in sentence
    assert "Traceback" not in done.stderr


def test_it_has_what_the_extra_brings_and_no_more(environment):
    brought, call, _ = environment
    assert call("python", "-m", "pip", "check").returncode == 0
    for extra, packages in IMPORTS.items():
        for package in packages:
            there = call("python", "-c", f"import {package}").returncode == 0
            assert there == (extra in brought), package


def test_version_and_list(environment):
    _, call, _ = environment
    assert call("saddlescope", "--version").stdout.startswith("saddlescope ")
    listed = call("saddlescope", "list").stdout
    assert all(name in listed for name in entry_names())


def test_the_stages_of_a_log_need_no_extra(environment):
    _, call, folder = environment
    shutil.copy(ROOT / "docs" / "loss-logs" / "deep_linear.csv", folder)
    done = call("saddlescope", "stages", "deep_linear.csv")
    assert done.returncode == 0, done.stderr
    assert "5 plateaus, 4 drops" in done.stdout


@pytest.mark.parametrize(
    ("program", "extra", "prints"),
    [(TRACKED, "torch", "(1, 1, 2) False\n"), (PREDICTED, "jax", "[(0,), (1,), (2,)]\n")],
    ids=["tracker", "prediction"],
)
def test_a_program_runs_or_says_what_brings_it(environment, program, extra, prints):
    brought, call, folder = environment
    (folder / "program.py").write_text(program)
    done = call("python", "program.py")
    if extra in brought:
        assert done.stdout == prints, done.stderr
    else:
        assert f"pip install 'saddlescope[{extra}]'; without it" in done.stderr


def test_an_entry_runs_and_is_shown_or_says_what_brings_it(environment):
    brought, call, folder = environment
    for entry, extra in ((LIGHT, "jax"), (VISION, "papers")):
        done = call("saddlescope", "run", entry, "--size", "quick")
        if extra in brought:
            assert done.returncode in (0, 1, 3), done.stderr
            assert f"results/{entry}/quick.nc" in done.stdout
        else:
            refused(done, "pip install 'saddlescope[papers]'; without it not every entry can be run.")
            assert f"{entry} needs " in done.stderr
            assert not list((folder / "results" / entry).glob("*.nc"))
    if "papers" in brought:
        assert call("saddlescope", "gallery", "results").returncode == 0
        shown = {file.suffix for file in (folder / "gallery").rglob("*")}
        assert shown >= {".html", ".css", ".js"}


def test_many_points_run_on_this_machine(environment):
    brought, call, _ = environment
    if "jax" in brought:
        done = call("saddlescope", "sweep", LIGHT, "--grid", "seed=0:2", "--size", "quick")
        assert done.returncode == 0, done.stderr


def test_a_scheduler_needs_the_extra_sweep(environment):
    brought, call, _ = environment
    words = ("sweep", LIGHT, "--grid", "seed=0:2", "--size", "quick", "--again", "--scheduler", "tcp://127.0.0.1:9")
    done = call("saddlescope", *words)
    refused(done, "127.0.0.1:9" if "sweep" in brought else "pip install 'saddlescope[sweep]'; without it")


def test_checkpoints_need_the_extra_torch(environment):
    brought, call, _ = environment
    done = call("saddlescope", "spectra", "before.safetensors", "after.safetensors")
    refused(done, "before.safetensors" if "torch" in brought else "pip install 'saddlescope[torch]'; without it")


def test_a_type_checker_sees_the_types(environment):
    _, _, folder = environment
    (folder / "consumer.py").write_text(CONSUMER)
    pyright = Path(sysconfig.get_path("scripts")) / "pyright"
    command = [str(pyright), "--pythonpath", str(folder / "bin" / "python"), "consumer.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert 'Type of "found" is "Staircase"' in done.stdout
    assert '"Staircase" is not assignable to "int"' in done.stdout
    assert "1 error" in done.stdout


def test_the_wheel_has_every_file_of_the_package(wheel):
    source = ROOT / "src"
    of_package = {
        str(file.relative_to(source))
        for file in (source / "saddlescope").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == of_package
    assert {Path(name).suffix for name in packed} >= {".py", ".html", ".css", ".js", ".typed"}


def test_the_source_distribution_can_be_tested(built):
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"pyproject.toml", "constraints.txt", "Makefile", "CITATION.cff", "LICENSE", "README.md", "CHANGELOG.md"}
    assert packed >= wanted
    assert packed >= {"scripts/readme.py", "benchmarks/board.py", "tests/conftest.py", "docs/conf.py"}
    assert not any(name.startswith(("results/", "build/", "gallery/")) for name in packed)
