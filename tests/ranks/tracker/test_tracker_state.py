"""State of a tracker: versions, and sentences about states of other trackers."""

import re
from dataclasses import replace

import numpy as np
import pytest
from attention_standins import GPT2Attention
from small_vit import SMALL, step_at_random

from saddlescope._shared.errors import InputError
from saddlescope.ranks import Every, Increments, RankTracker, Values
from saddlescope.ranks.state_files import read_state, write_state
from saddlescope.training import Adam, TrainConfig, ViT, fit, load


def recorded(model=None, **options):
    model = ViT(SMALL) if model is None else model
    tracker = RankTracker(model, schedule=Every(1), **options)
    step_at_random(model)
    tracker.step()
    return tracker


def test_a_complete_state_without_a_version_is_restored():
    """As the versions wrote it that had no number: without the version, and without later fields."""
    whole = recorded()
    state = whole.state_dict()
    del state["version"]
    resumed = RankTracker(ViT(SMALL), schedule=Every(1))
    resumed.load_state_dict(state)
    np.testing.assert_array_equal(resumed.records.update, whole.records.update)


@pytest.mark.parametrize("absent", ["increments", "digest", "heads"])
def test_a_state_of_an_earlier_version_is_named_and_the_cure_given(absent):
    state = recorded().state_dict()
    del state["version"], state[absent]
    expected = (
        f"state must be of version 2; got one that an earlier version of saddlescope saved, without {absent}. Resume "
        "with the version that saved it, or train from the start without this state."
    )
    with pytest.raises(InputError, match=f"^{re.escape(expected)}$"):
        RankTracker(ViT(SMALL)).load_state_dict(state)


def test_a_state_of_a_later_version_is_named():
    state = recorded().state_dict() | {"version": 3}
    with pytest.raises(InputError, match="got version 3, which a later version of saddlescope saved"):
        RankTracker(ViT(SMALL)).load_state_dict(state)


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (lambda: RankTracker(GPT2Attention(8, 2)), "got one with blocks.0.attention and 1 more and without the model"),
        (lambda: RankTracker(ViT(SMALL), matrices="*.expand"), "got one without blocks.0.expand.weight and 1 more"),
        (lambda: RankTracker(ViT(SMALL), recorders=[Values(2)]), "values, angles or orders of the attention heads"),
        (lambda: RankTracker(ViT(SMALL), recorders=[Increments()]), "with Increments among its recorders"),
    ],
)  # fmt: skip
def test_a_state_of_another_tracker_is_said_to_differ_in_what_it_differs(other, match):
    state = recorded().state_dict()
    with pytest.raises(InputError, match=re.escape(match)):
        other().load_state_dict(state)


def test_a_run_whose_kept_progress_is_of_an_earlier_version_says_how_to_start_afresh(tmp_path):
    path = tmp_path / "run"
    sizes = replace(SMALL, classes=10)
    config = TrainConfig(optimizer=Adam(learning_rate=3e-3), epochs=1, warmup_epochs=0, batch=50)
    digits = load("digits").subset(100, 50)

    def call():
        model = ViT(sizes)
        return fit(model, digits, config, checkpoint=path, tracker=RankTracker(model, schedule=Every(1)))

    call()
    state = read_state(path)
    assert state is not None
    del state["tracker"]["version"], state["tracker"]["increments"]
    write_state(path, state)
    with pytest.raises(InputError, match=r"the progress that another version kept of this run\. Delete this file to"):
        call()
    path.unlink()
    call()
