import shlex
import subprocess
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


def test_a_checkout_of_another_user_keeps_its_commit_and_runs_nothing(monkeypatch, tmp_path):
    from saddlescope.store import provenance as module

    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", "-C", str(tmp_path / "clone"), *identity, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    source = tmp_path / "clone" / "src" / "saddlescope" / "store" / "provenance.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "source")
    commit = git("rev-parse", "HEAD")
    ran = tmp_path / "ran"
    for setting in ("core.fsmonitor", "filter.spy.clean", "core.sshCommand", "core.pager", "diff.external"):
        git("config", setting, f"touch '{ran}'; false")
    (tmp_path / "clone" / ".git" / "info" / "attributes").write_text("* filter=spy\n")
    source.write_text("x = 2\n")

    monkeypatch.setattr(module, "__file__", str(source))
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # how git tests its refusal
    assert store.stopwatch()()["commit"] == f"{commit}-unchecked"
    assert not ran.exists()

    monkeypatch.delenv("GIT_TEST_ASSUME_DIFFERENT_OWNER")
    module._commit_of.cache_clear()
    assert store.stopwatch()()["commit"] == f"{commit}-dirty"
    assert ran.exists()  # in one's own checkout git does run them
