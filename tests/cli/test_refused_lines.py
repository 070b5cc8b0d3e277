"""Lines that no command can use: the sentence that names the cause, status 2, and no new file.

That lines of many more kinds end in one sentence is in tests/robustness/test_bad_lines.py.
"""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import tiny as module


class Trap:
    """Would run code if it were unpickled."""

    def __reduce__(self):
        return (open, ("sprung", "w"))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Return a folder with checkpoints, an adapter, token data that cannot be used, and a file of words."""
    folder = tmp_path_factory.mktemp("inputs")
    module.save_pair(folder)
    save_file({"mlp.weight": torch.ones(8, 6)}, folder / "base.safetensors")
    sides = {"mlp.lora_A.weight": torch.ones(4, 6), "mlp.lora_B.weight": torch.ones(8, 4)}
    save_file(sides | {"mlp.alpha": torch.tensor(8.0)}, folder / "adapter.safetensors")
    tokens = {"X": np.ones((2, 3, 6)), "z": np.ones((2, 6)), "y": np.array([1.0, -1.0]), "v": np.zeros(6)}
    np.savez(folder / "equal.npz", **tokens)
    np.savez(folder / "objects.npz", allow_pickle=True, **tokens | {"X": np.array([Trap()], object)})
    (folder / "file").write_text("")
    return folder


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("run tiny/stairs", "There is no entry 'tiny/stairs'; did you mean tiny/staircase?"),
        ("show tiny/stairs", "There is no entry 'tiny/stairs'; did you mean tiny/staircase?"),
        ("run tiny/staircase --size quik", "There is no size 'quik'; did you mean quick?"),
        ("run tiny/staircase --set sed=1", "There is no parameter of tiny/staircase 'sed'; did you mean seed?"),
        ("run tiny/staircase --set seed", "--set must be NAME=VALUE, such as --set seed=1; got 'seed'."),
        ("run tiny/staircase --set seed=1 --set seed=2", "--set gives seed twice"),
        ("run tiny/staircase --set seed=x", "seed must be an integer, such as seed=3; got 'x'."),
        ("run tiny/staircase --set stages=0", "stages must be at least 1; got 0."),
        ("run tiny/staircase --data nowhere", "--data must be an existing folder; got 'nowhere'."),
        ("run tiny/staircase --out file", "Cannot write in file: "),
        ("run tiny/staircase --sise quick", "No such option: --sise"),
        ("run", "Missing argument 'ENTRY'. Try: saddlescope run --help"),
        ("rnu tiny/staircase", "No such command 'rnu'. Did you mean 'run'? Try: saddlescope --help"),
        ("check nowhere", "There is no folder nowhere"),
        ("check .", "There are no stored runs in .; store one with: saddlescope run ENTRY --out ."),
        ("gallery .", "There are no stored runs in .; store one with: saddlescope run ENTRY --out ."),
        ("gallery nowhere", "There is no folder nowhere"),
        ("sweep tiny/stairs --seeds 0:2", "There is no entry"),
        ("sweep tiny/staircase", "must have an axis"),
        ("sweep tiny/staircase --seeds 0:2 --processes 0", "processes must be at least 1"),
        ("sweep tiny/staircase --seeds 0:2 --processes two", "--processes"),
        ("sweep tiny/staircase --seeds 0:2 --processes 2 --scheduler tcp://x:1", "left out with a scheduler"),
        ("sweep tiny/staircase --seeds 0:2 --set stages", "--set must be NAME=VALUE"),
        ("sweep tiny/staircase --seeds 0:2 --data nowhere", "--data must be an existing folder"),
        ("sweep tiny/staircase --seeds 0:2 --out file", "Cannot write"),
        ("attention equal.npz", "must give every sample one optimal token"),
        ("attention objects.npz", "without pickled objects"),
        ("spectra base.pt", "tuned must name one checkpoint or more"),
        ("spectra base.pt nowhere", "There is no checkpoint nowhere"),
        ("spectra base.pt tuned.pt", "Pass --heads"),
        ("spectra base.pt tuned.pt --heads 4", "must split into 4 heads"),
        ("spectra base.pt tuned.pt --heads two", "heads must be a number, or PATTERN=NUMBER; got 'two'"),
        ("spectra base.pt tuned.pt --heads 2 --heads a=3", "heads must have a pattern each if there are several"),
        ("spectra base.pt tuned.pt --heads a=2 --heads a=3", "heads must have each pattern once; got 'a' twice"),
        ("spectra base.pt tuned.pt --heads vision=2", "a pattern that matches this name"),
        ("spectra base.pt tuned.pt --heads 2 --out base.pt/s.nc", "Cannot write"),
        ("extract-lora base.pt tuned.pt", "Missing option '--out'"),
        ("extract-lora base.pt nowhere --out there --rank 1", "There is no checkpoint nowhere"),
        ("extract-lora base.pt base.pt --out there --rank 1", "must differ from base.pt"),
        ("extract-lora base.pt tuned.pt --out there --rank 1 --embeddings", "embeddings need a base whose config.json"),
        ("lora resize base.safetensors --rank 1 --out c", "must be an adapter"),
        ("lora resize adapter.safetensors --rank 1 --format kohya --out c", "must name a class of Diffusers"),
        ("lora merge adapter.safetensors --base base.safetensors --rank 2 --out c", "given without --energy"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused(tiny, typed, inputs, tmp_path, line, reported):
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    before = sorted(tmp_path.iterdir())
    status, out, err = typed(line)
    assert (status, out) == (2, "")
    assert reported in err.splitlines()[-1]
    assert "Traceback" not in err
    assert sorted(tmp_path.iterdir()) == before
