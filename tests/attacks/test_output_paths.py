"""Outputs that are devices, pipes, sockets, folders or links: only a regular file is ever replaced, before any work.

Every device is one of the test's own, in a temporary folder, never one of the machine.
"""

import os
import shutil
import socket
import stat
from pathlib import Path

import numpy as np
import pytest

from saddlescope import store
from saddlescope._shared.atomic_files import atomic_writer, write_atomically
from saddlescope._shared.errors import InputError, StorageError
from saddlescope._shared.output_paths import NETCDF, output_file, require_writable_file, require_writable_folder
from saddlescope.flow.descent.checkpoint import Checkpoint
from saddlescope.ranks.state_files import write_state
from saddlescope.reproduction import reproduce
from saddlescope.training import TrainConfig, ViT, ViTConfig, fit, load

WORDS = {"pipe": "a pipe", "device": "a device", "socket": "a socket", "folder": "a folder", "loop": "a chain of links"}


def make(kind, path):
    """Create something that is no regular file."""
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            try:
                os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
            except OSError as error:
                pytest.skip(f"devices cannot be made here: {error}")
        case "socket":
            with socket.socket(socket.AF_UNIX) as own:
                here = os.open(path.parent, os.O_RDONLY)  # since addresses are short
                try:
                    own.bind(f"/proc/self/fd/{here}/{path.name}")
                finally:
                    os.close(here)
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path.with_name("other"))
            path.with_name("other").symlink_to(path)


@pytest.fixture(params=["itself", "a link"])
def linked(request):
    """Return a function that gives a path itself, or a link to it."""

    def path_of(path):
        if request.param == "itself":
            return path
        link = path.with_name("link")
        link.symlink_to(path)
        return link

    return path_of


def states(folder):
    """Return all paths below a folder, with their kinds, identities and links."""
    found = sorted(folder.rglob("*"))
    return [(path, path.lstat().st_mode, path.lstat().st_ino, path.is_symlink() and path.readlink()) for path in found]


WRITERS = {
    "bytes": lambda path: write_atomically(path, b"new"),
    "store": lambda path: store.write_bytes(b"new", path),
    "training": lambda path: write_state(path, {"step": 1}),
    "descent": lambda path: Checkpoint(path, "run").write({"step": np.array(1)}),
}
CHECKS = {
    "file": require_writable_file,
    "training": lambda path: fit(
        ViT(ViTConfig(image_size=8, channels=1, patch=4, embedding=4, depth=1, heads=1, head_width=4, mlp_width=4)),
        load("digits").subset(10),
        TrainConfig(epochs=1, warmup_epochs=0, batch=10),
        checkpoint=path,
    ),
    "descent": lambda path: Checkpoint(path, "run").read(),
}


@pytest.mark.parametrize("act", [*WRITERS.values(), *CHECKS.values()], ids=[*WRITERS, *(f"check {c}" for c in CHECKS)])
@pytest.mark.parametrize("kind", WORDS)
def test_only_regular_files_are_replaced(kind, act, linked, tmp_path):
    make(kind, tmp_path / "out")
    path = linked(tmp_path / "out")
    before = states(tmp_path)
    with pytest.raises(StorageError, match=f"{path.name} must be a file or a new one; got {WORDS[kind]}"):
        act(path)
    assert states(tmp_path) == before


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("exists", [True, False])
def test_links_are_followed_each_time(exists, write, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "out", tmp_path / "link"
    if exists:
        target.write_bytes(b"old")
    link.symlink_to(Path("elsewhere") / "out")
    for _ in range(2):
        write(link)
        assert link.is_symlink()
        assert target.is_file()
        assert target.read_bytes() != b"old"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["elsewhere", "link", "out"]


def test_a_file_that_becomes_a_pipe_during_the_work_is_left_alone(tmp_path):
    def write():
        with atomic_writer(tmp_path / "out") as file:
            file.write(b"new")
            os.mkfifo(tmp_path / "out")

    with pytest.raises(StorageError, match="got a pipe"):
        write()
    assert [path.is_fifo() for path in tmp_path.iterdir()] == [True]


def test_a_name_of_any_length_that_the_system_allows_is_written(tmp_path):
    for name in ("a" * 255, "☃" * 85):
        write_atomically(tmp_path / name, b"new")
        assert (tmp_path / name).read_bytes() == b"new"


@pytest.mark.parametrize("require", [require_writable_file, require_writable_folder])
def test_a_check_leaves_nothing(require, tmp_path):
    require(tmp_path / "a" / "b" / "c")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("words")
    for path in (tmp_path / "file" / "below", tmp_path / ("a" * 300) / "below"):
        with pytest.raises(StorageError, match=r"Cannot write .*: (Not a directory|File name too long)\. Give another"):
            require(path)
    with pytest.raises(StorageError, match="Not a directory"):
        require_writable_folder(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_dangling_link_leads_to_a_new_folder(tmp_path):
    (tmp_path / "out").symlink_to("new")
    (tmp_path / "link").symlink_to("new/deep/file")
    for path in (tmp_path / "link", tmp_path / "out" / "deep" / "file"):
        store.write_bytes(bytes(path), path)
        assert (tmp_path / "new" / "deep" / "file").read_bytes() == bytes(path)
    assert output_file(tmp_path / "out" / "file") == tmp_path / "new" / "file"


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_folder_without_new_files_is_an_error_at_once(write):
    with pytest.raises((InputError, FileNotFoundError), match="No such file"):
        write(Path("/proc/out"))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Return a folder with inputs of all commands."""
    import tiny

    folder = tmp_path_factory.mktemp("inputs")
    tiny.save_pair(folder)
    rng = np.random.default_rng(1)
    tokens = {"X": rng.normal(size=(2, 3, 6)), "z": rng.normal(size=(2, 6)), "y": [1.0, -1.0], "v": rng.normal(size=6)}
    np.savez(folder / "tokens.npz", **tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saddlescope.reproduction.entry.find_entry", tiny.find_entry)
        reproduce(tiny.ENTRY, out=folder / "runs")
    return folder


@pytest.fixture
def call(call, inputs, tmp_path):
    """Run the command line in a folder of inputs."""
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    return call


LINES = {
    "attention": "attention tokens.npz --out out",
    "attention's page": "attention tokens.npz --site out",
    "spectra": "spectra base.pt tuned.pt --heads 2 --out out",
    "spectra's page": "spectra base.pt tuned.pt --heads 2 --out s.nc --site out",
    "extract-lora": "extract-lora base.pt tuned.pt --rank 2 --no-logits --out out",
    "gallery": "gallery runs --site out",
    "run": "run tiny/staircase --out out",
    "sweep": "sweep tiny/staircase --seeds 0:2 --processes 1 --out out",
    "data": "data get mnist --data out",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
@pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
def test_every_command_refuses_before_any_work(kind, line, call, tmp_path, monkeypatch):
    def worked(*_, **__):
        raise AssertionError("work was done before the output was checked")

    monkeypatch.setattr("saddlescope.studies.implicit_bias", worked)
    monkeypatch.setattr("saddlescope.ranks.checkpoints.checkpoint_spectra", worked)
    monkeypatch.setattr("saddlescope.ranks.lora.extract.open_model", worked)
    monkeypatch.setattr("saddlescope.gallery.site.Reproduction", worked)
    monkeypatch.setattr("saddlescope.reproduction.runner.stamped_run", worked)
    monkeypatch.setattr("saddlescope.sweeps.point.stamped_run", worked)
    monkeypatch.setattr("urllib.request.urlopen", worked)
    make(kind, tmp_path / "out")
    (tmp_path / "link").symlink_to("out")
    before = states(tmp_path)
    status, err = call(line.removesuffix("out") + "link")
    assert status == 2, err
    assert err.count("\n") == 0, err
    assert "link" in err
    assert states(tmp_path) == before


@pytest.mark.parametrize("command", ["attention", "spectra"])
def test_a_file_in_a_folder_that_cannot_be_made_is_refused_before_any_work(command, call, tmp_path):
    status, err = call(LINES[command].removesuffix("out") + "tokens.npz/out")
    assert (status, err.count("\n")) == (2, 0)
    assert err == "Cannot write tokens.npz/out: Not a directory. Give another path."


@pytest.mark.parametrize("command", ["gallery", "extract-lora"])
def test_the_root_is_not_replaced(command, call):
    status, err = call(LINES[command].removesuffix("out") + "/")
    assert (status, err) == (2, "/ is the root of the file system, which cannot be replaced. Name a new folder.")


@pytest.mark.parametrize("command", ["attention", "spectra"])
def test_a_file_of_another_kind_is_not_replaced(command, call, tmp_path):
    """`spectra base.pt tuned.pt --out base.pt` replaced the weights."""
    for name in ("base.pt", "tokens.npz"):
        content = (tmp_path / name).read_bytes()
        status, err = call(LINES[command].removesuffix("out") + name)
        assert (status, err) == (2, f"{name} has content of another kind, which is not replaced. Name a new file.")
        assert (tmp_path / name).read_bytes() == content
    (tmp_path / "empty").touch()
    require_writable_file(tmp_path / "empty", begins=NETCDF)


def test_a_result_that_is_a_pipe_is_neither_read_nor_replaced(call, tmp_path):
    place = tmp_path / "out" / "tiny" / "staircase"
    place.mkdir(parents=True)
    os.mkfifo(place / "default.nc")
    for again, wanted in (("", "a stored run"), (" --again", "a file or a new one")):
        status, err = call(LINES["run"] + again)
        assert status == 2
        assert err.startswith(f"out/tiny/staircase/default.nc must be {wanted}; got a pipe.")
    assert [path.is_fifo() for path in place.iterdir()] == [True]


def test_a_download_follows_links_and_never_replaces_a_pipe(tmp_path):
    from saddlescope.training.data import download as module

    (tmp_path / "real").mkdir()
    (tmp_path / "data").symlink_to("real")
    (tmp_path / "real" / "file").symlink_to("target")
    (tmp_path / "archive").write_bytes(b"content")
    with (tmp_path / "archive").open("rb") as member:
        module._write(member, tmp_path / "data" / "file")
    assert (tmp_path / "real" / "target").read_bytes() == b"content"
    os.mkfifo(tmp_path / "real" / "pipe")
    with (tmp_path / "archive").open("rb") as member, pytest.raises(InputError, match="got a pipe"):
        module._write(member, tmp_path / "data" / "pipe")
