"""The authors' programs: the two discrete maps against exact flow, the claims, and spoilt runs that refute them."""

import numpy as np
import pytest

from saddlescope.flow import symmetric_flows
from saddlescope.papers.concept_learning.shared.discrete_maps import gradient_runs, printed_runs
from saddlescope.reproduction import find_entry

NAME = "concept-learning/authors-scripts"
ENTRY = find_entry(NAME)
# Shares of a few dozen starts are not resolved at the quick size.
BY_SIZE = {"triple", "quadruple", "learned-A", "gradient-descents", "printed-map-uniform", "printed-map-normal"}
A = np.array([0.3, 0.9, 1.6])
STARTS = 0.3 * np.random.default_rng(8).standard_normal((4, 3, 3))


def test_one_printed_step_is_equation_d2():
    runs = printed_runs(A, STARTS, step=0.1, steps=1, keep=1)
    D = np.diag(A)
    for start, W in zip(STARTS, runs.W[:, 1], strict=True):
        W0 = start @ start.T
        expected = W0 @ D + D @ W0 - (D @ W0 @ W0 + W0 @ W0 @ D + 2 * W0 @ D @ W0) / 2
        np.testing.assert_allclose((W - W0) / 0.1, expected, atol=1e-12)
    np.testing.assert_allclose(runs.times, [0.0, 0.05])  # half the time of gradient flow


@pytest.mark.parametrize(("runs", "time"), [(gradient_runs, 1.0), (printed_runs, 2.0)])
def test_both_maps_go_to_the_flow_in_first_order(runs, time):
    flow = symmetric_flows(A, STARTS, test_point=np.ones(3), until=1.0, tolerance=1e-11).W[:, -1]
    errors = []
    for steps in (1000, 2000):
        found = runs(A, STARTS, step=time / steps, steps=steps, keep=2)
        assert found.times[-1] == pytest.approx(1.0)
        errors.append(np.abs(found.W[:, -1] - flow).max())
    assert errors[0] < 5e-3
    assert 1.8 < errors[0] / errors[1] < 2.2


def test_a_map_that_blows_up_is_seen_to():
    unsound = printed_runs(A, np.array([[[3.0, 0.0, 0.0]] * 3]), step=0.5, steps=200, keep=10)
    assert bool(unsound.blown_up[0])
    assert bool(unsound.indefinite[0])
    assert np.isnan(unsound.losses(np.ones(3))[0, -1])
    sound = gradient_runs(A, STARTS, step=0.01, steps=200, keep=10)
    assert not np.any(sound.indefinite)


def test_claims_that_need_no_large_sample_hold(run, outcomes):
    found = outcomes(ENTRY, run)
    rest = {claim: outcome for claim, outcome in found.items() if claim not in BY_SIZE}
    assert rest == dict.fromkeys(rest, "reproduced")
    assert {found[claim] for claim in BY_SIZE} <= {"reproduced", "undecided"}


def test_shares_add_up(run):
    np.testing.assert_allclose(run.share.sum("descents"), 1.0)
    assert run.strength.isel(data=0, convention=1).values[:3] == pytest.approx(
        run.strength.isel(data=0, convention=0).values[:3] ** 2
    )


def no_triples(run):
    run.share.loc[{"convention": "A^2"}] = run.share.sel(convention="A")


def five(run):
    run.share.loc[{"data": "Figure 9", "descents": 5}] = 0.01


def not_learned(run):
    run.learned[:] = 0.6


def unsound_steps(run):
    run.gradient_lost[:] = 1


def other_descents(run):
    run.gradient_same[:] = 0.5


def other_losses(run):
    run.gradient_error[:] = 0.2


def other_programs(run):
    run.program_descents[1] = 2


def more_with_a(run):
    run.program_descents[2, :, 0] = 4


def sound_programs(run):
    run.program_lost[:] = np.inf


def sound_map(run):
    run.printed_lost[:] = 0.0


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (no_triples, ["triple", "quadruple", "commonest-A-squared"]),
        (five, ["at-most-concepts"]),
        (not_learned, ["learned-A", "learned-A-squared"]),
        (unsound_steps, ["gradient-sound"]),
        (other_descents, ["gradient-descents"]),
        (other_losses, ["gradient-error"]),
        (other_programs, ["programs-descents"]),
        (more_with_a, ["programs-descents-A"]),
        (sound_programs, ["programs-lost"]),
        (sound_map, ["printed-map-uniform", "printed-map-normal"]),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claims):
    spoil(run)
    found = outcomes(ENTRY, run)
    assert "reproduced" not in {found[claim] for claim in claims}


def test_values_out_of_range_are_refused_at_once(refused):
    refused(
        ({"steps": "2000"}, "steps must be exactly 2 integers, each at least 1, increasing"),
        ({"steps": "1,2,3"}, "steps must be exactly 2 integers"),
        ({"divisors": "0"}, "divisors must be one or more numbers, each at least 1"),
        ({"step": "1"}, "step must be between"),
    )
