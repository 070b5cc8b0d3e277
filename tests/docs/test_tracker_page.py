"""Examples of the pages on the tracker: each runs alone and prints what is shown."""

import warnings
from pathlib import Path

import pytest

import snippets

PAGES = ("docs/tracker.md", "docs/training-loops.md")


EXAMPLES = [one for page in PAGES for one in snippets.snippets(page)]


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Run the example that contains these words in an empty folder, and return its names."""
    monkeypatch.chdir(tmp_path)
    return lambda words: snippets.run(next(one for one in EXAMPLES if words in one.code), tmp_path)


def test_every_example_is_tested():
    words = (
        "tracker.stable_rank",
        "TrainingArguments",
        "SummaryWriter",
    )
    assert [sum(word in one.code for word in words) for one in EXAMPLES] == [1] * len(words)


def test_a_loop(example):
    made = example("tracker.stable_rank")
    assert made["tracker"].steps == (1, 2, 3, 4, 6, 9, 13, 19, 28)
    dataset = made["dataset"]
    assert dict(dataset.sizes) == {"step": 9, "layer": 3, "head": 4, "product": 2, "index": 32, "matrix": 6}
    assert dataset.measurable.all()
    assert made["overlap"].shape == (9, 9, 4)


def test_the_trainer(example):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        made = example("TrainingArguments")
    assert made["dataset"].step.values.tolist() == [2, 4, 6]
    assert made["newest"] == Path("run/checkpoint-6")


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")  # of what TensorBoard imports
def test_scalars(example):
    made = example("SummaryWriter")
    (events,) = Path("logs").iterdir()
    content = events.read_bytes()
    for name in ("stable_rank/KQ/layers-0-1/mean", "stable_rank/VO/layer-2/max", "stable_rank/matrices/c_fc/mean"):
        assert f"saddlescope/{name}".encode() in content
    assert made["tracker"].steps[-1] == 28
