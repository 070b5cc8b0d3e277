"""The tracker's file: equal to its records at every moment, of one run, and never the end of training."""

import warnings

import pytest
import torch
import xarray as xr

from refusals import refused
from saddlescope.ranks import Angles, Every, Increments, Orders, RankTracker
from saddlescope.store import read_log


def model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(16, 2, 16, batch_first=True), 2, enable_nested_tensor=False
    )


def train(net, optimizer, steps):
    for k in range(steps):
        torch.manual_seed(k)
        net(torch.randn(4, 3, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


OPTIONS = {"schedule": Every(2), "matrices": "*.linear1.weight", "recorders": [Angles(2), Orders(), Increments()]}


def test_the_file_has_the_records_while_training_runs(tmp_path):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    tracker = RankTracker(net, file=tmp_path / "ranks.jsonl", **OPTIONS).watch(optimizer)
    for _ in range(3):
        train(net, optimizer, 2)
        xr.testing.assert_identical(read_log(tmp_path / "ranks.jsonl"), tracker.to_xarray())
    assert tracker.steps == (2, 4, 6)


def test_a_resumed_run_goes_on_in_its_file_from_its_checkpoint(tmp_path):
    file = tmp_path / "ranks.jsonl"
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    tracker = RankTracker(net, file=file, **OPTIONS).watch(optimizer)
    train(net, optimizer, 4)
    saved = tracker.state_dict()
    train(net, optimizer, 6)  # lost with the killed run
    again = model()
    resumed = RankTracker(again, file=file, **OPTIONS)
    resumed.load_state_dict(saved)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resumed.watch(torch.optim.SGD(again.parameters(), 0.1))
        for _ in range(2):
            resumed.step()
    assert read_log(file).step.values.tolist() == [2, 4, 6]
    xr.testing.assert_identical(read_log(file), resumed.to_xarray())
    assert [path.name for path in tmp_path.iterdir()] == ["ranks.jsonl"]


def test_a_file_of_another_run_is_kept(tmp_path):
    file = tmp_path / "ranks.jsonl"
    RankTracker(model(seed=1), file=file).measure()
    content = file.read_bytes()
    tracker = RankTracker(model(), file=file)
    with pytest.warns(UserWarning, match="was of another run; it is now .*ranks-1.jsonl"):
        tracker.measure()
    assert (tmp_path / "ranks-1.jsonl").read_bytes() == content
    xr.testing.assert_identical(read_log(file), tracker.to_xarray())


def test_a_file_that_cannot_be_written_ends_the_file_and_not_the_training(tmp_path):
    file = tmp_path / "ranks.jsonl"
    tracker = RankTracker(model(), schedule=Every(1), file=file)
    tracker.step()
    file.unlink()
    with pytest.warns(UserWarning, match="Cannot write .* The tracker goes on without the file"):
        tracker.step()
    tracker.step()  # without another warning
    assert tracker.steps == (1, 2, 3)
    assert not file.exists()


def test_a_path_that_is_no_file_of_records_is_refused_before_training(tmp_path):
    refused("got a folder", RankTracker, model(), file=tmp_path)
    (tmp_path / "notes.txt").write_bytes(b"my notes\n")
    refused("has content of another kind, which is not replaced", RankTracker, model(), file=tmp_path / "notes.txt")
