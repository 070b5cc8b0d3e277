"""The assumptions' numbers agree with other computations, and each claim can fail."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from saddlescope.models import attention_teacher_task
from saddlescope.papers.gradual_rank.assumptions import NEAR, noisy_ends
from saddlescope.reproduction import RunContext, find_entry
from saddlescope.theory import incremental_learning

NAME = "gradual-rank/assumptions"
ENTRY = find_entry(NAME)


@pytest.fixture(scope="module")
def instance():
    params = ENTRY.configure("quick")
    task = attention_teacher_task(params.seeds[-1], samples=params.samples, tokens=params.tokens, dim=params.dim)
    return task.network, incremental_learning(task.network, 2 * params.dim, max_stages=5).stages


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert found.pop("leaving") == "undecided"  # nothing leaves on these two seeds
    assert set(found.values()) == {"seen"}


def test_c_k_is_half_the_least_eigenvalue_of_the_hessian_in_u(run, instance):
    network, stages = instance
    hessian_in_u = jax.jit(jax.hessian(lambda u, s: network(s * u * u)))
    for k, stage in enumerate(stages[1:]):
        support, s = list(stage.support), jnp.sign(stage.beta)
        hessian = hessian_in_u(jnp.sqrt(jnp.abs(stage.beta)), s)
        least = np.linalg.eigvalsh(np.asarray(hessian)[np.ix_(support, support)])[0]
        assert run.curvature.isel(seed=-1).values[k] == pytest.approx(least / 2, rel=1e-8)


def test_an_end_elsewhere_is_seen(instance):
    """The second pair is not one of Algorithm 1: from stage 1 with what enters stage 3, to stage 3."""
    network, stages = instance
    pairs = [(stages[1], stages[2]), (stages[1], stages[3])]
    right, wrong = noisy_ends(network, pairs, 1e-3, 2, 1e-4, np.random.default_rng(0), lambda fraction, note: None)
    assert (right < NEAR / 10).all()
    assert (wrong > NEAR).all()


def one_leaves(run):
    run.left.values[:, 5] = 1.0


def one_ends_elsewhere(run):
    run.end_distance.values[0, 3, 0] = 2 * NEAR


@pytest.mark.parametrize(("spoil", "claim"), [(one_leaves, "nobody-leaves"), (one_ends_elsewhere, "noise-robust")])
def test_one_stage_decides(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "not seen"


def test_one_that_leaves_needs_a_push(run):
    (leaving,) = (claim for claim in ENTRY.claims if claim.name == "leaving")
    assert str(leaving.judge(run).outcome) == "undecided"
    run.left_gradient.values[:, 5] = 0.1
    assert str(leaving.judge(run).outcome) == "seen"
    run.left_gradient.values[0, 5] = 0.0
    assert str(leaving.judge(run).outcome) == "not seen"


def test_an_instance_that_algorithm_1_did_not_finish_decides_nothing(run, outcomes):
    run.converged.values[0] = False
    assert set(outcomes(ENTRY, run).values()) == {"not tested"}


def test_instances_of_different_length_are_judged_together(run, outcomes):
    shorter = run.isel(seed=[0], stage=slice(0, 10))
    together = xr.concat([shorter, run.isel(seed=[1])], dim="seed", join="outer")
    assert outcomes(ENTRY, together)["noise-robust"] == "seen"
    together.end_distance.values[0, 9, 0] = 1.0
    assert outcomes(ENTRY, together)["noise-robust"] == "not seen"


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_result(run, tmp_path):
    class KilledError(Exception):
        pass

    def kill(fraction: float, note: str) -> None:
        if note.startswith("seed 1, all"):
            raise KilledError

    params = ENTRY.configure("quick")
    with pytest.raises(KilledError):
        ENTRY.run(params, RunContext(scratch=tmp_path, report=kill))
    assert {file.name for file in tmp_path.iterdir()} == {"seed0.nc"}
    kept = (tmp_path / "seed0.nc").stat().st_mtime_ns
    again = ENTRY.run(params, RunContext(scratch=tmp_path))
    assert (tmp_path / "seed0.nc").stat().st_mtime_ns == kept
    xr.testing.assert_identical(again.drop_attrs(), run.drop_attrs())
