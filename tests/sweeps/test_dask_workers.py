"""Tasks of a cluster's workers, and the handling of their results; test_sweep_kills.py runs the cluster itself."""

import logging
import sys
from dataclasses import replace
from importlib.metadata import version

import pytest
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError, MissingExtraError, StorageError
from saddlescope.sweeps import Grid, Point, State
from saddlescope.sweeps.dask_workers import _connected, _lack, _Remote, _take


@pytest.fixture
def point(walk, tmp_path):
    def make(kind="walk"):
        grid = Grid.parse(walk, [f"kind={kind}"], size="quick")
        return Point(tmp_path / "out", walk.name, grid.params[0], "quick", grid.at((0,)), grid.label((0,)))

    return make


@pytest.fixture
def token(tmp_path):
    file = tmp_path / "token"
    file.touch()
    return file


class Future:
    """Dask's answer for a point: a result, or an error."""

    def __init__(self, result):
        self._result = result

    def result(self):
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def remote(point, token, data=None):
    return _Remote(point, data, version("saddlescope"), token)


def test_a_worker_that_sees_the_folder_stores_the_point_there(point, token):
    made = point()
    assert remote(made, token)() is None
    assert made.state is State.FINISHED


def test_one_that_does_not_see_it_sends_the_same_run(point, token, tmp_path):
    made = point()
    content = remote(made, tmp_path / "absent")()
    assert isinstance(content, bytes)
    assert made.state is State.MISSING
    assert _take(made, Future(content)) == ""
    assert made.state is State.FINISHED
    seen = replace(made, out=tmp_path / "seen")
    remote(seen, token)()
    xr.testing.assert_equal(store.read(made.file), store.read(seen.file))


def test_a_point_that_fails_far_away_fails_here(point, token, tmp_path):
    made = point("fails")
    reported = remote(made, tmp_path / "absent")()
    assert reported == "ZeroDivisionError: a defect"
    assert _take(made, Future(reported)) == ""
    assert (made.state, made.error) == (State.FAILED, "ZeroDivisionError: a defect")


def test_a_worker_of_another_version_or_without_the_data_makes_nothing(point, token, tmp_path, begun):
    with pytest.raises(InputError, match=r"the client has 0\.0\.1: install the same"):
        _Remote(point(), None, "0.0.1", token)()
    with pytest.raises(InputError, match="does not see the folder of data"):
        remote(point(), token, tmp_path / "nowhere")()
    assert begun() == []
    assert point().state is State.MISSING
    assert _lack(RuntimeError("odd")) == "A worker cannot be used: RuntimeError: odd."


def test_what_goes_wrong_on_the_way_is_reported_in_a_sentence(point):
    from distributed import CancelledError, KilledWorker

    made = point()
    for error in (CancelledError("x"), TimeoutError(), OSError("broken")):
        with pytest.raises(InputError, match="The scheduler ended, or no longer answers"):
            _take(made, Future(error))
    with pytest.raises(InputError, match="one lacks saddlescope"):
        _take(made, Future(ModuleNotFoundError("No module named 'saddlescope'", name="saddlescope")))
    with pytest.raises(StorageError, match="no space"):
        _take(made, Future(StorageError("no space")))
    assert _take(made, Future(RuntimeError("odd\nthing"))) == "A worker could not run it: RuntimeError: odd"
    assert made.state is State.MISSING
    assert _take(made, Future(KilledWorker("x", None, 3))) == ""
    assert "ended early, 4 times" in made.error


def test_without_dask_the_extra_is_named(swept, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"needs distributed: pip install 'saddlescope\[sweep\]'"):
        swept("dim=1,2", scheduler="tcp://127.0.0.1:1")


def test_two_clients_at_once_leave_the_log_of_dask_as_it_was(monkeypatch):
    class Client:
        def __init__(self, *_, **__):
            self.close = self.__init__

    monkeypatch.setattr("distributed.Client", Client)
    logger = logging.getLogger("distributed.client")
    first, second = _connected("tcp://a"), _connected("tcp://b")
    first.__enter__()
    second.__enter__()
    assert not logger.filter(logging.makeLogRecord({}))
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert (logger.disabled, logger.filters) == (False, [])


def test_runs_are_written_at_a_worker_without_asking_the_scheduler(tmp_path):
    import dask.config

    with dask.config.set(scheduler="distributed-is-not-there"):
        file = store.write(xr.Dataset({"x": ("t", [1.0, 2.0])}), tmp_path / "run.nc")
    assert store.read(file).x.values.tolist() == [1.0, 2.0]
