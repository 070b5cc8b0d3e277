"""Figures 1, 3 and 4 and the digits: their claims can fail, and are undecided where a run ended too early."""

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.measure import Stage, Staircase
from saddlescope.papers.deep_relu.shared.plateau_statistics import (
    ends_early,
    plateau_distinctness,
    rank_path,
    select_first_plateau,
    singular_value_ratios,
)
from saddlescope.papers.deep_relu.shared.training import staircase_dataset
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


def test_a_path_through_ranks_one_and_two_reproduces_figure_1():
    assert set(_outcomes("deep-relu/figure-1", _run((0, 1, 2))).values()) == {"reproduced"}


@pytest.mark.parametrize(
    ("ranks", "refuted"),
    [((0, 2, 3), {"dominant", "rise", "second"}), ((0, 2), {"saddles", "dominant", "rise", "accuracy"})],
)
def test_another_path_is_refuted(ranks, refuted):
    outcomes = _outcomes("deep-relu/figure-1", _run(ranks))
    assert {name for name, outcome in outcomes.items() if outcome == "refuted"} == refuted


def test_a_wider_spectrum_in_the_deeper_layers_is_refuted():
    run = _run((0, 1, 2))
    run["singular_values"] = run.singular_values.copy(data=run.singular_values.values[::-1])
    assert _outcomes("deep-relu/figure-1", run)["deeper"] == "refuted"


def test_a_run_that_ended_on_its_first_plateau_decides_little():
    outcomes = _outcomes("deep-relu/figure-1", _run((0, 1)))
    assert outcomes["dominant"] == "reproduced"
    assert {outcomes[name] for name in ("saddles", "rise", "second", "accuracy")} == {"undecided"}
    assert set(_outcomes("deep-relu/figure-1", _run((0,))).values()) == {"undecided"}


def _seeds(*paths):
    runs = [_run(path) for path in paths]
    return xr.concat(runs, dim="seed", join="outer").assign_coords(seed=range(len(paths)))


def test_digits_distinguish_most_seeds_from_every_seed():
    name = "deep-relu/digits"
    assert set(_outcomes(name, _seeds((0, 1, 2), (0, 1, 2))).values()) == {"reproduced"}
    mixed = _outcomes(name, _seeds((0, 1, 2), (0, 2, 2), (0, 1, 2)))
    assert mixed["ranks"] == "reproduced"
    assert mixed["ranks-every-seed"] == "refuted"
    assert _outcomes(name, _seeds((0, 2, 2), (0, 2, 3)))["ranks"] == "refuted"
    early = _outcomes(name, _seeds((0, 1, 2), (0, 1)))
    assert {early[claim] for claim in ("ranks", "ranks-every-seed", "accuracy")} == {"undecided"}


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


def _figure_4(large, small, deep):
    names = ["depth 4, larger", "depth 4, smaller", "depth 6"]
    runs = xr.concat(
        [large, small, deep], dim="network", join="outer", fill_value={"stage_layer_rank": -1, "stage_rank": -1}
    )
    return runs.assign_coords(network=names, depth=("network", [4, 4, 6]), deviation=("network", [0.02, 0.001, 0.02]))


def test_figure_4_can_fail_both_ways():
    smeared = _run((0, 3), layers=4)
    smeared["loss"] = ("step", 2.3 - 2.3 * STEPS / 1000)
    smeared["accuracy"] = ("step", np.ones(len(STEPS)))
    stairs = _run((0, 1, 2), layers=4)
    stairs["loss"] = ("step", np.interp(STEPS, [0, 190, 200, 600, 900, 1000], [2.3, 2.3, 1.8, 1.75, 0.0, 0.0]))
    deep = _run((0, 1, 2))
    deep["loss"] = ("step", np.interp(STEPS, [0, 190, 200, 600, 900, 1000], [2.3, 2.3, 1.8, 1.75, 0.0, 0.0]))
    as_found = _outcomes("deep-relu/figure-4", _figure_4(smeared, stairs, deep))
    assert {name for name, outcome in as_found.items() if outcome != "reproduced"} == {"depth-needed"}
    as_printed = _outcomes("deep-relu/figure-4", _figure_4(smeared, smeared, deep))
    assert as_printed["depth-needed"] == as_printed["depth"] == "reproduced"
    assert as_printed["smaller-is-sharper"] == as_printed["smaller-is-rank-one"] == "refuted"
    early = _outcomes("deep-relu/figure-4", _figure_4(smeared, stairs, _run((0, 1))))
    assert early["depth"] == early["accuracy"] == "undecided"


@pytest.mark.parametrize("name", ["deep-relu/figure-1", "deep-relu/figure-4"])
def test_a_data_folder_without_mnist_is_one_sentence(name, tmp_path):
    with pytest.raises(InputError, match="folder must hold mnist/train-images"):
        find_entry(name).run(find_entry(name).configure(), RunContext(scratch=tmp_path, data=tmp_path))
    with pytest.raises(InputError, match="existing folder"):
        find_entry(name).run(find_entry(name).configure(), RunContext(scratch=tmp_path, data=tmp_path / "none"))


def test_damaged_mnist_is_one_sentence(tmp_path):
    (tmp_path / "mnist").mkdir()
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / "mnist" / f"{part}-ubyte").write_bytes(b"\0\0\x08\x03 no images")
    with pytest.raises(InputError, match="official file"):
        find_entry("deep-relu/figure-1").run(
            find_entry("deep-relu/figure-1").configure(), RunContext(tmp_path, data=tmp_path)
        )


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("figure-1", {"width": "0"}, "width must be at least 1"),
        ("figure-1", {"deviation": "-1"}, "deviation must be positive"),
        ("figure-1", {"dataset": "mnits"}, "mnist"),
        ("figure-4", {"deviations": "0.01"}, "deviations must be exactly 2 positive numbers, decreasing"),
        ("figure-4", {"deviations": "0.01,0.02"}, "decreasing"),
        ("figure-4", {"deviations": "0.03,0.02,0.01"}, "deviations must be exactly 2 positive numbers, decreasing"),
        ("digits", {"seeds": "1,1"}, "seeds must be one or more integers, each at least 0, each once"),
        ("digits", {"depth": "3"}, "depth must be at least 4"),
        ("proposition-2-2", {"depths": "1,2"}, "depths must be one or more integers, each at least 2, each once"),
        ("proposition-2-2", {"deviations": "0.1"}, "deviations must be two or more"),
        ("proposition-2-2", {"growth": "1"}, "growth must be above 1"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(name, given, sentence):
    with pytest.raises(InputError, match=sentence):
        find_entry(f"deep-relu/{name}").configure("quick", given)


def test_proposition_2_2_distinguishes_the_corrected_law_from_the_printed(quick_run, outcomes):
    entry, run = find_entry("deep-relu/proposition-2-2"), quick_run("deep-relu/proposition-2-2").run
    found = outcomes(entry, run)
    printed = {name for name in found if name.endswith("printed")} | {"norm-independence"}
    assert len(printed) == 5
    assert {found[name] for name in printed} == {"refuted"}
    corrected = found.keys() - printed - {"digits"}
    assert {found[name] for name in corrected} == {"reproduced"}


@pytest.mark.parametrize(
    ("variable", "factor", "claim"),
    [
        ("corrected_time", 1.01, "escape-time"),
        ("gained_corrected", 0.99, "norm-in-s"),
        ("spent_corrected", 1.01, "time-in-s"),
        ("path_rate", 1.01, "delay"),
    ],
)
def test_proposition_2_2_can_fail(quick_run, outcomes, variable, factor, claim):
    entry, run = find_entry("deep-relu/proposition-2-2"), quick_run("deep-relu/proposition-2-2").run.copy(deep=True)
    run[variable] = run[variable] * factor
    assert outcomes(entry, run)[claim] == "refuted"


def test_the_digits_of_proposition_2_2_can_fail(quick_run, outcomes):
    entry, run = find_entry("deep-relu/proposition-2-2"), quick_run("deep-relu/proposition-2-2").run.copy(deep=True)
    run["escape_interval"] = ("deviation", [10.0, 10.0])
    for steps, outcome in (([500.0, 505.0], "reproduced"), ([500.0, 530.0], "refuted"), ([500.0, np.nan], "undecided")):
        run["escape_step"] = ("deviation", steps)
        assert outcomes(entry, run)["digits"] == outcome
