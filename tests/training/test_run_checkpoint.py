"""Checkpoints of runs: written atomically, verified when read, and used only by their own run."""

import errno
import hashlib
import io
import os
import pickle
from pathlib import Path

import torch
from torch import nn

from refusals import refused
from saddlescope.ranks import state_files
from saddlescope.ranks.state_files import read_state, write_state
from saddlescope.training.training_run import weights_digest

STATE = {"step": 3, "weights": torch.arange(4.0), "records": [[1, 0.5]], "none": None}


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "new" / "folder" / "run"
    assert read_state(path) is None
    write_state(path, STATE)
    back = read_state(path)
    assert back is not None
    assert torch.equal(back.pop("weights"), STATE["weights"])
    assert back == {name: value for name, value in STATE.items() if name != "weights"}


def test_every_cut_and_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "run"
    write_state(path, STATE)
    content = path.read_bytes()
    damaged = [content[:end] for end in range(0, len(content), 7)]
    damaged += [content[:k] + bytes([content[k] ^ 1]) + content[k + 1 :] for k in range(0, len(content), 3)]
    for bad in damaged:
        path.write_bytes(bad)
        refused(r"damaged or something else\. Delete it", read_state, path)


def test_a_forged_checkpoint_is_not_executed(tmp_path):
    class Hostile:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/marker",)

    path, buffer = tmp_path / "run", io.BytesIO()
    torch.save({"step": Hostile()}, buffer)
    for payload in (buffer.getvalue(), pickle.dumps(Hostile())):
        path.write_bytes(state_files._HEADER + hashlib.sha256(payload).digest() + payload)
        refused("checkpoint must be readable by this PyTorch", read_state, path)
    assert not (tmp_path / "marker").exists()


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "run"
    write_state(path, STATE)
    content = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    refused(r"No space left on device.*an earlier checkpoint there is intact", write_state, path, {"step": 4})
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def test_places_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    refused("checkpoint must be a file that can be written", write_state, tmp_path / "file" / "run", STATE)
    refused("must be a file or a new one; got a folder", write_state, tmp_path, STATE)
    for no_file in (tmp_path, Path("/dev/zero")):
        refused(r"checkpoint must be a readable file; .*not a file", read_state, no_file)


def test_the_digest_depends_on_name_shape_type_and_value_of_every_weight():
    def model(change=lambda linear: None):
        linear = nn.Linear(2, 2)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
            linear.bias.zero_()
        change(linear)
        return linear

    def flip(linear):
        linear.weight.data[1, 1] = 4.0000005

    def transpose(linear):
        linear.weight.data = linear.weight.data.T

    def buffer(linear):
        linear.register_buffer("extra", torch.zeros(1))

    others = [model(flip), model(transpose), model(buffer), model().double(), nn.Sequential(model())]
    found = [weights_digest(each) for each in (model(), *others)]
    assert weights_digest(model()) == found[0]
    assert len(set(found)) == len(found)
