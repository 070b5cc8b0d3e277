"""A full disk and a read-only folder, real ones: told in one sentence, nothing half-written, and gone on with."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from saddlescope import cli
from saddlescope._shared.errors import InputError
from saddlescope.reproduction import reproduce

TINY = Path(__file__).parents[1] / "tiny.py"


class SmallDisk:
    """A file system of its own in memory, of a size that can change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._mount("-t", "tmpfs", "-o", "size=32m,mode=777", "none")

    def _mount(self, *options: str) -> None:
        done = subprocess.run(["mount", *options, self.folder], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")

    def fill(self, free: int = 0) -> None:
        """Leaves so many bytes free."""
        with (self.folder / "filler").open("wb") as file:
            space = os.statvfs(self.folder)
            file.write(bytes(max(0, space.f_bavail * space.f_frsize - free)))

    def empty(self) -> None:
        (self.folder / "filler").unlink()

    def freeze(self) -> None:
        """From now on it can only be read."""
        self._mount("-o", "remount,ro")

    def thaw(self) -> None:
        self._mount("-o", "remount,rw")

    def files(self) -> dict[str, bytes]:
        """What lies on it, but for the filler and folders."""
        found = [path for path in self.folder.rglob("*") if path.is_file() and path.name != "filler"]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in sorted(found)}


@pytest.fixture
def disk(tmp_path):
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("a small file system is mounted by the superuser alone")
    folder = tmp_path / "disk"
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)


@pytest.fixture(params=["full", "read-only"])
def stop(request, disk):
    """Makes the disk unusable, and what undoes that."""
    return (disk.fill, disk.empty) if request.param == "full" else (disk.freeze, disk.thaw)


@pytest.fixture
def call(tiny, tmp_path, monkeypatch, capsys):
    """Runs the command line beside the disk; returns the status and what was said on standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SADDLESCOPE_DATA", raising=False)

    def run(line):
        status = cli.main(shlex.split(line))
        return status, capsys.readouterr().err

    return run


def refused(told, *words):
    """Whether a command said in one sentence, and by its status, that it cannot write."""
    status, err = told
    assert status == 2, err
    assert "Traceback" not in err
    said = err.strip().splitlines()[-1]
    assert any(word in said for word in ("No space left on device", "Read-only file system")), said
    assert all(word in said for word in words), said


def test_a_run_is_told_before_the_work(disk, stop, call):
    unusable, usable = stop
    unusable()
    refused(call("run tiny/staircase --out disk/out"), "disk/out")
    assert not disk.files()
    usable()
    assert call("run tiny/staircase --out disk/out")[0] == 1
    assert list(disk.files()) == ["out/tiny/staircase/default.nc"]


def test_a_run_in_the_middle_of_its_work_keeps_what_is_finished(disk, tiny, tmp_path):
    def half(fraction, note):
        if fraction == 0.5:
            disk.fill()

    with pytest.raises(InputError, match=r"No space left on device\. Free some space, then rerun the same command"):
        reproduce(tiny, out=disk.folder / "out", report=half)
    disk.empty()
    fractions = []
    made = reproduce(tiny, out=disk.folder / "out", report=lambda fraction, note: fractions.append(fraction))
    assert fractions[0] >= 0.5
    whole = reproduce(tiny, out=tmp_path / "whole")
    xr.testing.assert_identical(made.run.drop_attrs(), whole.run.drop_attrs())


def test_a_sweep_goes_on_where_the_disk_stopped_it(disk, stop, call):
    unusable, usable = stop
    line = "sweep tiny/staircase --seeds 0:3 --processes 1 --out disk/out"
    assert call(line.replace("0:3", "0:1"))[0] == 0
    before = disk.files()
    unusable()
    refused(call(line), "disk/out")
    usable()
    points = {name: content for name, content in before.items() if "/points/" in name}
    assert points
    assert points.items() <= disk.files().items()
    assert call(line)[0] == 0


def test_a_gallery_stays_as_it_was(disk, stop, call):
    unusable, usable = stop
    call("run tiny/staircase --out runs")
    assert call("gallery runs --site disk/site")[0] == 0
    before = disk.files()
    unusable()
    refused(call("gallery runs --site disk/site"), "disk/site")
    assert disk.files() == before
    usable()
    assert call("gallery runs --site disk/site")[0] == 0


def test_spectra_and_adapters_are_written_whole_or_not_at_all(disk, stop, call, tmp_path):
    draw = torch.Generator().manual_seed(0)
    base = {f"layers.{k}.{name}_proj.weight": torch.randn(6, 6, generator=draw) for k in (0, 1) for name in "qkvo"}
    torch.save(base, tmp_path / "base.pt")
    torch.save({name: one + torch.randn(6, 6, generator=draw) for name, one in base.items()}, tmp_path / "tuned.pt")
    unusable, usable = stop
    lines = (
        "spectra base.pt tuned.pt --heads 2 --out disk/spectra.nc",
        "extract-lora base.pt tuned.pt --rank 2 --no-logits --out disk/adapter",
    )
    unusable()
    for line in lines:
        refused(call(line), line.rpartition(" ")[2])
    assert not disk.files()
    usable()
    for line in lines:
        status, err = call(line)
        assert status == 0, err
    assert {"spectra.nc", "adapter/adapter_model.safetensors"} <= set(disk.files())


def test_training_that_cannot_keep_its_checkpoint_goes_on_later(disk, stop, tmp_path):
    from training_program import fit

    unusable, usable = stop
    folder = disk.folder / "training"
    folder.mkdir()
    (tmp_path / "whole").mkdir()
    unusable()
    with pytest.raises(InputError, match=r"(No space left on device|Read-only file system)"):
        fit(folder)
    assert not disk.files()
    usable()
    found, whole = fit(folder), fit(tmp_path / "whole")
    for name, value in whole.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_a_folder_of_somebody_else_is_told():
    """The superuser may write everywhere, so the command gives its rights away first."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("the rights of another user are taken by the superuser, with setpriv")
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
        assert done.stderr == "Cannot write in out: Permission denied. Give another folder with --out, or free some space.\n"
        assert not any((folder / "out").iterdir())
