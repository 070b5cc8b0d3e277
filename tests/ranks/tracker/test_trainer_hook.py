"""Base of the callbacks: processes that track and log, and a second start."""

from functools import partial

import pytest
import torch
from torch import nn

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import Every, RankScalars, RankTracker
from saddlescope.ranks.tracker.trainer_hook import TrackerHook


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.MultiheadAttention(6, 2)


def hook(steps):
    """Return a hook that records the steps that it logs."""
    return TrackerHook(partial(RankTracker, schedule=Every(2)), scalars=RankScalars(lambda _, step: steps.append(step)))


def run(one, model, steps, *, first_process=True, state=None):
    one.start(model, first_process=first_process, state=state)
    for _ in range(steps):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
        one.step()


def test_other_processes_do_nothing_and_of_shards_they_measure(model, monkeypatch):
    logged = []
    one = hook(logged)
    run(one, model, 2, first_process=False)
    one.finish()
    assert one.tracker_state() is None
    with pytest.raises(InputError, match="in the first process"):
        _ = one.tracker
    monkeypatch.setattr("saddlescope.ranks.tracker.trainer_hook.is_sharded", lambda model: True)
    run(one, model, 2, first_process=False)
    assert one.tracker.steps == (2,)
    assert not logged


def test_what_was_logged_before_a_resumption_is_not_logged_again(model):
    logged = []
    one, again = hook(logged), hook(logged)
    run(one, model, 4)
    run(again, model, 1, state=one.tracker_state())
    again.finish()
    assert logged == [2, 4, 5]
    assert again.tracker.steps == (2, 4, 5)


def test_a_new_run_logs_from_its_own_start(model):
    logged = []
    one = hook(logged)
    with pytest.raises(InputError, match="after training has started"):
        _ = one.tracker
    for _ in range(2):
        run(one, model, 2)
        assert one.tracker.steps == (2,)
    assert logged == [2, 2]


def test_a_tracker_in_place_of_its_maker_is_reported(model, types_unchecked):
    sentence = r"make_tracker must be a function from the model to a tracker.*; got RankTracker\."
    with types_unchecked():
        refused(sentence, TrackerHook, RankTracker(model))
