"""Full disks and read-only folders: one sentence, nothing half-written, and the same command resumes."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import reproduce
from saddlescope.training import Adam, TrainConfig, ViT, ViTConfig, fit, load
from tiny import save_pair

TINY = Path(__file__).parents[1] / "tiny.py"


class SmallDisk:
    """Small file system in memory, of variable free size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._mount("-t", "tmpfs", "-o", "size=32m,mode=777", "none")

    def _mount(self, *options: str) -> None:
        done = subprocess.run(["mount", *options, self.folder], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")

    def fill(self, free: int = 0) -> None:
        """Leave this many bytes free."""
        with (self.folder / "filler").open("wb") as file:
            space = os.statvfs(self.folder)
            file.write(bytes(max(0, space.f_bavail * space.f_frsize - free)))

    def empty(self) -> None:
        (self.folder / "filler").unlink()

    def freeze(self) -> None:
        """Make it read-only."""
        self._mount("-o", "remount,ro")

    def thaw(self) -> None:
        self._mount("-o", "remount,rw")

    def files(self) -> dict[str, bytes]:
        """Return its files without the filler."""
        found = [path for path in self.folder.rglob("*") if path.is_file() and path.name != "filler"]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in sorted(found)}


@pytest.fixture
def disk(tmp_path):
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("only the superuser can mount a small file system")
    folder = tmp_path / "disk"
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)


@pytest.fixture(params=["full", "read-only"])
def stop(request, disk):
    """Return functions that make the disk unusable and undo it."""
    return (disk.fill, disk.empty) if request.param == "full" else (disk.freeze, disk.thaw)


def reports_an_unwritable_folder(result, *words):
    """Check that a command reported in one sentence, and by its status, that it cannot write."""
    status, err = result
    assert status == 2, err
    assert "Traceback" not in err
    said = err.strip().splitlines()[-1]
    assert any(word in said for word in ("No space left on device", "Read-only file system")), said
    assert all(word in said for word in words), said


def test_an_unwritable_folder_is_reported_before_the_work(disk, stop, call):
    unusable, usable = stop
    unusable()
    reports_an_unwritable_folder(call("run tiny/staircase --out disk/out"), "disk/out")
    assert not disk.files()
    usable()
    assert call("run tiny/staircase --out disk/out")[0] == 0
    assert list(disk.files()) == ["out/tiny/staircase/default.nc"]


def test_finished_parts_of_a_run_survive_a_full_disk(disk, tiny, tmp_path):
    def half(fraction, note):
        if fraction == 0.5:
            disk.fill()

    with pytest.raises(InputError, match=r"No space left on device\. Free some space, then rerun the same command"):
        reproduce(tiny, out=disk.folder / "out", report=half)
    disk.empty()
    fractions = []
    made = reproduce(tiny, out=disk.folder / "out", report=lambda fraction, note: fractions.append(fraction))
    assert fractions[0] >= 0.5
    undisturbed = reproduce(tiny, out=tmp_path / "undisturbed")
    xr.testing.assert_identical(made.run.drop_attrs(), undisturbed.run.drop_attrs())


def test_a_sweep_resumes_after_a_full_disk(disk, stop, call):
    unusable, usable = stop
    line = "sweep tiny/staircase --seeds 0:3 --processes 1 --out disk/out"
    assert call(line.replace("0:3", "0:1"))[0] == 0
    before = disk.files()
    unusable()
    reports_an_unwritable_folder(call(line), "disk/out")
    usable()
    points = {name: content for name, content in before.items() if "/points/" in name}
    assert points
    assert points.items() <= disk.files().items()
    assert call(line)[0] == 0


def test_an_existing_gallery_is_unchanged(disk, stop, call, undrawn):
    unusable, usable = stop
    call("run tiny/staircase --out runs")
    assert call("gallery runs --site disk/site")[0] == 0
    before = disk.files()
    unusable()
    reports_an_unwritable_folder(call("gallery runs --site disk/site"), "disk/site")
    assert disk.files() == before
    usable()
    assert call("gallery runs --site disk/site")[0] == 0


def test_spectra_and_adapters_are_written_atomically(disk, stop, call, tmp_path):
    save_pair(tmp_path)
    unusable, usable = stop
    lines = (
        "spectra base.pt tuned.pt --heads 2 --out disk/spectra.nc",
        "extract-lora base.pt tuned.pt --rank 2 --no-logits --out disk/adapter",
    )
    unusable()
    for line in lines:
        reports_an_unwritable_folder(call(line), line.rpartition(" ")[2])
    assert not disk.files()
    usable()
    for line in lines:
        status, err = call(line)
        assert status == 0, err
    assert {"spectra.nc", "adapter/adapter_model.safetensors"} <= set(disk.files())


def test_training_that_cannot_store_its_checkpoint_resumes_later(disk, stop, tmp_path):
    def train(folder):
        """Train a small vision transformer, with a checkpoint after every step."""
        model = ViT(ViTConfig(image_size=8, channels=1, patch=4, embedding=16, depth=1, head_width=4, mlp_width=8))
        config = TrainConfig(optimizer=Adam(learning_rate=3e-3), epochs=3, warmup_epochs=1, batch=32)
        history = fit(model, load("digits").subset(100, 30), config, checkpoint=folder / "run", checkpoint_every=1)
        return [*model.state_dict().values(), torch.from_numpy(history.train_loss)]

    unusable, usable = stop
    folder = disk.folder / "training"
    folder.mkdir()
    unusable()
    with pytest.raises(InputError, match=r"(No space left on device|Read-only file system)"):
        train(folder)
    assert not disk.files()
    usable()
    assert all(map(torch.equal, train(folder), train(tmp_path)))


def test_a_folder_of_another_user_is_reported():
    """Drop the rights of the superuser first, who may write everywhere."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only the superuser can take the rights of another user, with setpriv")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "out").mkdir(mode=0o755)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, str(TINY)]
        if subprocess.run([*nobody, "list"], capture_output=True, check=False, cwd=folder).returncode:
            pytest.skip("another user cannot read the package here")
        done = subprocess.run(
            [*nobody, "run", "tiny/staircase", "--out", "out"], capture_output=True, text=True, check=False, cwd=folder
        )
        assert done.returncode == 2, done.stderr
        *progress, message = done.stderr.splitlines()
        assert message == "Cannot write in out: Permission denied. Give another folder, or free some space."
        assert set(progress) <= {"saddlescope run: preparing"}  # on a busy machine
        assert not any((folder / "out").iterdir())
