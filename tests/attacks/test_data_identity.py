"""Data sets belong to the identity of a run: other data are another run, and nothing is substituted unasked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from saddlescope import cli, store
from saddlescope._shared.errors import InputError
from saddlescope.gallery.page_views import RunView
from saddlescope.papers.image_data import IMAGES, read_images
from saddlescope.reproduction import (
    Claims,
    Entry,
    EntryParams,
    Reproduction,
    RunContext,
    entry_names,
    find_entry,
    param,
    reproduce,
)
from saddlescope.store import Provenance
from saddlescope.sweeps import Grid, sweep


class Params(EntryParams):
    """Parameters of an entry that averages images."""

    dataset: str = param("mnist-small", "data set")
    seeds: tuple[int, ...] = param((0, 1), "parts of the run")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Average the images in one part for each seed."""
    images = context.read_data(params.dataset, read_images).train_images
    parts: list[xr.Dataset] = []
    for seed, step in context.steps(params.seeds):
        part = xr.Dataset({"mean": ((), float(images[seed].mean()))})
        parts.append(context.cached(f"seed-{seed}", lambda part=part: part))
        step.report(1.0, "done")
    return xr.concat(parts, dim="seed")


ENTRY = Entry(
    "attacks/means", "Means of images", params=Params, run=run, claims=Claims(), figures=lambda run: [], data=IMAGES
)


@pytest.fixture(autouse=True)
def _own_entry(monkeypatch):
    known = find_entry
    monkeypatch.setattr(
        "saddlescope.reproduction.entry.find_entry", lambda name: ENTRY if name == ENTRY.name else known(name)
    )


def write_images(folder: Path, seed: int) -> Path:
    """Write a data set of random images under the name mnist-small."""
    rng = np.random.default_rng(seed)
    x_train, x_test = rng.integers(0, 256, (2, 20, 4, 4), dtype=np.uint8)
    folder.mkdir(exist_ok=True)
    np.savez(
        folder / "mnist-small.npz",
        x_train=x_train,
        x_test=x_test,
        y_train=np.arange(20) % 10,
        y_test=np.arange(20) % 10,
    )
    return folder


@pytest.fixture
def two(tmp_path):
    """Two folders with different data sets of one name."""
    return write_images(tmp_path / "one", 1), write_images(tmp_path / "other", 2)


def _reproduce(tmp_path, data, settings=None, **how):
    said: list[str] = []
    done = reproduce(ENTRY, out=tmp_path / "out", settings=settings, data=data, say=said.append, **how)
    return done, said


def test_a_run_set_by_hand_on_other_data_is_another_run(two, tmp_path):
    first, _ = _reproduce(tmp_path, two[0], {"seeds": "0"})
    second, _ = _reproduce(tmp_path, two[1], {"seeds": "0"})
    again, said = _reproduce(tmp_path, two[0], {"seeds": "0"})
    assert first.provenance.params == second.provenance.params
    assert first.provenance.data_sets.keys() == second.provenance.data_sets.keys() == {"mnist-small"}
    assert first.provenance.data_sets != second.provenance.data_sets
    assert not np.array_equal(first.run["mean"], second.run["mean"])
    assert first.file != second.file
    assert again.run.equals(first.run)
    assert "is stored already" in said[0]
    assert RunView(first).page != RunView(second).page


def test_a_stored_size_on_other_data_is_run_again(two, tmp_path):
    first, _ = _reproduce(tmp_path, two[0])
    second, said = _reproduce(tmp_path, two[1])
    _, unsaid = _reproduce(tmp_path, two[1])
    assert first.file == second.file
    assert not np.array_equal(first.run["mean"], second.run["mean"])
    assert first.provenance.data_sets["mnist-small"][:12] in said[0]
    assert said[0].endswith("rerunning.")
    assert "is stored already" in unsaid[0]


def test_a_killed_run_is_resumed_on_its_own_data_alone(two, tmp_path):
    def killed(fraction, note):
        if fraction > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _reproduce(tmp_path, two[0], report=killed)
    other, said = _reproduce(tmp_path, two[1])
    assert not said
    resumed, said = _reproduce(tmp_path, two[0])
    assert said[-1].startswith("Resuming")
    for found, data in ((resumed, two[0]), (other, two[1])):
        clean = reproduce(ENTRY, out=tmp_path / f"clean-{data.name}", data=data)
        assert found.run.equals(clean.run)
    assert not np.array_equal(resumed.run["mean"], other.run["mean"])


def test_data_that_change_during_a_run_are_refused(two, tmp_path):
    begun = IMAGES.checksums(ENTRY.configure(), two[0])
    context = RunContext(tmp_path, data=two[1], data_sets=begun)
    with pytest.raises(InputError, match="must not change during a run"):
        context.read_data("mnist-small", read_images)
    assert replace(context, data=two[0]).read_data("mnist-small", read_images).digest() == begun["mnist-small"]


@pytest.mark.parametrize("name", ["figure-1", "figure-4", "conjecture-3", "conjecture-4"])
def test_absent_data_are_refused_before_any_work(name, tmp_path):
    with pytest.raises(InputError, match="needs the folder of its official files"):
        reproduce(find_entry(f"deep-relu/{name}"), out=tmp_path, settings={"dataset": "mnist"})
    assert not list(tmp_path.iterdir())


def test_every_entry_with_a_data_parameter_declares_its_data():
    for name in entry_names():
        entry = find_entry(name)
        named = {"dataset", "text", "task"} & entry.parameters.keys()
        assert named <= set(entry.data.parameters if entry.data else ()), name


def test_the_data_are_stored_and_shown(two, tmp_path, capsys):
    cli.main(["run", ENTRY.name, "--out", str(tmp_path / "out"), "--data", str(two[0])])
    checksum = IMAGES.checksums(ENTRY.configure(), two[0])["mnist-small"]
    (file,) = store.find_runs(tmp_path / "out")
    assert Provenance.of(store.read(file)).data_sets == {"mnist-small": checksum}
    assert f"Data: mnist-small (SHA-256 {checksum[:12]}...)" in capsys.readouterr().out
    assert ("Data", f"mnist-small (SHA-256 {checksum[:12]}...)") in RunView(Reproduction.open(file)).origin


def test_runs_of_earlier_versions_stay_readable(two, tmp_path):
    stored, _ = _reproduce(tmp_path, two[0])
    old = stored.run.copy()
    del old.attrs["data_sets"]
    store.write(old, stored.file)
    assert Reproduction.open(stored.file).provenance.data_sets == {}
    _, said = _reproduce(tmp_path, two[0])
    assert "was made from data without a checksum" in said[0]


def test_points_of_a_sweep_on_other_data_are_other_points(two, tmp_path):
    grid = Grid.parse(ENTRY, ["seeds=0,1"])
    first, second = (sweep(ENTRY, grid, out=tmp_path / "out", data=data, processes=1) for data in two)
    assert set(first.data.point.values).isdisjoint(second.data.point.values)
    assert not first.at(seeds=0).run.equals(second.at(seeds=0).run)
