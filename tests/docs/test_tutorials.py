"""The tutorials: their blocks run in order, and what their sentences say of the output holds."""

import re
from pathlib import Path

import numpy as np
import pytest

import saddlescope as ss
import snippets
from saddlescope.cli import main
from saddlescope.flow import DiagonalInit
from saddlescope.reproduction import find_entry

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PAGES = {
    "theorist": "docs/tutorials/theorist.md",
    "full-matrices": "docs/tutorials/full-matrices.md",
    "units": "docs/tutorials/units.md",
    "transformers": "docs/tutorials/transformers.md",
}


@pytest.fixture
def executed(types_unchecked):
    """Return a function that runs all blocks of a page and returns their names and their output."""

    def run(name):
        with types_unchecked():
            return snippets.run_page(PAGES[name])

    return run


def test_every_tutorial_is_tested():
    assert {page.stem for page in TUTORIALS.glob("*.md")} == {*PAGES, "reader"}


def test_a_network_of_ones_own(executed):
    made, reported = executed("theorist")
    predicted = made["predicted"]
    assert predicted.status == "converged"
    assert [stage.entered for stage in predicted.stages[1:]] == [(0,), (1,), (7,), (2,)], "the gate enters third"
    assert "alpha = 1e-32: every stage is separate" in reported
    assert "alpha = 1e-4: the order at stage 2" in reported
    assert made["comparison"].exact_order_prefix == 4
    assert 0.001 < max(map(abs, made["comparison"].time_errors)) < 0.03, "a percent or so"
    pairs = re.findall(r"limit ([\d.]+)  next order ([\d.]+)  simulated ([\d.]+)", reported)
    limit, corrected, simulated = np.array(pairs, float).T
    assert len(limit) == 4
    assert np.all(np.abs(corrected - simulated) < np.abs(limit - simulated) / 5)
    _assert_classes_are_learned_when_predicted(made["classifier"], np.random.default_rng(1).standard_normal((2, 12)))


def _assert_classes_are_learned_when_predicted(classifier, weights):
    start = DiagonalInit(*weights, log_scale=-300 * np.log(10))
    predicted = ss.incremental_learning(classifier, 12, weights=tuple(weights))
    crossings = ss.gradient_flow(classifier, start, until=3.0, tolerance=1e-6, level=0.05).crossings
    assert len(crossings) >= 3
    stages = predicted.stages[1 : len(crossings) + 1]
    assert [crossing.index for crossing in crossings] == [stage.entered[0] for stage in stages]
    times = predicted.times_at(start.log_scale)[1 : len(crossings) + 1]
    np.testing.assert_allclose([crossing.time for crossing in crossings], times, rtol=0.02)


def test_full_matrices(executed):
    made, reported = executed("full-matrices")
    assert made["predicted"].status == "converged"
    assert [stage.ranks for stage in made["predicted"].stages] == [(0,), (1,), (2,), (3,)]
    assert made["comparison"].exact_order_prefix == 3
    assert not made["comparison"].missed
    errors = np.abs(np.subtract(made["found"].times, made["predicted"].staircase.times)) * 32 * np.log(10)
    assert errors.max() < 8, "some e-folds, of 74"
    assert "rank 3" in reported


def test_a_sum_of_units_of_ones_own(executed):
    made, _ = executed("units")
    predicted, run = made["predicted"], made["run"]
    assert (predicted.degree, predicted.status.value) == (2.0, "converged")
    np.testing.assert_allclose(predicted.staircase.times, 4 / np.hypot([1.2, 1.0], [0.7, 0.5]))
    by_sign = [np.mean(run.rises[:3]), np.mean(run.rises[3:])]
    np.testing.assert_allclose(by_sign, predicted.staircase.times, rtol=0.05)
    assert run.losses[-1] < 1e-8
    assert [rung.saddle for rung in made["ladder"].rungs] == [True, True, False]
    assert made["matched"].equal_counts
    assert max(map(abs, made["matched"].errors)) < 1e-4


def test_what_a_transformer_learned(executed):
    made, reported = executed("transformers")
    assert dict(made["spectra"].sizes)["step"] == 13
    np.testing.assert_array_equal(made["tracked"].values, made["read"].values)
    ranks = made["between"].stable_rank.sel(product="VO").mean(("layer", "head")).values
    assert 1 < ranks[0] < ranks[1] < 4, "low, and growing"
    assert made["adapter"].captured_energy >= 0.9
    trainable = sum(weight.numel() for weight in made["adapted"].parameters() if weight.requires_grad)
    assert trainable == sum(rank * sum(made["shapes"][name]) for name, rank in made["ranks"].items())
    assert 0.9 * made["budget"] <= trainable <= made["budget"]
    assert "rank 8 everywhere keeps" in reported


@pytest.fixture
def reader():
    """Return the commands of the reader's page with the last line shown of each, and its Python."""
    page = (TUTORIALS / "reader.md").read_text()
    blocks = re.findall(r"```(console|text|python)\n(.*?)```", page, re.S)
    steps: list[list[str]] = []
    before = ""
    for kind, text in blocks:
        if kind == "console":
            steps += [[line.removeprefix("saddlescope "), ""] for line in text.splitlines()]
        elif kind == "text" and before == "console":
            steps[-1][1] = text.strip()
        before = kind
    return steps, [text for kind, text in blocks if kind == "python"]


def test_a_readers_commands_can_be_given(reader):
    steps, _ = reader
    for command, _ in steps:
        words = command.split()
        if words[0] == "run":
            settings = dict(words[k + 1].split("=", 1) for k, word in enumerate(words) if word == "--set")
            assert find_entry(words[1]).configure(words[words.index("--size") + 1], settings)


def test_near_ties_are_those_that_the_page_shows(types_unchecked):
    with types_unchecked():
        made = snippets.run(snippets.snippet("docs/tutorials/reader.md", "near_ties"))
    assert made["predicted"].status == "converged"


@pytest.mark.slow
def test_a_reader_sees_what_the_page_shows(reader, tmp_path, monkeypatch, capsys, types_unchecked):
    monkeypatch.chdir(tmp_path)
    steps, blocks = reader
    with types_unchecked():
        _followed(steps, blocks, capsys)
    assert (tmp_path / "gallery" / "index.html").exists()


def _followed(steps, blocks, capsys):
    assert sum(bool(shown) for _, shown in steps) == 3
    for command, shown in steps:
        status = main(command.split())
        reported, faults = capsys.readouterr()
        assert status in (0, 1, 3), f"{command}: {faults}"
        for line in shown.splitlines():
            assert line in reported
    exec(blocks[0], {})  # reads what the commands stored
    assert "agrees" in capsys.readouterr().out
