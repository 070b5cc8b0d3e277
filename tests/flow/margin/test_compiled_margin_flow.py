"""Compiled margin flows: the same as interpreted ones, without a second compilation, with the same refusals."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope._shared.compiled_functions import compilations
from saddlescope._shared.errors import InputError
from saddlescope.flow import FlowError, diagonal_margin_flow, key_query_margin_flow, matrix_margin_flow
from saddlescope.flow.margin.compiled_run import compiled_run
from saddlescope.flow.margin.key_query_system import KeyQuerySystem, Reduction
from saddlescope.flow.margin.systems import DiagonalSystem, MatrixSystem
from saddlescope.flow.solvers.ndf import Stepper
from saddlescope.flow.solvers.ndf_compiled import Plan, at_start, integrate
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.models.tokens.losses import SelectionLoss
from saddlescope.models.tokens.selection_loss_in_jax import SelectionLossInJax
from saddlescope.theory import l1_svm

UNEQUAL = gaussian_tokens(3, 4, 5, seed=1, spread=0.5)
POLICY = {"log_until": 50.0, "record": [-np.inf, 3.0, 50.0], "tolerance": 1e-7}


def _loss(data, kind="exponential"):
    return SelectionLoss(data.optimal_scores, data.gaps, kind)


def _keys_and_queries(loss, data, **policy):
    start = tuple(0.2 * np.random.default_rng(3).standard_normal((2, data.dim, 2)))
    return key_query_margin_flow(loss, data.differences, data.z, start, **policy)


def _compilations():
    return compilations(compiled_run)


RUNS = {
    "exponential": lambda loss, data, **policy: diagonal_margin_flow(loss, data.features, 0.1, **policy),
    "logistic": lambda loss, data, **policy: matrix_margin_flow(loss, data.differences, data.z, **policy),
}


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (RUNS["exponential"], "exponential"),
        (RUNS["logistic"], "logistic"),
        pytest.param(_keys_and_queries, "logistic", marks=pytest.mark.slow),
    ],
)
def test_a_compiled_flow_is_the_interpreted_one_within_the_tolerance(run, kind):
    loss = _loss(UNEQUAL, kind)
    slow, fast = (run(loss, UNEQUAL, **POLICY, compiled=compiled) for compiled in (False, True))
    assert fast.steps < 0.7 * slow.steps  # explicit ones, of order 8, are longer
    np.testing.assert_array_equal(fast.log_times, slow.log_times)
    bounds = {"margins": 1e-6, "log_rates": 1e-6, "log_excess": 1e-6, "margin_speeds": 1e-4}  # speeds follow rates
    for name, bound in bounds.items():
        ours, theirs = getattr(fast, name), getattr(slow, name)
        np.testing.assert_allclose(ours, theirs, rtol=bound, atol=bound * np.abs(theirs).max(), err_msg=name)
    np.testing.assert_array_equal(fast.rate_signs, slow.rate_signs)
    assert max(fast.energy_defects.max(), slow.energy_defects.max()) < 1e-6


def _systems():
    loss, scale, rng = _loss(UNEQUAL), np.full(UNEQUAL.dim, 0.1), np.random.default_rng(4)
    D, z = UNEQUAL.differences, UNEQUAL.z
    reduction = Reduction.of(D, z, *(0.2 * rng.standard_normal((2, UNEQUAL.dim, 2))))
    size = UNEQUAL.gaps.size
    return {
        "diagonal": (DiagonalSystem(loss, UNEQUAL.features, scale, scale / 2), size),
        "matrix": (MatrixSystem(loss, D, z, rng.standard_normal(UNEQUAL.gaps.shape)), size),
        "keys and queries": (KeyQuerySystem(loss, reduction), reduction.keys.size + reduction.query_weights.size),
    }


@pytest.mark.parametrize("name", ["diagonal", "matrix", "keys and queries"])
def test_wide_states_have_the_slopes_and_errors_of_the_system_in_numpy(name):
    (system, size), rng = _systems()[name], np.random.default_rng(5)
    y, error = np.append([0.7, -0.4], 0.3 * rng.standard_normal(size)), rng.standard_normal(size + 2)
    compiled = system.in_jax()
    wide = compiled.widened(jnp.asarray(y))
    slope, seen = compiled.driven(wide)
    whole = compiled.completed(slope, seen)
    np.testing.assert_allclose(whole[: size + 2], system.slope(y), rtol=1e-12)
    np.testing.assert_allclose(whole[size + 2 :], compiled.image(whole[2 : size + 2]), rtol=1e-12)
    np.testing.assert_allclose(compiled.slope(jnp.asarray(y)), system.slope(y), rtol=1e-12)
    relative = system.margins_jvp(y[2:], error[2:]) / (1 + np.abs(system.margins(y[2:])))
    found = compiled.watched(wide, compiled.widened(jnp.asarray(error)), seen)
    np.testing.assert_allclose(found, relative.ravel(), rtol=1e-11)


@pytest.mark.parametrize("kind", ["exponential", "logistic"])
def test_implicit_steps_of_compiled_code_are_those_of_the_interpreted_solver(kind):
    loss = _loss(UNEQUAL, kind)
    scale = np.full(UNEQUAL.dim, 0.1)
    system = DiagonalSystem(loss, UNEQUAL.features, scale, scale)
    first = np.zeros(UNEQUAL.gaps.size)
    system.set_time_unit(first)
    y, until, rtol = system.start(first), float(system.time_coordinate.at(np.array([50.0]))[0]), 1e-8
    atol = np.full(len(y), 1e-9)
    plan = Plan(*map(jnp.asarray, (np.array([until]), until, rtol, atol, 10_000)))

    @jax.jit
    def run(system):
        return integrate(system, *at_start(system, jnp.asarray(y), plan), plan)

    _, end = run(system.in_jax())
    system.evaluations, steps = 0, 0
    stepper = Stepper(system, y, until, rtol=rtol, atol=atol)
    while stepper.t < until:
        stepper.step()
        steps += 1
    assert (int(end.steps), int(end.evaluations)) == (steps, system.evaluations)
    np.testing.assert_allclose(end.differences[0], stepper.y, rtol=1e-7, atol=1e-7 * np.abs(stepper.y).max())


def test_data_of_the_same_shape_are_not_compiled_again():
    RUNS["exponential"](_loss(UNEQUAL), UNEQUAL, **POLICY, compiled=True)
    before = _compilations()
    other = gaussian_tokens(3, 4, 5, seed=2, spread=0.5)
    policy = {"log_until": 700.0, "record": np.linspace(1.0, 700.0, 7), "tolerance": 1e-6}
    flow = diagonal_margin_flow(_loss(other), other.features, 0.3, **policy, compiled=True)
    assert flow.status.ok
    assert _compilations() == before


@pytest.mark.parametrize("compiled", [False, True])
def test_data_that_cannot_be_separated_are_named_where_evaluations_run_out(compiled):
    data = gaussian_tokens(4, 5, 8, seed=6)
    policy = {"log_until": 23.0, "record": [], "tolerance": 1e-4, "max_evaluations": 1500, "compiled": compiled}
    with pytest.raises(FlowError, match=r"Sample 2 still has a margin of -0.967: .* which l1_svm, .* check;"):
        diagonal_margin_flow(_loss(data), data.features, 0.1, **policy)
    with pytest.raises(InputError, match="data must be separable"):
        l1_svm(data)


class _WrongInJax(SelectionLossInJax):
    def log_rates(self, margins):
        log_rates, signs = super().log_rates(margins)
        return log_rates + np.log([1.1, 1, 1])[:, None], signs


class _WrongLoss(SelectionLoss):
    def in_jax(self):
        return _WrongInJax(self.optimal_scores, self.gaps, False, self.equal_gaps)


class _OtherLoss(SelectionLoss):
    pass


def test_refusals_are_those_of_the_interpreted_flow():
    with pytest.raises(InputError, match="loss must have a method in_jax, of its own class"):
        RUNS["exponential"](_OtherLoss(UNEQUAL.optimal_scores, UNEQUAL.gaps), UNEQUAL, **POLICY, compiled=True)
    for compiled in (False, True):
        with pytest.raises(FlowError, match=r"max_evaluations=150 were used up at ln t = -[123]\.") as raised:
            RUNS["exponential"](_loss(UNEQUAL), UNEQUAL, **POLICY, compiled=compiled, max_evaluations=150)
        flow = raised.value.result
        assert len(flow.log_times) == len(flow.margins) == 2  # the start, and where it ended


@pytest.mark.slow
def test_wrong_rates_are_found_out_by_the_energy_of_a_compiled_flow():
    wrong = _WrongLoss(UNEQUAL.optimal_scores, UNEQUAL.gaps)
    with pytest.raises(FlowError, match="out of balance"):
        RUNS["exponential"](wrong, UNEQUAL, **POLICY, compiled=True)


@pytest.mark.slow
def test_a_large_system_that_keeps_its_factors_ends_where_the_interpreted_one_does():
    data = gaussian_tokens(12, 8, 60, seed=3)
    follow = partial(diagonal_margin_flow, _loss(data), data.features, 0.1, log_until=1e7, record=[0.0, 10.0, 1e3, 1e7])
    fast = follow(tolerance=1e-8, compiled=True)  # 1e-6 below: at late times a hundred times the tolerance
    for slow in (follow(tolerance=1e-10), follow(tolerance=1e-8)):
        np.testing.assert_allclose(fast.margins, slow.margins, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(fast.direction[1:], slow.direction[1:], atol=1e-6 * np.abs(slow.direction[1:]).max())
    assert fast.energy_defects.max() < 1e-5
