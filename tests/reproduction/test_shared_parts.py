"""Parts that runs share: made once, by the first run that needs them, and read by the others."""

import threading
from pathlib import Path

import pytest
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.reproduction import RunContext, find_entry, reproduce

PARAMS = {"seed": 1, "depth": 2}


class Maker:
    """Makes a part and counts how often; it can be told to fail after its checkpoint."""

    def __init__(self, value=1.0, fails=False):
        self.value, self.fails, self.made = value, fails, 0

    def __call__(self, context):
        checkpoint = context.scratch / "checkpoint"
        start = float(checkpoint.read_text()) if checkpoint.exists() else 0.0
        checkpoint.write_text(str(self.value))
        if self.fails:
            raise KeyboardInterrupt
        self.made += 1
        return xr.Dataset({"value": self.value, "start": start})


def _context(tmp_path, name, **others):
    scratch = tmp_path / name
    scratch.mkdir(exist_ok=True)
    return RunContext(scratch, shared=tmp_path / "parts", **others)


def test_a_second_run_reads_what_the_first_has_made(tmp_path):
    first, second = Maker(1.0), Maker(2.0)
    made = _context(tmp_path, "one").shared_part("walks", PARAMS, first)
    read = _context(tmp_path, "two").shared_part("walks", PARAMS, second)
    xr.testing.assert_identical(made, read)
    assert (first.made, second.made) == (1, 0)
    assert _context(tmp_path, "two").shared_part("walks", PARAMS | {"seed": 2}, second).value == 2


def test_a_part_of_another_version_is_made_again(tmp_path, monkeypatch):
    makers = Maker(1.0), Maker(2.0)
    for version, maker in zip(("1.0", "1.1"), makers, strict=True):
        monkeypatch.setattr("importlib.metadata.version", lambda name, version=version: version)
        assert _context(tmp_path, version).shared_part("walks", PARAMS, maker).value == maker.value


def test_shared_parts_are_no_runs_and_leave_no_scratch(tmp_path):
    _context(tmp_path, "one").shared_part("walks", PARAMS, Maker())
    assert store.find_runs(tmp_path) == ()
    (file,) = (tmp_path / "parts" / "walks").iterdir()
    assert file.suffix == ".nc"


def test_without_a_shared_folder_the_part_is_the_run_s_own(tmp_path):
    maker = Maker()
    for _ in range(2):
        RunContext(tmp_path).shared_part("walks", PARAMS, maker)
    assert maker.made == 1


def test_a_part_is_the_same_whichever_cell_needs_it(tmp_path):
    def cell(scale: float, step: RunContext) -> xr.Dataset:
        return step.shared_part(
            "walks", PARAMS | {"scale": scale}, lambda own: xr.Dataset({"of": own.inside + str(own.cell)})
        )

    assert _context(tmp_path, "one").over({"scale": (1.0, 2.0)}, cell)["of"].values.tolist() == ["0", "0"]


def test_again_makes_a_part_once_more_and_only_once(tmp_path):
    _context(tmp_path, "one").shared_part("walks", PARAMS, Maker(1.0))
    maker = Maker(2.0)
    for _ in range(2):  # the second time is the same run, resumed
        part = _context(tmp_path, "two", again=True).shared_part("walks", PARAMS, maker)
    assert (float(part.value), maker.made) == (2.0, 1)


def test_another_run_goes_on_where_a_killed_one_stopped(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        _context(tmp_path, "one").shared_part("walks", PARAMS, Maker(3.0, fails=True))
    assert _context(tmp_path, "two").shared_part("walks", PARAMS, Maker(4.0)).start == 3


def test_of_two_runs_at_once_one_makes_the_part_and_the_other_waits(tmp_path):
    begun, go_on, notes = threading.Event(), threading.Event(), []

    def slow(context):
        begun.set()
        assert go_on.wait(60)
        return xr.Dataset({"value": 1.0})

    def wait(fraction, note):
        notes.append(note)
        go_on.set()

    maker = threading.Thread(target=_context(tmp_path, "one").shared_part, args=("walks", PARAMS, slow))
    maker.start()
    assert begun.wait(60)
    never = Maker(2.0)
    part = _context(tmp_path, "two", report=wait).shared_part("walks", PARAMS, never)
    maker.join()
    assert (float(part.value), never.made) == (1.0, 0)
    assert set(notes) == {"waiting for another run that makes the same part"}


def test_a_damaged_part_is_named(tmp_path):
    _context(tmp_path, "one").shared_part("walks", PARAMS, Maker())
    (file,) = (tmp_path / "parts" / "walks").iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match=file.name):
        _context(tmp_path, "two").shared_part("walks", PARAMS, Maker())


def test_two_figures_of_one_training_train_once(tmp_path, types_unchecked, quick_run):
    with types_unchecked():
        for name in ("gradual-rank/figure-1", "gradual-rank/figure-4"):
            made = reproduce(find_entry(name), out=tmp_path, size="quick")
            xr.testing.assert_identical(made.run.drop_attrs(), quick_run(name).run.drop_attrs())
    assert len(list(Path(tmp_path, "parts").rglob("*.nc"))) == 2  # one for each seed
    assert len(store.find_runs(tmp_path)) == 2


def test_a_run_again_forgets_the_cells_of_an_interrupted_one_but_not_its_own(tmp_path):
    folder = store.RunFolder(tmp_path, "tiny/parts", PARAMS)
    with folder.lock() as scratch:
        (scratch / "seed=1.nc").touch()
    left = []
    for _ in range(2):
        with folder.lock() as scratch:
            folder.restart()
            left.append([path.name for path in scratch.glob("[!.]*")])
            (scratch / "seed=2.nc").touch()
    assert left == [[], ["seed=2.nc"]]
