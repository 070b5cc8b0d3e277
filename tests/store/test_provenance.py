import shlex
import time

import pytest
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError

RUN = xr.Dataset({"loss": ("t", [1.0, 0.5])}, attrs={"status": "converged"})


def provenance(**changes):
    given = {
        "entry": "paper/entry",
        "size": "quick",
        "settings": {"words": "a 'b' $c", "scales": "1e-1,1e-2"},
        "params": {"seed": 3, "scales": [1e-1, 1e-2], "words": "a 'b' $c"},
        "resumed": True,
    }
    return store.Provenance(**(given | store.stopwatch()() | changes))


def test_it_survives_the_disk(tmp_path):
    reported = provenance()
    stored = store.read(store.write(reported.stamp(RUN), tmp_path / "run.nc"))
    assert store.Provenance.of(stored) == reported
    assert stored.attrs["status"] == "converged"
    assert stored.attrs["command"] == reported.command
    assert stored.attrs["seed"] == "3"


def test_the_command_is_one_that_a_shell_reads_back():
    words = shlex.split(provenance().command)
    assert words == [
        *("saddlescope", "run", "paper/entry", "--size", "quick"),
        *("--set", "words=a 'b' $c", "--set", "scales=1e-1,1e-2"),
    ]
    assert provenance(size="default", settings={}).command == "saddlescope run paper/entry"


def test_a_run_must_not_hide_its_provenance():
    with pytest.raises(ValueError, match="params"):
        provenance().stamp(RUN.assign_attrs(params="mine"))


@pytest.mark.parametrize("damage", [{"versions": "{"}, {"params": 3}, {"cpu_seconds": "long"}])
def test_an_incomplete_provenance_is_reported(damage):
    stamped = provenance().stamp(RUN)
    with pytest.raises(InputError, match="no complete provenance"):
        store.Provenance.of(stamped.assign_attrs(damage))
    del stamped.attrs["commit"]
    with pytest.raises(InputError, match="commit"):
        store.Provenance.of(stamped)


def test_the_stopwatch_counts_cpu_time_and_names_versions():
    stop = store.stopwatch()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    reported = stop()
    assert reported["cpu_seconds"] >= 0.2
    assert reported["started"] <= reported["finished"]
    assert {"python", "saddlescope", "numpy", "jax", "xarray"} <= set(reported["versions"])
    assert reported["platform"]


def test_the_commit_is_that_of_our_own_checkout(monkeypatch, tmp_path):
    from saddlescope.store import provenance as module

    monkeypatch.setattr(module, "__file__", str(tmp_path / "provenance.py"))
    assert store.stopwatch()()["commit"] == ""
