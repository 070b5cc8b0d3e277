"""Training of every kind that is interrupted resumes to the last bit, and only its own checkpoint."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import CIRCLES, NETWORK, PROCESS, RUNS
from test_torch_settings import settings

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks.state_files import read_state, write_state
from saddlescope.training import SGD


class Interrupted(KeyboardInterrupt):
    pass


def interrupt(fraction, note):
    raise Interrupted


def assert_identical(one, other):
    assert len(one) == len(other)
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("kind", "every", "changes"),
    [
        ("image", None, {"precision": "tf32"}),
        ("image", 2, {"optimizer": SGD(learning_rate=0.1, momentum=0.9), "precision": "bf16"}),
        ("language", 3, {}),
        ("diffusion", 4, {}),
        ("classifier", None, {}),
        ("noise", None, {}),
    ],
)
def test_an_interrupted_run_resumes_to_the_last_bit(tmp_path, types_unchecked, kind, every, changes):
    """Use another global random state each time, which stays as it was."""

    def call(*arguments):
        torch.manual_seed(time.monotonic_ns())
        before = torch.get_rng_state()
        try:
            return RUNS[kind](*arguments, **changes)
        finally:
            assert torch.equal(before, torch.get_rng_state())

    path = tmp_path / "run"
    with types_unchecked():
        whole = call()
        for _ in range(2):
            with pytest.raises(Interrupted):
                call(path, every, interrupt)
            assert path.exists()
        assert_identical(call(path, every), whole)
        written = path.stat().st_mtime_ns
        assert_identical(call(path, every, interrupt), whole)  # a finished run returns what it found, without a step
    assert path.stat().st_mtime_ns == written
    assert {file.name for file in tmp_path.iterdir() if file.suffix != ".safetensors"} == {"run"}  # none half written


@pytest.mark.parametrize("kind", RUNS)
def test_settings_hold_during_the_run_alone(kind, types_unchecked):
    seen, before = [], settings()

    def look(*_):
        seen.append(settings()[3:])
        raise Interrupted

    with types_unchecked(), pytest.raises(Interrupted):  # the checker draws from Python's random numbers
        RUNS[kind](report=look, threads=before[3] + 1)
    assert seen == [(before[3] + 1, True, "highest", False)]
    assert settings() == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["image", "diffusion"])
def test_sigkill_at_any_moment_changes_nothing(tmp_path, kind):
    """Kill while the checkpoint is half on disk, just before it is renamed, at a record, and at random moments."""
    program, path = Path(__file__).with_name("small_runs.py"), tmp_path / "run"
    subprocess.run([sys.executable, str(program), kind, str(path)], check=True)
    assert_identical(RUNS[kind](path, 1), RUNS[kind]())


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        (
            "image",
            {
                "configuration": {"seed": 1},
                "data": {"draw": 1},
                "initial weights": {"weights": 1},
                "tracker": {"tracked": False},
            },
        ),
        (
            "language",
            {
                "configuration": {"clip": 0.5},
                "data": {"start": 1},
                "initial weights": {"weights": 1},
                "tracker": {"tracked": False},
            },
        ),
        (
            "diffusion",
            {
                "configuration": {"steps": 10},
                "network": {"network": replace(NETWORK, dropout=0.2)},
                "initial weights and network": {"network": replace(NETWORK, blocks=2)},
                "data": {"process": replace(PROCESS, color_signal=0.2)},
                "classifier": {"judge": None},
            },
        ),
        (
            "classifier",
            {
                "configuration": {"batch": 4},
                "configuration and initial weights": {"seed": 1},
                "data": {"process": replace(CIRCLES, color_signal=0.6)},
            },
        ),
        ("noise", {"configuration": {"batch": 20}, "draws": {"draws": 2}}),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, kind, others):
    path = tmp_path / "run"
    with pytest.raises(Interrupted):
        RUNS[kind](path, 1, interrupt)
    content = path.read_bytes()
    for part, changes in others.items():
        refused(f"checkpoint must belong to this run; .*differs in {part}[.] ", RUNS[kind], path, **changes)
    assert path.read_bytes() == content


@pytest.mark.parametrize("lost", ["draws", "kept"])
def test_a_checkpoint_of_another_version_is_refused_as_such(tmp_path, lost):
    path = tmp_path / "run"
    with pytest.raises(Interrupted):
        RUNS["noise"](path, 1, interrupt)
    state = read_state(path)
    assert state is not None
    (state if lost == "kept" else state["identity"]).pop(lost)
    write_state(path, state)
    refused(r"must be of this version of .*, which another version, or another kind of", RUNS["noise"], path, batch=20)


@pytest.mark.parametrize("kind", RUNS)
def test_a_folder_that_cannot_be_written_to_is_known_before_the_first_step(tmp_path, kind):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"Cannot write .*file/run: Not a directory[.] Give another path[.]$"):
        RUNS[kind](tmp_path / "file" / "run", None, interrupt)


@pytest.mark.parametrize(
    ("kind", "rate"),
    [
        ("image", {"optimizer": SGD(learning_rate=1e30), "warmup_epochs": 0}),
        ("language", {"learning_rate": 1e30}),
        ("diffusion", {"learning_rate": 1e30}),
        ("classifier", {"learning_rate": 1e30}),
    ],
)
def test_a_diverging_run_stops_and_keeps_its_last_good_checkpoint(tmp_path, kind, rate):
    with pytest.raises(InputError, match=r"learning_rate must be small enough for a finite loss; got 1e[+]30, and the"):
        RUNS[kind](tmp_path / "run", 1, **rate)
    state = read_state(tmp_path / "run")
    assert state is not None
    assert torch.isfinite(state["losses"]).all()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without GPU")
@pytest.mark.parametrize("kind", ["classifier", "diffusion"])
def test_a_gpu_that_is_not_there_is_refused(kind):
    refused(r"device='cuda' was requested, but PyTorch found no GPU\. Pass device='cpu'", RUNS[kind], device="cuda")
