"""Theorem 4.1's claims: held by times that follow the law, refuted by each way of not following it."""

import dataclasses

import numpy as np
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import RunContext, find_entry

NAME = "gradual-rank/theorem-4-1"
ENTRY = find_entry(NAME)
SCALES = (-32.0, -64.0, -1024.0, -4096.0)


@pytest.fixture
def run(quick_run):
    return quick_run(NAME).run.copy(deep=True)


@pytest.fixture
def ideal():
    """Three heads of eight stages at T_k + C_k / log(1/alpha) up to 1e-8, with plateaus that are ever closer."""
    stages = np.arange(1, 9)
    times, constants = 50.0 + 10.0 * stages, np.where(stages % 2, 2.0, -5.0) + stages / 10
    unit = -np.array(SCALES)[:, None] * np.log(10)
    found = times + constants / unit + 1e-6 * np.sin(stages)
    distance = np.exp(-np.sqrt(unit) / 10 * stages)
    one = xr.Dataset(
        {
            "predicted_time": ("stage", times),
            "predicted_constant": ("stage", constants),
            "separated": ("stage", stages <= 4),
            "resolved": (("scale", "stage"), distance < 0.05),
            "found_time": (("scale", "stage"), found),
            "coarse_time": (("scale", "stage"), found + 1e-6),
            "beta_distance": (("scale", "stage"), distance),
            "theta_distance": (("scale", "stage"), distance),
        },
        coords={"scale": list(SCALES), "stage": stages},
    )
    heads = [one.copy(deep=True) for _ in range(3)]
    for k, head in enumerate(heads):  # errors of instances differ
        for name in ("found_time", "coarse_time"):
            head[name] = head.predicted_time + (1 + 0.1 * k) * (head[name] - head.predicted_time)
        head["predicted_constant"] = (1 + 0.1 * k) * head.predicted_constant
    return xr.concat(heads, "seed").transpose("scale", "seed", "stage", missing_dims="ignore")


def shift(run, scale, stages, factor):
    for name in ("found_time", "coarse_time"):
        run[name].values[SCALES.index(scale), :, stages] *= factor


def test_all_claims_hold_for_times_that_follow_the_law(ideal, outcomes):
    assert set(outcomes(ENTRY, ideal).values()) == {"reproduced"}


def test_what_does_not_depend_on_the_size_holds_at_the_quick_size(run, outcomes):
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in ("order", "correction", "plateaus")} == {"reproduced"}
    assert found["weights-converge"] == "undecided"  # at these scales all weights are as near as the flow resolves


def test_the_theory_predicts_the_constants_of_the_flow(run):
    """C_k of the flow, at the smallest scale where its tolerance still shows it, without any common code."""
    unit = 64 * np.log(10)
    measured = ((run.found_time.sel(scale=-64) - run.predicted_time) * unit).transpose("seed", "stage").values
    chosen = run.separated.transpose("seed", "stage").values == 1
    assert chosen.sum() >= 2
    expected = run.predicted_constant.transpose("seed", "stage").values[chosen]
    np.testing.assert_allclose(measured[chosen], expected, rtol=1e-2)


def late(run):
    shift(run, -32.0, slice(None), 1.05)


def one_late(run):
    shift(run, -32.0, 3, 1.15)


def swapped(run):
    for name in ("found_time", "coarse_time"):
        run[name].values[-1, 0, [2, 3]] = run[name].values[-1, 0, [3, 2]]


def slower_law(run):
    for name in ("found_time", "coarse_time"):
        run[name].values[:] = run.predicted_time.values * (1 + 1e-3 / np.sqrt(-run.scale.values[:, None, None]))


def constant_drifts(run):
    unit = 1024 * np.log(10)
    for name in ("found_time", "coarse_time"):
        run[name].values[2, 0, 1] += 0.01 * run.predicted_constant.values[0, 1] / unit


def off_the_law(run):
    shift(run, -4096.0, slice(None), 1 + 4e-6)


def correction_of_the_wrong_sign(run):
    run.predicted_constant.values[:] *= -1


def plateau_off(run):
    run.beta_distance.values[-1, 0, -1] = 0.06


def weights_stop(run):
    run.theta_distance.values[-1] = 1.0


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (late, "median-error"),
        (one_late, "largest-error"),
        (swapped, "order"),
        (slower_law, "rate"),
        (constant_drifts, "constants"),
        (off_the_law, "extrapolation"),
        (correction_of_the_wrong_sign, "correction"),
        (plateau_off, "plateaus"),
        (weights_stop, "weights-converge"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(ideal, outcomes, spoil, claim):
    spoil(ideal)
    assert outcomes(ENTRY, ideal)[claim] == "refuted"


def test_a_run_that_does_not_resolve_a_claim_leaves_it_undecided(ideal, outcomes):
    times = ("median-error", "largest-error", "order", "rate", "constants", "extrapolation", "correction")
    without = outcomes(ENTRY, ideal.isel(scale=[0, 1]).assign_coords(scale=[-8.0, -16.0]))
    assert {without[claim] for claim in times} == {"undecided"}
    assert outcomes(ENTRY, ideal.assign(separated=0 * ideal.separated))["constants"] == "undecided"
    assert outcomes(ENTRY, ideal.assign(theta_distance=0 * ideal.theta_distance))["weights-converge"] == "undecided"
    assert outcomes(ENTRY, ideal.assign(resolved=ideal.resolved & False))["plateaus"] == "undecided"
    # A difference to the coarser run as large as the distance to the bound decides nothing.
    doubtful = ideal.assign(coarse_time=ideal.coarse_time * (1 + 1e-5))
    assert outcomes(ENTRY, doubtful)["extrapolation"] == "undecided"
    ideal.found_time.values[0, 0, 0] = np.nan
    assert outcomes(ENTRY, ideal)["median-error"] == "undecided"


@pytest.mark.slow
def test_a_killed_run_keeps_its_finished_parts(tmp_path):
    class KilledError(Exception):
        pass

    def kill(fraction: float, note: str) -> None:
        if "alpha = 1e-4" in note and (tmp_path / "seed1.nc").exists():
            raise KilledError

    params = dataclasses.replace(
        ENTRY.configure("quick"), seeds=(1, 2), log10_scales=(-2.0, -4.0), samples=6, dim=2, stages=1
    )
    with pytest.raises(KilledError):
        ENTRY.run(params, RunContext(scratch=tmp_path, report=kill))
    kept = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert set(kept) == {"seed1.nc"}
    ENTRY.run(params, RunContext(scratch=tmp_path))
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in kept} == kept


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"log10_scales": "-8"}, "log10_scales must be two or more negative numbers, decreasing"),
        ({"stages": "0"}, "stages must be at least 1"),
        ({"tolerance": "0"}, "tolerance must be between"),
        ({"seeds": "-1"}, "seeds must be one or more integers, each at least 0, each once"),
    ],
)
def test_values_out_of_range_are_refused_at_once(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        ENTRY.configure("quick", settings)
