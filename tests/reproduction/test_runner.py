import errno
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.reproduction import Outcome, Reproduction, reproduce


@pytest.fixture
def heard():
    return []


@pytest.fixture
def run(tiny, tmp_path, heard):
    """Reproduce the tiny entry below tmp_path/out."""
    return lambda **options: reproduce(tiny, out=tmp_path / "out", say=heard.append, **options)


def test_a_run_is_stored_with_verdicts_and_provenance(run, tmp_path, tiny):
    made = run(size="quick")
    assert made.file == tmp_path / "out" / "tiny" / "staircase" / "quick.nc"
    assert [v.outcome for v in made.verdicts] == [Outcome.SEEN, Outcome.FAILS, Outcome.UNDECIDED]
    stored = store.read(made.file)
    assert json.loads(stored.attrs["verdicts"]) == made.records()
    assert stored.attrs["command"] == "saddlescope run tiny/staircase --size quick"
    assert Reproduction.open(made.file).verdicts == made.verdicts
    assert [p.name for p in made.file.parent.iterdir()] == ["quick.nc"]


def test_progress_ends_with_the_run(run):
    reports: list[tuple[float, str]] = []
    run(size="quick", report=lambda *news: reports.append(news))
    assert reports[-1] == (1.0, "done")


def test_a_stored_run_is_judged_again_and_not_run_again(run, heard, monkeypatch):
    first = run()
    monkeypatch.setenv("TINY_FAILS", "1")
    again = run()
    assert again.verdicts == first.verdicts
    assert "is stored already" in heard[-1]
    with pytest.raises(RuntimeError, match="a defect"):
        run(again=True)
    xr.testing.assert_identical(store.read(first.file).loss, first.run.loss)


def test_settings_have_a_place_of_their_own(run):
    default, seeded = run(), run(settings={"seed": "1"})
    assert default.file != seeded.file
    assert seeded.provenance.label == "default seed=1"
    assert not np.allclose(default.run.loss, seeded.run.loss)
    assert run(settings={"seed": "0"}).file == default.file  # the default's own value is the default
    assert {reported["size"] for reported in seeded.records()} == {"default seed=1"}


@pytest.mark.parametrize("seed", [7, np.int64(7), "7", np.array(7)])
@pytest.mark.parametrize("scales", [(0.1, 1e-3), [0.1, 1e-3], np.array([0.1, 1e-3]), "0.1,1e-3"])
def test_settings_are_values_of_any_kind(tiny, seed, scales):
    params = tiny.configure(settings={"seed": seed, "scales": scales})
    assert (params.seed, params.scales) == (7, (0.1, 1e-3))


def test_settings_are_stored_as_text_and_an_entry_is_given_by_its_name(run, tmp_path, monkeypatch, tiny):
    assert run(settings={"seed": 7}).file == run(settings={"seed": "7"}).file
    assert run(settings={"seed": 7}).provenance.settings == {"seed": "7"}
    monkeypatch.chdir(tmp_path)
    assert reproduce("tiny/staircase", size="quick").file == Path("results/tiny/staircase/quick.nc")
    for wrong in (None, True, 1.5, [1, 2], {"a": 1}, b"7", object()):
        with pytest.raises(InputError, match="seed must be an integer"):
            run(settings={"seed": wrong})


def test_a_size_whose_parameters_changed_is_run_anew(run, heard, tiny):
    made = run()
    older = made.provenance.params | {"stages": 3}
    store.write(made.run.assign_attrs(params=json.dumps(older)), made.file)
    assert run().provenance.params["stages"] == 4
    assert "other parameters" in heard[-1]


def test_an_interrupted_run_goes_on_where_it_was(run, heard, tmp_path, tiny):
    class Stop(BaseException):
        pass

    def stop(fraction, note):
        if fraction >= 0.5:
            raise Stop

    with pytest.raises(Stop):
        run(report=stop)
    assert not store.find_runs(tmp_path / "out")
    fractions = []
    made = run(report=lambda fraction, note: fractions.append(fraction))
    assert fractions[0] == 0.5  # the first half is not run again
    assert "Resuming the interrupted run" in heard[-1]
    assert made.provenance.resumed
    xr.testing.assert_identical(made.run.loss, reproduce(tiny, out=tmp_path / "other").run.loss)
    assert [p.name for p in made.file.parent.iterdir()] == ["default.nc"]


def test_a_full_disk_in_the_middle_is_reported_and_loses_nothing(run, tmp_path, monkeypatch):
    def full(fraction, note):
        if fraction >= 0.5:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match=r"No space left on device\. Free some space, then rerun the same command"):
        run(report=full)
    assert list((tmp_path / "out").rglob("done.json"))


def test_what_is_wrong_with_the_input_is_reported_before_any_folder_is_made(run, tmp_path):
    for options in ({"size": "quik"}, {"settings": {"sed": "1"}}, {"settings": {"stages": "0"}}):
        with pytest.raises(InputError):
            run(**options)
    assert not (tmp_path / "out").exists()


def test_a_run_of_another_version_is_named(run, tmp_path):
    made = run()
    path = store.write(
        made.run.drop_vars("loss").assign_attrs(versions='{"saddlescope": "0.0.9"}'), tmp_path / "old.nc"
    )
    with pytest.raises(
        InputError, match=r"old\.nc lacks 'loss', which the claims of tiny/staircase need: saddlescope 0\.0\.9"
    ):
        _ = Reproduction.open(path).verdicts


def test_bounds_that_were_moved_after_the_run_are_seen(run):
    made = run()
    assert Reproduction.open(made.file).changed_claims() == ()
    reported = made.records()
    reported[0]["high"] = 0.4
    store.write(made.run.assign_attrs(verdicts=json.dumps(reported)), made.file)
    assert Reproduction.open(made.file).changed_claims() == ("falls",)
