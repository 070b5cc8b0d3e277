"""The examples run, each in an empty folder, and find what their headings say."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def ran(tmp_path, monkeypatch, types_unchecked):
    """Run one example in an empty folder, and return its names."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        with types_unchecked():
            return runpy.run_path(str(EXAMPLES / f"{name}.py"))

    return run


@pytest.mark.slow  # the tutorial for theorists goes the same way
def test_own_network(ran):
    comparison = ran("own_network")["comparison"]
    assert comparison.exact_order_prefix == 3
    assert not comparison.missed
    assert not comparison.extra


def test_many_scales(ran):
    made = ran("many_scales")
    assert np.all(np.diff(made["distances"]) < 0), "a staircase appears"
    assert Path("many_scales.png").stat().st_size > 10_000


def test_which_norm(ran):
    verdicts = ran("which_norm")["answer"].verdicts
    assert verdicts["keys and queries"].norm == "nuclear"
    assert verdicts["W alone"].norm == "Frobenius"


def test_concepts_in_order(ran):
    made = ran("concepts_in_order")
    assert made["task"].strengths[0] < made["task"].strengths[1] < made["task"].strengths[2]
    assert made["times"][0] > made["times"][1] > made["times"][2], "the strongest comes first"
    assert made["descents"].min() == 1
    assert made["descents"].max() == 3


@pytest.mark.slow  # the tutorial on transformers goes the same way
def test_track_a_vision_transformer(ran):
    made = ran("track_a_vision_transformer")
    assert made["tracker"].steps == (1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63, 94, 141)
    assert made["losses"][-1] < 0.5
    assert Path("stable_rank.png").stat().st_size > 10_000


def test_reproduce_and_sweep(ran):
    made = ran("reproduce_and_sweep")
    assert made["made"].file.exists()
    assert made["swept"].counts["finished"] == 4
    assert made["swept"].data.outcome.sel(claim="flow").dims == ("log10_scale", "seed")
    excess = made["swept"].data.metrics.sel(metric="excess").mean("seed")
    assert excess.sel(log10_scale=-64) < excess.sel(log10_scale=-4)
