"""State of a tracker: versions, and sentences about states of other trackers."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from attention_standins import GPT2Attention
from small_vit import SMALL, step_at_random
from torch import nn

from refusals import refused
from saddlescope.ranks import Angles, AtSteps, Every, Increments, OnDisk, Orders, RankTracker, Values, Vectors
from saddlescope.ranks.state_files import read_state, write_state
from saddlescope.training import Adam, TrainConfig, ViT, fit, load


def recorded(model=None, **options):
    model = ViT(SMALL) if model is None else model
    tracker = RankTracker(model, schedule=Every(1), **options)
    step_at_random(model)
    tracker.step()
    return tracker


class Experts(nn.Module):
    """Experts of a mixture: a parameter of three axes."""

    def __init__(self):
        super().__init__()
        self.experts = nn.Parameter(torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)))


EVERYTHING = [Vectors(2, AtSteps(2, 4)), Angles(1), Values(2), Increments(), Orders()]


@pytest.mark.parametrize(
    ("make", "options", "place"),
    [
        (ViT, {}, "state"),
        *((ViT, {"recorders": EVERYTHING, "matrices": "*.expand"}, place) for place in ("state", "folder", "disk")),
        (lambda _: Experts(), {"attention": False, "matrices": "experts", "recorders": [Increments()]}, "checkpoint"),
    ],
)
def test_a_resumed_tracker_goes_on_to_the_same_bits(make, options, place, tmp_path):
    """Initial weights are in the state, in a file of its folder, in that of `OnDisk`, or in a checkpoint."""
    model, kept = make(SMALL), tmp_path / "kept"
    torch.save(model.state_dict(), tmp_path / "start.pt")
    options = options | {"disk": {"reference": OnDisk(kept)}, "checkpoint": {"initial": tmp_path / "start.pt"}}.get(
        place, {}
    )
    folder = kept if place == "folder" else None
    whole = RankTracker(model, schedule=Every(1), **options)
    for seed in range(3):
        step_at_random(model, seed=seed)
        whole.step()
    torch.save(whole.state_dict(folder=folder), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert (state["weights"] == {}) == (place != "state")
    resumed = RankTracker(model, schedule=Every(1), **options)
    resumed.load_state_dict(state, folder=folder)
    assert resumed.steps == (1, 2, 3)
    step_at_random(model, seed=3)
    for tracker in (whole, resumed):
        tracker.step()
    assert resumed.to_xarray().identical(whole.to_xarray())
    assert (resumed.to_xarray().get("angles", np.ones(4))[3] > 0).all()
    if place in ("folder", "disk"):
        assert len(list(kept.iterdir())) == 1  # nothing is left of the weights at the resumption
    if isinstance(options.get("recorders", [None])[0], Vectors):
        ours, theirs = (one.singular_vectors(whole.layers[0], "KQ") for one in (whole, resumed))
        assert ours.steps.tolist() == theirs.steps.tolist() == [2, 4]
        np.testing.assert_array_equal(ours.left, theirs.left)


def test_a_complete_state_without_a_version_is_restored():
    """As the versions wrote it that had no number: without the version, and without later fields."""
    whole = recorded()
    state = whole.state_dict()
    del state["version"]
    resumed = RankTracker(ViT(SMALL), schedule=Every(1))
    resumed.load_state_dict(state)
    np.testing.assert_array_equal(resumed.records.products.update.values, whole.records.products.update.values)


@pytest.mark.parametrize("absent", ["increments", "digest", "heads"])
def test_a_state_of_an_earlier_version_is_named_and_the_cure_given(absent):
    state = recorded().state_dict()
    del state["version"], state[absent]
    expected = (
        f"state must be of version 2; got one that an earlier version of saddlescope saved, without {absent}. Resume "
        "with the version that saved it, or train from the start without this state."
    )
    refused(f"^{re.escape(expected)}$", RankTracker(ViT(SMALL)).load_state_dict, state)


def test_a_state_of_a_later_version_is_named():
    state = recorded().state_dict() | {"version": 3}
    refused("got version 3, which a later version of saddlescope saved", RankTracker(ViT(SMALL)).load_state_dict, state)


@pytest.mark.parametrize(
    "damage", [{"layers": None}, {"steps": [1]}, {"weights": None}, {"records": None}, {"made": "x"}]
)
def test_damaged_states_are_refused(damage):
    tracker = RankTracker(ViT(SMALL))
    tracker.measure()
    refused("got a damaged one", RankTracker(ViT(SMALL)).load_state_dict, tracker.state_dict() | damage)


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (lambda: RankTracker(GPT2Attention(8, 2)), "got one with blocks.0.attention and 1 more and without the model"),
        (lambda: RankTracker(ViT(SMALL), matrices="*.expand"), "got one without blocks.0.expand.weight and 1 more"),
        (lambda: RankTracker(ViT(SMALL), recorders=[Values(2)]), "values, angles or orders of the attention heads"),
        (lambda: RankTracker(ViT(SMALL), recorders=[Orders()]), "values, angles or orders of the attention heads"),
        (lambda: RankTracker(ViT(SMALL), recorders=[Increments()]), "with Increments among its recorders"),
    ],
)  # fmt: skip
def test_a_state_of_another_tracker_is_said_to_differ_in_what_it_differs(other, match):
    state = recorded().state_dict()
    refused(re.escape(match), other().load_state_dict, state)


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
    refused(r"another version, or another kind of run, has written\. Delete this file to", call)
    path.unlink()
    call()
