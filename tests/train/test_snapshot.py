"""Snapshots: written whole or not at all, and never read without being checked."""

import os
import pickle
from pathlib import Path

import pytest
import torch

from saddlescope._shared.errors import InputError
from saddlescope.train import run_snapshot

STATE = {"step": 3, "weights": torch.arange(4.0), "records": [[1, 0.5]], "none": None}


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "new" / "folder" / "run"
    assert run_snapshot.read(path) is None
    run_snapshot.write(path, STATE)
    back = run_snapshot.read(path)
    assert back is not None
    assert torch.equal(back.pop("weights"), STATE["weights"])
    assert back == {name: value for name, value in STATE.items() if name != "weights"}


def test_every_cut_and_every_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "run"
    run_snapshot.write(path, STATE)
    content = path.read_bytes()
    damaged = [content[:end] for end in range(0, len(content), 7)]
    damaged += [content[:k] + bytes([content[k] ^ 1]) + content[k + 1 :] for k in range(0, len(content), 3)]
    for bad in damaged:
        path.write_bytes(bad)
        with pytest.raises(InputError, match=r"damaged or something else\. Delete it"):
            run_snapshot.read(path)


def test_a_forged_snapshot_is_not_executed(tmp_path):
    import hashlib
    import io

    class Hostile:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/marker",)

    path, buffer = tmp_path / "run", io.BytesIO()
    torch.save({"step": Hostile()}, buffer)
    for payload in (buffer.getvalue(), pickle.dumps(Hostile())):
        path.write_bytes(run_snapshot._HEADER + hashlib.sha256(payload).digest() + payload)
        with pytest.raises(InputError, match="checkpoint must be readable by this PyTorch"):
            run_snapshot.read(path)
    assert not (tmp_path / "marker").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_the_former_snapshot(tmp_path):
    path = tmp_path / "run"
    run_snapshot.write(path, STATE)
    content = path.read_bytes()
    (tmp_path / "run.part").symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"No space left on device.*an earlier checkpoint there is untouched"):
        run_snapshot.write(path, {"step": 4})
    assert path.read_bytes() == content


def test_places_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="checkpoint must be a file that can be written"):
        run_snapshot.write(tmp_path / "file" / "run", STATE)
    with pytest.raises(InputError, match="checkpoint must be a file that can be written"):
        run_snapshot.write(tmp_path, STATE)
    for no_file in (tmp_path, Path("/dev/zero")):
        with pytest.raises(InputError, match=r"checkpoint must be a readable file; .*not a file"):
            run_snapshot.read(no_file)
