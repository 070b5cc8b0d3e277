"""Two heads in one layer: claims can fail both ways; Algorithm 1 with weights divides as the closed form does."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models import transformer_teacher_task
from saddlescope.reproduction import find_entry
from saddlescope.theory import incremental_learning

NAME = "gradual-rank/tied-heads"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


def test_the_printed_assumptions_are_refuted_and_what_replaces_them_holds(run, outcomes):
    assert outcomes(ENTRY, run) == {
        "unique": "refuted",
        "strict": "refuted",
        "at-most-one": "refuted",
        "ratio": "reproduced",
        "keys": "reproduced",
    }


@pytest.mark.parametrize(
    ("change", "claim", "outcome"),
    [
        (lambda run: run.update({"second_time": 1.01 * run.first_time}), "unique", "reproduced"),
        (lambda run: run.update({"flatness": run.flatness + 0.1}), "strict", "reproduced"),
        (lambda run: run.update({"learned": run.learned - 1}), "at-most-one", "reproduced"),
        (lambda run: run.update({"found_pair": run.found_pair.roll({"head": 1})}), "ratio", "refuted"),
        (lambda run: run.update({"found_pair": -run.found_pair.where(run["head"] == 1, 1)}), "ratio", "refuted"),
        (lambda run: run.update({"found_pair": run.found_pair.where(False)}), "ratio", "undecided"),
        (lambda run: run.update({"key_growth": run.key_growth.roll({"head": 1})}), "keys", "refuted"),
        (lambda run: run.update({"key_growth": run.key_growth.where(False)}), "keys", "undecided"),
        (lambda run: run.update({"found_time": run.found_time.where(False)}), "at-most-one", "undecided"),
    ],
)
def test_a_changed_run_changes_the_verdict(run, outcomes, change, claim, outcome):
    change(run)
    assert outcomes(ENTRY, run)[claim] == outcome


def test_both_heads_pass_half_their_share_at_once_and_at_the_predicted_sum(run):
    np.testing.assert_allclose(run.found_times.sel(head=1), run.found_times.sel(head=2), rtol=1e-9)
    np.testing.assert_allclose(run.found_pair.sum("head"), (run.total / 2).broadcast_like(run.found_time), rtol=1e-6)
    assert abs(run.found_time / run.first_time - 1).isel(scale=-1).max() < 0.02


def test_algorithm_1_with_weights_divides_the_entry_as_the_closed_form_does(run):
    size = ENTRY.configure("quick")
    task = transformer_teacher_task(
        size.seeds[0], layers=1, heads=2, samples=size.samples, tokens=size.tokens, dim=size.dim, hidden=size.hidden
    )
    stage = incremental_learning(task.network, 4 * size.dim, weights=(task.u0, task.v0), max_stages=1).stages[1]
    one = run.isel(seed=0)
    assert stage.entered == tuple(one.pair.values)
    assert stage.time == pytest.approx(float(one.first_time), rel=1e-12)
    np.testing.assert_allclose(stage.beta[list(stage.entered)], one.total * one.predicted_share, rtol=1e-8)
    other = incremental_learning(task.network, 4 * size.dim, weights=(task.v0, 2 * task.u0), max_stages=1).stages[1]
    assert np.abs(other.beta - stage.beta).max() > 1e-3  # the division is the weights', not the loss's


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"log10_scales": "-2"}, "log10_scales must be one or more numbers, each at most -4"),
        ({"log10_scales": "-32,-8"}, "log10_scales must be one or more numbers, each at most -4, decreasing"),
        ({"seeds": "1,1"}, "seeds must be one or more integers, each at least 0, each once"),
        ({"seeds": "-1"}, "seeds must be one or more integers, each at least 0, each once"),
        ({"hidden": "0"}, "hidden must be at least 1"),
        ({"until": "1"}, r"until must be at least 1\.5"),
        ({"tolerance": "0"}, "tolerance must be between"),
        ({"level": "0.5"}, "level must be above 0 and below 0.01"),
        ({"points": "1"}, "points must be at least 2"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)
