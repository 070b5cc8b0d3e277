"""Figures 1, 3 and 4: statistics of stages and of the loss, and nothing where a run ended too early."""

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.flow import geometric_steps
from saddlescope.measure import Stage, Staircase
from saddlescope.papers.deep_relu.shared.layer_measurements import IMAGES_DEVIATION
from saddlescope.papers.deep_relu.shared.plateau_statistics import (
    ends_early,
    plateau_distinctness,
    rank_path,
    select_first_plateau,
    singular_value_ratios,
)
from saddlescope.papers.deep_relu.shared.training import image_loss, staircase_dataset
from saddlescope.reproduction import RunContext, find_entry

STEPS = np.arange(0, 1001, 5)


def _run(ranks, *, layers=6, levels=None, edges=(0, 200, 600)):
    """A network with these ranks on its plateaus: learned singular values are 4, 3, ..., the others 0.1 (0.5 first)."""
    levels = levels or np.linspace(2.3, 0.0, len(ranks) + 1)[: len(ranks)]
    edges = edges[: len(ranks)]
    stage = np.searchsorted(edges, STEPS, side="right") - 1
    values = np.full((layers, 10, len(STEPS)), 0.1)
    values[0] = 0.5
    for step, k in enumerate(stage):
        values[:, : ranks[k], step] = 4.0 - np.arange(ranks[k])
    ends = [*edges[1:], 1000]
    stages = tuple(
        Stage(float(start), float(end), float(level), rank, layer_ranks=(rank,) * layers)
        for start, end, level, rank in zip(edges, ends, levels, ranks, strict=True)
    )
    return xr.Dataset(
        {
            "loss": ("step", np.asarray(levels)[stage]),
            "accuracy": ("step", np.where(stage == 2, 1.0, 0.2)),
            "singular_values": (("layer", "value", "step"), values),
        },
        coords={"step": STEPS, "value": 1 + np.arange(10), "layer": 1 + np.arange(layers)},
    ).merge(staircase_dataset(Staircase(stages, "steps"), layers=layers, most=8))


def _outcomes(name, run):
    return {verdict.claim: str(verdict.outcome) for verdict in find_entry(name).judge(run)}


def _seeds(*paths, layers=6):
    """Several networks, whose singular values differ by a few per cent."""
    draw, runs = np.random.default_rng(0), []
    for path in paths:
        run = _run(path, layers=layers)
        spread = np.exp(0.03 * draw.standard_normal((layers, 10)))[..., None]
        runs.append(run.assign(singular_values=run.singular_values * spread))
    return xr.concat(runs, dim="seed", join="outer").assign_coords(seed=range(len(paths)))


def test_a_path_through_ranks_one_and_two_reproduces_figure_1():
    assert set(_outcomes("deep-relu/figure-1", _seeds(*6 * [(0, 1, 2)])).values()) == {"seen"}


def test_runs_that_ended_on_their_first_plateau_decide_little():
    outcomes = _outcomes("deep-relu/figure-1", _seeds((0, 1), (0, 1), (0, 1, 2)))
    assert outcomes["dominant"] == "seen"
    assert {outcomes[name] for name in ("saddles", "second")} == {"not tested"}
    assert set(_outcomes("deep-relu/figure-1", _seeds((0,), (0,))).values()) == {"undecided", "not tested"}


def test_one_network_alone_decides_nothing():
    assert not set(_outcomes("deep-relu/figure-1", _seeds((0, 1, 2))).values()) & {"seen", "not seen"}


def test_ranks_are_listed_without_repetition():
    run = _run((0, 1, 1))
    assert rank_path(run, slice(3, 5)) == [0, 1]
    assert ends_early(run, slice(3, 5))
    run.stage_layer_rank.loc[{"stage": 2, "layer": 4}] = 2
    assert rank_path(run, slice(3, 5)) == [0, 1, -1]
    assert rank_path(run, slice(1, 3)) == [0, 1]
    assert not ends_early(run, slice(3, 5))


def test_the_first_plateau_is_judged_in_its_middle():
    at = select_first_plateau(_run((0, 1, 2)))
    assert int(at.step) == 400
    np.testing.assert_allclose(singular_value_ratios(at, 2), [0.125, *[0.025] * 5])
    assert int(select_first_plateau(_run((0, 1))).step) == 600
    assert np.isnan(float(select_first_plateau(_run((0,))).step))


def test_a_straight_descent_has_no_distinct_plateau():
    """A plateau of a quarter of the time, among bands of a fiftieth of the other time, has 18 times the median."""
    steps = np.linspace(0, 1000, 4001)
    straight = xr.Dataset({"loss": ("step", 2.0 - 2 * steps / 1000)}, coords={"step": steps})
    np.testing.assert_allclose(plateau_distinctness(straight), 1.0, rtol=1e-9)
    fall = np.where(steps < 250, steps / 750, np.where(steps < 500, 1 / 3, (steps - 250) / 750))
    plateau = xr.Dataset({"loss": ("step", 5 - 3 * fall)}, coords={"step": steps})
    band = 0.02 * 750  # steps that the fall takes through a band
    np.testing.assert_allclose(plateau_distinctness(plateau), (250 + band) / band, rtol=0.02)


@pytest.mark.parametrize("name", ["figure-1", "figure-4", "conjecture-3", "conjecture-4"])
def test_mnist_without_its_files_is_one_sentence(name, tmp_path):
    """The digits never replace it silently."""
    entry = find_entry(f"deep-relu/{name}")
    params = entry.configure("quick", {"dataset": "mnist"} | ({"images": "1"} if name.startswith("conj") else {}))
    for data, sentence in ((None, "needs the folder"), (tmp_path, "must hold mnist/train-images")):
        with pytest.raises(InputError, match=sentence):
            image_loss(params.dataset, RunContext(scratch=tmp_path, data=data))
    if name.startswith("figure"):
        with pytest.raises(InputError, match="dataset=digits"):
            entry.run(params, RunContext(scratch=tmp_path))


def _recording(loss, setup, **others):
    """Return what a training records, without one."""
    steps = geometric_steps(setup.steps, per_doubling=24, every=1)
    layers = 1 + np.arange(setup.depth)
    spectra = np.ones((setup.depth, 4, len(steps)), np.float32)
    return xr.Dataset(
        {name: ("step", np.linspace(2, 1, len(steps))) for name in ("loss", "accuracy", "measured_loss")}
        | {"singular_values": (("layer", "value", "step"), spectra)},
        coords={"step": steps, "layer": layers, "value": np.arange(1, 5)},
    )


def test_figures_and_conjectures_of_one_network_train_it_once(tmp_path, monkeypatch):
    monkeypatch.setattr("saddlescope.papers.deep_relu.shared.training.record_training", _recording)
    network = dict(seeds="3", width="8", deviation="0.01", steps="40")
    conjecture = dict(seed="3", teachers="1", steps="20", images="1", images_width="8", images_steps="40")
    for name, given in (("deep-relu/figure-1", network), ("deep-relu/conjecture-3", conjecture)):
        scratch = tmp_path / name.partition("/")[2]
        scratch.mkdir()
        context = RunContext(scratch, report=lambda *report: None, shared=tmp_path / "parts")
        entry = find_entry(name)
        entry.run(entry.configure("default", given), context)
    assert len(list((tmp_path / "parts").rglob("*.nc"))) == 3  # the network, and students of two teachers


def test_the_reduced_size_of_all_entries_on_mnist_is_of_the_same_networks():
    names = ("figure-1", "figure-4", "conjecture-3", "conjecture-4")
    one, four, *conjectures = (find_entry(f"deep-relu/{name}").configure("reduced") for name in names)
    network = one.width, one.deviation, one.steps, one.seeds
    assert network == (four.width, four.deep_deviation, four.deep_steps, four.seeds)
    for params in conjectures:
        seeds = tuple(range(params.seed, params.seed + params.images))
        assert network == (params.images_width, IMAGES_DEVIATION, params.images_steps, seeds)
