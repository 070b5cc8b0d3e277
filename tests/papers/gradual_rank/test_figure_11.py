"""Figure 11: noise comes when it should, transitions are compared at the same time or progress, and claims can fail."""

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.figure_11 import PROGRESS, transitions
from saddlescope.reproduction import RunContext, find_entry

NAME = "gradual-rank/figure-11"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


def test_the_end_and_the_path_are_kept_and_the_time_is_not(run, outcomes):
    assert outcomes(ENTRY, run) == {
        "endpoint": "reproduced",
        "tracks": "refuted",
        "same-path": "reproduced",
        "sgd-endpoint": "reproduced",
        "sgd-tracks": "refuted",
    }


def test_noise_comes_in_the_first_epoch_in_which_the_weight_is_not_negligible(run):
    params = ENTRY.configure("quick")
    for one, moment in zip(transitions(run), run.moment.values, strict=True):
        weights = abs(run.weights.sel(moment=moment).isel(step=0, coordinate=one.entering)).values
        assert (weights > params.threshold).all()
        assert (weights * np.exp(-1.01 * one.pull) < params.threshold).all()  # one epoch before
        epoch = -one.time * params.log10_scale * np.log(10)
        assert epoch == pytest.approx(round(epoch), abs=1e-6)
        assert run.resolved.values[one.stage - 1]


def test_the_transition_comes_sooner_by_the_e_folds_that_the_noise_has_saved(run):
    """A coordinate of its own grows at the rate |g|, from log w: the linear theory that the table expects."""
    for one in transitions(run):
        sooner = one.path(False)[0][40] - one.path(True)[0][40]
        assert one.growth > 2
        assert sooner * one.pull == pytest.approx(one.growth, abs=0.7)


def shifted_in_time(run):
    """The noisy training is the other one, ten stored times sooner."""
    weights = run.weights.values
    run.noisy.values[:, :-10], run.noisy.values[:, -10:] = weights[:, 10:], weights[:, -1:]


def as_without_noise(run):
    run.noisy.values[:] = run.weights.values


def another_end(run):
    run.noisy.values[1] *= 1.1


def another_path(run):
    """Another learned coordinate swings out by a fifth of the size in the midst of the transition to stage 2."""
    one = transitions(run)[1]
    other = int(np.flatnonzero(run.predicted_beta.values[one.stage - 2])[0])
    progress = run.weights.values[1].prod(axis=1)[:, one.entering] / one.goal[one.entering]
    as_without_noise(run)
    bump = 0.2 * one.size * np.exp(-((progress - 0.5) ** 2) / 0.02)
    run.noisy.values[1, :, 0, other] += bump / run.noisy.values[1, :, 1, other]


def sgd_as_without_noise(run):
    run.sgd.values[:, :, 0] = run.sgd.values[:, :, 1]


def sgd_at_another_end(run):
    run.sgd.values[1, 1, 0] *= 1.1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (shifted_in_time, {"endpoint": "reproduced", "tracks": "refuted", "same-path": "reproduced"}),
        (as_without_noise, {"endpoint": "reproduced", "tracks": "reproduced", "same-path": "reproduced"}),
        (another_end, {"endpoint": "refuted", "tracks": "refuted"}),
        (sgd_as_without_noise, {"sgd-endpoint": "reproduced", "sgd-tracks": "reproduced", "tracks": "refuted"}),
        (sgd_at_another_end, {"sgd-endpoint": "refuted", "endpoint": "reproduced"}),
        (another_path, {"endpoint": "reproduced", "tracks": "refuted", "same-path": "refuted"}),
    ],
)
def test_claims_can_fail_and_hold(run, outcomes, change, expected):
    change(run)
    assert expected.items() <= outcomes(ENTRY, run).items()


def test_a_path_is_a_function_of_progress(run):
    one = transitions(run)[0]
    since, beta = one.path(False)
    np.testing.assert_allclose(beta[:, one.entering] / one.goal[one.entering], np.linspace(*PROGRESS), rtol=1e-12)
    assert (np.diff(since) > 0).all()
    assert one.since[0] < since[0] < since[-1] < one.since[-1]


def test_what_does_not_happen_is_undecided(run, outcomes):
    run.noisy.values[0] = run.noisy.values[0, :1]
    assert outcomes(ENTRY, run)["same-path"] == "undecided"
    assert outcomes(ENTRY, run)["endpoint"] == "refuted"


def test_without_sgd_its_claims_are_not_tested(run, outcomes):
    found = outcomes(ENTRY, run.isel(order=[]))
    assert {name for name, outcome in found.items() if outcome == "not tested"} == {"sgd-endpoint", "sgd-tracks"}


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_result(run, tmp_path):
    class KilledError(Exception):
        pass

    def kill(fraction: float, note: str) -> None:
        if note == "noise 1 of 3 done":
            raise KilledError

    params = ENTRY.configure("quick")
    with pytest.raises(KilledError):
        ENTRY.run(params, RunContext(scratch=tmp_path, report=kill))
    kept = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert set(kept) == {"theory.nc", "undisturbed.nc", "noisy1.nc"}
    again = ENTRY.run(params, RunContext(scratch=tmp_path))
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in kept} == kept
    xr.testing.assert_identical(again.drop_attrs(), run.drop_attrs())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"log10_scale": "0"}, "log10_scale must be negative"),
        ({"threshold": "1"}, "threshold must be at least 1e-100 and below 1"),
        ({"transitions": "0"}, "transitions must be at least 1"),
        ({"noise": "-1"}, "noise must be positive"),
        ({"points": "5"}, "points must be at least 20"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"until": "5"}, "resolves a plateau"),
        ({"log10_scale": "-0.1"}, "threshold must be above the initial weights"),
    ],
)
def test_a_scale_that_shows_nothing_is_one_sentence(settings, sentence, tmp_path):
    with pytest.raises(InputError, match=sentence):
        ENTRY.run(ENTRY.configure("quick", settings), RunContext(scratch=tmp_path))
