"""Two tensors whose names become one without the prefixes of wrappers: refused, never dropped."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from saddlescope import cli
from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.files import Checkpoint, unambiguous

PAIRS = [
    ("layer.weight", "module.layer.weight"),
    ("layer.weight", "_orig_mod.layer.weight"),
    ("module.layer.weight", "_orig_mod.layer.weight"),
    ("module._orig_mod.layer.weight", "layer.weight"),
    ("a._orig_mod.layer.weight", "a.layer.weight"),
]


def _save(folder: Path, names, scale: float) -> Path:
    path = folder / f"{scale}.safetensors"
    save_file({name: scale * (1 + k) * torch.eye(3) for k, name in enumerate(names)}, str(path))
    return path


@pytest.mark.parametrize("names", PAIRS)
def test_two_names_that_are_one_in_the_model_are_refused(names, tmp_path):
    with pytest.raises(InputError, match="must hold each tensor of the model once") as raised:
        Checkpoint.open(_save(tmp_path, names, 1.0))
    assert all(name in str(raised.value) for name in names)


def test_differing_files_are_not_called_identical(tmp_path, capsys):
    base = _save(tmp_path, ("layer.weight",), 1.0)
    other = _save(tmp_path, PAIRS[0], 2.0)
    assert cli.main(["spectra", str(base), str(other)]) == 2
    assert "must hold each tensor of the model once" in capsys.readouterr().err


def test_names_that_stay_different_pass(tmp_path):
    path = _save(tmp_path, ("module.a.weight", "module.module.weight", "_orig_mod.b.weight"), 1.0)
    assert set(Checkpoint.open(path).tensors) == {"a.weight", "module.weight", "b.weight"}
    assert unambiguous(path, [("a", "x"), ("b", "y")]) == {"a": "x", "b": "y"}
