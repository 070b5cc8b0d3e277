import errno
import io
import os
import pickle

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.store import netcdf


@pytest.fixture
def run():
    rng = np.random.default_rng(0)
    return xr.Dataset(
        {
            "loss": (("scale", "t"), rng.normal(size=(2, 50)), {"units": "seconds", "long_name": "loss α"}),
            "rank": ("t", np.arange(50, dtype=np.int32)),
            "single": ("t", rng.normal(size=50).astype(np.float32)),
            "known": ("t", rng.random(50) > 0.5),
            "gap": ("t", np.where(np.arange(50) % 7 == 0, np.nan, np.inf)),
            "when": ("t", np.arange(50.0), {"units": "days since 2000-01-01"}),
            "name": ("scale", ["α = 0.01", "α = 1e-8"]),
            "nothing": ("empty", np.zeros(0)),
            "number": ((), 3.5),
        },
        coords={"t": np.linspace(0, 1, 50), "scale": [1e-2, 1e-300]},
        attrs={"status": "converged", "steps": 12, "level": 0.01, "centres": np.array([1.0, 2.5]), "words": ["a", "b"]},
    )


def leftovers(folder):
    return [file.name for file in folder.iterdir() if file.suffix != ".nc"]


def test_a_run_comes_back_as_it_was(run, tmp_path):
    path = store.write(run, tmp_path / "deep" / "run.nc")
    xr.testing.assert_identical(store.read(path), run)
    assert not leftovers(path.parent)


def test_others_can_read_it(run, tmp_path):
    with h5py.File(store.write(run, tmp_path / "run.nc")) as file:
        loss = file["loss"]
        assert isinstance(loss, h5py.Dataset)
        np.testing.assert_array_equal(loss[:], run.loss)
    assert oct((tmp_path / "run.nc").stat().st_mode & 0o444) == oct(0o444)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(run, tmp_path, monkeypatch, step):
    path = store.write(run, tmp_path / "run.nc")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(InputError, match=r"Cannot write .*run\.nc: No space left on device"):
        store.write(run.assign(loss=run.loss * 2), path)
    monkeypatch.undo()
    xr.testing.assert_identical(store.read(path), run)
    assert not leftovers(tmp_path)


def test_a_full_disk_is_reported(run, tmp_path, disk_full):
    with disk_full(), pytest.raises(InputError, match=r"Cannot write .*run\.nc: File too large"):
        store.write(run, tmp_path / "run.nc")
    assert not any(tmp_path.iterdir())


def test_an_unwritable_folder_is_reported(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Cannot write"):
        store.write(run, tmp_path / "file" / "run.nc")


def test_absent_files_and_folders_are_reported(tmp_path):
    with pytest.raises(InputError, match="There is no stored run"):
        store.read(tmp_path / "run.nc")
    with pytest.raises(InputError, match=r"got a folder\. Pass a file, or move it elsewhere"):
        store.read(tmp_path)
    with pytest.raises(InputError, match="There is no folder"):
        store.find_runs(tmp_path / "absent")


def test_a_foreign_netcdf_file_is_refused(run, tmp_path):
    path = tmp_path / "foreign.nc"
    xr.Dataset({"a": ("t", [1.0])}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(InputError, match="no run of this version"):
        store.read(path)


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trapped",)


def test_a_pickle_is_refused_and_does_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.nc"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match="damaged"):
        store.read(path)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("kept", [0, 1, 100, 0.3, 0.9, -1])
def test_a_truncated_file_is_refused(run, tmp_path, kept):
    path = store.write(run, tmp_path / "run.nc")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if isinstance(kept, float) else kept])
    with pytest.raises(InputError, match=r"run\.nc is"):
        store.read(path)


def test_a_flipped_bit_is_refused(run, tmp_path):
    path = store.write(run, tmp_path / "run.nc")
    whole = path.read_bytes()
    for position in range(0, len(whole), 97):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1 << position % 8]) + whole[position + 1 :])
        with pytest.raises(InputError, match="damaged"):
            store.read(path)


def test_find_passes_by_what_is_not_a_finished_run(run, tmp_path):
    wanted = [store.write(run, tmp_path / name) for name in ("a/x/default.nc", "a/x/quick.nc", "b.nc")]
    store.write(run, tmp_path / "a" / "x" / "0123.partial" / "checkpoint.nc")
    store.write(run, tmp_path / "gallery" / "a" / "copy.nc")
    (tmp_path / "gallery" / store.COPIES).write_text("")
    (tmp_path / "a" / ".run.nc.part").write_text("")
    (tmp_path / "a" / ".hidden.nc").write_text("")
    (tmp_path / "a" / "notes.txt").write_text("")
    assert list(store.find_runs(tmp_path)) == sorted(wanted)


DATES = np.array(["2000-01-01"], "M8[ns]")


@pytest.mark.parametrize(
    "change",
    [
        lambda run: dict(run),
        lambda run: run.loss,
        lambda run: run.assign_attrs(scaled=True),
        lambda run: run.assign_attrs(one=[1.0]),
        lambda run: run.assign_attrs(nothing=None),
        lambda run: run.assign_attrs(large=2**80),
        lambda run: run.stack(z=("scale", "t")),
        lambda run: run.assign(date=("day", DATES)),
        lambda run: run.assign_coords(day=("day", DATES)),
        lambda run: run.assign(long=("day", DATES - DATES)),
        lambda run: run.assign(mixed=("day", np.array(["a", None], object))),
        lambda run: run.assign(imaginary=("day", [1j])),
        lambda run: run.assign(loss=run.loss.assign_attrs(scale_factor=2.0)),
        lambda run: run.assign(loss=run.loss.assign_attrs(scale_factor="x")),
        lambda run: run.assign(loss=run.loss.assign_attrs(add_offset="x")),
        lambda run: run.assign(loss=run.loss.assign_attrs(_Encoding="x")),
        lambda run: run.assign(words=("word", pd.array(["a", None], "string"))),
        lambda run: run.assign(loss=run.loss.assign_attrs(add_offset=2.0)),
        lambda run: run.assign(rank=run["rank"].assign_attrs(_FillValue=3)),
        lambda run: run.assign(rank=run["rank"].assign_attrs(missing_value=3)),
        lambda run: run.assign(rank=run["rank"].astype(np.int8).assign_attrs(_Unsigned="true")),
        lambda run: run.assign(rank=run["rank"].assign_attrs(dtype="bool")),
        lambda run: run.assign(loss=run.loss.assign_attrs(coordinates="gap")),
    ],
)
def test_what_would_be_read_back_as_another_run_is_refused(run, tmp_path, change, types_unchecked):
    with types_unchecked(), pytest.raises(InputError, match="stored"):
        store.write(change(run), tmp_path / "run.nc")
    assert not any(tmp_path.iterdir())


def test_all_types_come_back(tmp_path):
    types = ("i1", "u1", "i2", "u8", "f2", ">f8", "?")
    run = xr.Dataset({one: ("x", np.array([0, 1], one)) for one in types})
    words = {"words": ("x", ["é", ""]), "blank": ("x", ["", ""]), "none": ("none", np.array([], object)), "word": "é"}
    run = run.assign(words).assign(zero=("x", [-0.0, np.nan]), string3=("characters", ["abc", "d"]))
    run = run.assign_attrs(integer=2**62, single=np.float32(0.1), words=["a", "b"], number=np.nan, text="")
    run["loss"] = xr.Variable("x", [0.1, 0.2], encoding={"dtype": "int16", "scale_factor": 0.1})
    found = store.read(store.write(run, tmp_path / "run.nc"))
    xr.testing.assert_identical(found, run)
    assert [found[one].dtype for one in types] == [np.dtype(one).newbyteorder("=") for one in types]


@pytest.fixture
def sealed(run, tmp_path):
    """Write the run as other programs may, changed by a function of the opened file, and seal it; return its path."""

    def write(change=lambda file: None):
        content = io.BytesIO()
        run.to_netcdf(content, engine="h5netcdf")
        with h5py.File(content, "r+") as file:
            change(file)
        return store.write_bytes(content.getvalue() + netcdf._seal(content.getvalue()), tmp_path / "run.nc")

    return write


def test_text_of_variable_length_of_earlier_versions_is_read(run, sealed):
    xr.testing.assert_identical(store.read(sealed()), run)


def test_numbers_of_variable_length_in_an_attribute_are_refused(sealed):
    lists = np.empty(1, object)
    lists[0] = np.arange(3.0)
    path = sealed(lambda file: file.attrs.create("lists", lists, dtype=h5py.vlen_dtype(float)))
    with pytest.raises(InputError, match="attributes of numbers and text; got others"):
        store.read(path)
