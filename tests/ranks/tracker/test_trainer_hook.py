"""Base of the callbacks: processes that track and log, and a second start."""

from functools import partial

import pytest
import torch
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks import Every, RankScalars, RankTracker
from saddlescope.ranks.tracker.trainer_hook import TrackerHook


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.MultiheadAttention(6, 2)


def move(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)


def hook(steps):
    """Return a hook that records the steps that it logs."""
    return TrackerHook(partial(RankTracker, schedule=Every(2)), scalars=RankScalars(lambda _, step: steps.append(step)))


def test_other_processes_do_nothing(model):
    logged = []
    one = hook(logged)
    one.start(model, first_process=False, state=None)
    for _ in range(2):
        move(model)
        one.step()
    one.finish()
    assert one.tracker_state() is None
    assert not logged
    with pytest.raises(InputError, match="in the first process"):
        _ = one.tracker


def test_other_processes_measure_shards_but_do_not_log(model, monkeypatch):
    monkeypatch.setattr("saddlescope.ranks.tracker.trainer_hook.is_sharded", lambda model: True)
    logged = []
    one = hook(logged)
    one.start(model, first_process=False, state=None)
    for _ in range(2):
        move(model)
        one.step()
    assert one.tracker.steps == (2,)
    assert not logged


def test_what_was_logged_before_a_resumption_is_not_logged_again(model):
    logged = []
    one = hook(logged)
    one.start(model, first_process=True, state=None)
    for _ in range(4):
        move(model)
        one.step()
    state = one.tracker_state()
    assert logged == [2, 4]
    again = hook(logged)
    again.start(model, first_process=True, state=state)
    move(model)
    again.step()
    again.finish()
    assert logged == [2, 4, 5]
    assert again.tracker.steps == (2, 4, 5)


def test_a_new_run_logs_from_its_own_start(model):
    logged = []
    one = hook(logged)
    with pytest.raises(InputError, match="after training has started"):
        _ = one.tracker
    for _ in range(2):
        one.start(model, first_process=True, state=None)
        for _ in range(2):
            move(model)
            one.step()
        assert one.tracker.steps == (2,)
    assert logged == [2, 2]


def test_a_tracker_in_place_of_its_maker_is_reported(model, types_unchecked):
    with (
        types_unchecked(),
        pytest.raises(
            InputError, match=r"make_tracker must be a function from the model to a tracker.*; got RankTracker\."
        ),
    ):
        TrackerHook(RankTracker(model))
