"""Diagonal linear networks: claims are refuted by wrong stages, wrong times and wrong ends."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models import diagonal_linear_network
from saddlescope.papers.gradual_rank import diagonal_linear
from saddlescope.papers.gradual_rank.diagonal_linear import least_l1_interpolator, stage_checks
from saddlescope.reproduction import RunContext, find_entry
from saddlescope.theory import incremental_learning

NAME = "gradual-rank/diagonal-linear"
ENTRY = find_entry(NAME)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


@pytest.mark.slow
def test_many_points_at_once_are_as_one_by_one(run, tmp_path):
    quick = ENTRY.configure("quick")
    other = dataclasses.replace(quick, problems=2, coordinates=14, log10_scale=-512.0)
    assert ENTRY.run_many is not None
    first, second, third = ENTRY.run_many(
        [quick, other, dataclasses.replace(quick, seed=1, problems=2)], RunContext(scratch=tmp_path / "many")
    )
    alone = ENTRY.run(other, RunContext(scratch=tmp_path / "one"))
    # Problem k of seed 0 is problem k - 1 of seed 1; only the first has a path.
    later = run.isel(problem=slice(1, None)).drop_dims("moment")
    for many, one in ((first, run), (second, alone), (third.drop_dims("moment"), later)):
        assert set(many.data_vars) == set(one.data_vars)
        for name in many.data_vars:
            if name == "flow_loss":  # of the order of rounding
                assert float(abs(many[name] - one[name]).max()) < 1e-12
            elif name != "flow_gradients":  # the steps are those of another implementation
                stages = many[name].sizes.get("stage")
                same = one[name] if stages is None else one[name].isel(stage=slice(stages))
                np.testing.assert_allclose(many[name], same, rtol=quick.tolerance, atol=1e-9)


@pytest.fixture(scope="module")
def solved():
    """A problem that ends at an interpolator, and Algorithm 1's stages."""
    rng = np.random.default_rng(3)
    features = rng.standard_normal((5, 9))
    targets = features @ rng.standard_normal(9)
    return incremental_learning(diagonal_linear_network(features, targets), 9), features, targets


def spoilt(learned, k, **changes):
    """The same stages, one of them changed."""
    stages = list(learned.stages)
    stages[k] = dataclasses.replace(stages[k], **changes)
    return dataclasses.replace(learned, stages=tuple(stages))


def worst(checks, name):
    _, values = checks[name]
    return float(np.max(values))


def test_right_stages_pass_the_checks(solved):
    checks = stage_checks(*solved)
    for name in ("least_squares", "subgradient", "residual", "duality_gap"):
        assert worst(checks, name) < 1e-12, name


def test_a_wrong_saddle_is_seen(solved):
    learned, features, targets = solved
    beta = learned.stages[2].beta.copy()
    beta[np.flatnonzero(beta)[0]] *= 1 + 1e-5
    assert worst(stage_checks(spoilt(learned, 2, beta=beta), features, targets), "least_squares") > 1e-7


def test_a_wrong_time_is_seen(solved):
    learned, features, targets = solved
    moved = spoilt(learned, 2, time=learned.stages[2].time * (1 + 1e-5))
    assert worst(stage_checks(moved, features, targets), "subgradient") > 1e-7


def test_a_stage_left_out_is_seen(solved):
    """Without stage 2 its coordinate passes slope 1, or enters where it has none."""
    learned, features, targets = solved
    short = dataclasses.replace(learned, stages=(*learned.stages[:2], *learned.stages[3:]))
    checks = stage_checks(short, features, targets)
    assert worst(checks, "subgradient") > 1e-3
    assert worst(checks, "duality_gap") > 1e-3


def test_the_end_is_not_any_interpolator(solved):
    """The least squares solution of least l2 norm interpolates too, and has a larger l1 norm than the programme's."""
    _, features, targets = solved
    shortest = least_l1_interpolator(features, targets)
    np.testing.assert_allclose(features @ shortest, targets, atol=1e-12)
    assert np.abs(shortest).sum() < 0.99 * np.abs(np.linalg.pinv(features) @ targets).sum()


def not_least_squares(run):
    run.least_squares.values[0, 0] = 1e-6


def no_subgradient(run):
    run.subgradient.values[0, 0] = 1e-6


def no_interpolator(run):
    run.residual.values[-1] = 1e-6


def longer_norm(run):
    run.norm.values[-1] += 1e-6


def no_certificate(run):
    run.duality_gap.values[0] = 1e-6


def flow_ends_elsewhere(run):
    run.flow_norm.values[0] *= 1.02


def none_leaves(run):
    run.left.values[:] = 0


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (not_least_squares, "least-squares"),
        (no_subgradient, "subgradient"),
        (no_interpolator, "interpolates"),
        (longer_norm, "least-norm"),
        (no_certificate, "certificate"),
        (flow_ends_elsewhere, "flow"),
        (none_leaves, "leaving"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_a_problem_that_did_not_converge_leaves_its_checks_undecided(run, outcomes):
    run.converged.values[1] = False
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in ("least-squares", "subgradient", "interpolates", "certificate")} == {"undecided"}


def test_a_killed_run_keeps_its_finished_problems(tmp_path):
    class KilledError(Exception):
        pass

    notes = [""]

    def kill(fraction: float, note: str) -> None:
        if notes[-1].startswith("problem 1 of"):  # in the middle of the second problem
            raise KilledError
        notes.append(note)

    params = dataclasses.replace(ENTRY.configure("quick"), problems=2, samples=2, coordinates=3)
    with pytest.raises(KilledError):
        ENTRY.run(params, RunContext(scratch=tmp_path, report=kill))
    kept = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert set(kept) == {"problem0.nc"}
    ENTRY.run(params, RunContext(scratch=tmp_path))
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in kept} == kept


def test_the_large_problem_has_its_own_size_and_a_sparse_teacher():
    params = dataclasses.replace(ENTRY.configure("quick"), large=80)
    features, targets, _ = diagonal_linear._problem(params, params.problems)
    assert features.shape == (40, 80)
    with jax.enable_x64(True):
        learned = incremental_learning(diagonal_linear_network(jnp.asarray(features), jnp.asarray(targets)), 80)
    assert len(learned.stages[-1].support) == 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"coordinates": "6"}, "coordinates must be more than samples=6"),
        ({"problems": "0"}, "problems must be at least 1"),
        ({"large": "10"}, "large must be 0 or at least 40"),
        ({"log10_scale": "0"}, "log10_scale must be between"),
        ({"tolerance": "1"}, "tolerance must be between"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)
