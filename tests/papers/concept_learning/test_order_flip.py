"""The flip of the order: claims at the quick size, and spoilt runs that refute them."""

import numpy as np
import pytest

from saddlescope.reproduction import find_entry

NAME = "concept-learning/order-flip"
ENTRY = find_entry(NAME)


def test_claims_that_few_runs_resolve_hold(run, inside, outcomes):
    found = outcomes(ENTRY, run)
    assert {found[claim] for claim in ("single-starts", "theorem-every-run")} == {"reproduced"}
    assert "narrowing" in inside(ENTRY, run)
    assert found["one-layer-origin"] == "undecided"
    assert "refuted" not in found.values()


def spread(shape, size=0.01):
    return 1 + size * np.random.default_rng(0).standard_normal(shape)


def other_strengths(run):
    run["ratio"] = run.ratio * 1.2


def other_prediction(run):
    run["expected"] = 1 / run.expected


def no_narrowing(run):
    run.half.values[1] = run.half.values[0] * spread(run.half.values[0].shape)


def the_other_first(run):
    run["sgd_ratio"] = run.sgd_ratio / 20  # so that even the wide interval of two runs is off
    mean = run.sgd_half.values.mean(axis=2, keepdims=True)
    run["sgd_half"] = (run.sgd_half.dims, mean + 0.01 * (run.sgd_half.values - mean))


def another_theorem(run):
    run.theorem_half.values[..., 0] *= 1.3


def far_off_in_every_run(run):
    alike = run.theorem_half.values[:, :, :1]  # nearly the same for both, which leaves a small interval
    run.theorem_half.values[:] = alike
    run.sgd_half.values[:] = alike * spread(run.sgd_half.shape, 1e-4) * [1.2, 1.0]


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (other_strengths, "two-layers"),
        (other_prediction, "single-starts"),
        (no_narrowing, "narrowing"),
        (the_other_first, "one-layer"),
        (another_theorem, "theorem-every-run"),
        (far_off_in_every_run, "theorem"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


def test_starts_that_do_not_flip_leave_it_undecided(run, outcomes):
    run.half.values[:, :5, :, 1] = 100.0
    assert outcomes(ENTRY, run)["two-layers"] == "undecided"


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"mu": "2,1"}, "mu must be two or more positive numbers, increasing"),
        ({"mu": "1.9,2"}, "mu must be two numbers, the first below"),
        ({"mu": "1,2,3"}, "mu must be two numbers, the first below"),
        ({"clusters": "4"}, "clusters must be one or more integers, each one of 2, 3"),
        ({"clusters": "2,2"}, "clusters must be one or more integers, each one of 2, 3, each once"),
        ({"scales": "0.1"}, "scales must be two or more positive numbers, decreasing"),
        ({"starts": "1"}, "starts must be at least 2"),
    )
