"""Compiled explicit steps: those of SciPy's DOP853 until a system is stiff, and then implicit ones."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import DOP853

from saddlescope.flow.solvers.dop853_compiled import explicit_steps
from saddlescope.flow.solvers.ndf_compiled import EXHAUSTED, REACHED, RUNNING, STUCK, Plan, at_start, integrate


class _System(eqx.Module):
    """Any right-hand side, with the integral of the first entry's square as a last entry that influences no other."""

    slopes: Any = eqx.field(static=True)
    weight: float = eqx.field(static=True, default=0.0)

    def widened(self, y):
        return y

    def watched(self, wide, error, seen):
        return self.weight * error[:1]

    def driven(self, wide):
        return jnp.append(self.slopes(wide[:-1]), 0.0), wide[0]

    def completed(self, slope, seen):
        return slope.at[-1].set(seen**2)

    def slope(self, y):
        return self.completed(*self.driven(y))

    def newton(self, y, c):
        return jnp.eye(len(y)) - c * jax.jacfwd(self.slope)(y)

    def solve(self, factors, right):
        return jnp.linalg.solve(factors, right)


class _Imaged(_System):
    """The same, from an image of the state that is carried behind it: two combinations of its first two entries."""

    def widened(self, y):
        return jnp.append(y, jnp.stack([y[0] + y[1], y[0] - y[1]]))

    def watched(self, wide, error, seen):
        return self.weight * (error[-2:-1] + error[-1:]) / 2

    def driven(self, wide):
        total, difference = wide[-2], wide[-1]
        y = jnp.stack([total + difference, total - difference]) / 2
        return self.widened(jnp.append(self.slopes(y), 0.0)), y[0]

    def completed(self, slope, seen):
        return slope.at[2].set(seen**2)

    def slope(self, y):
        return self.completed(*self.driven(self.widened(y)))[:3]


def _predators(y):
    return jnp.stack([y[0] * (1 - y[1]), y[1] * (y[0] - 1)])


def _relaxing(y):
    return jnp.stack([-1000 * (y[0] - y[1]), -y[1]])


def _bounded(y):
    return jnp.where(y < 0.92, jnp.exp(y), jnp.nan)


def _run(slopes, start, until, record=(), rtol=1e-8, most=100_000, first=None, goes_on=True, weight=0.0, of=_System):
    system, start = of(slopes, weight), jnp.append(jnp.asarray(start), 0.0)
    recorded = jnp.asarray([*record, until])
    plan = Plan(recorded, *map(jnp.asarray, (until, rtol, np.full(len(start), rtol), most)))

    @jax.jit
    def run():
        records, position = at_start(system, start, plan)
        position = position if first is None else position._replace(h=jnp.asarray(first), differences=_of(position))
        records, position = explicit_steps(system, records, position, plan)
        return integrate(system, records, position, plan) if goes_on else (records, position)

    def _of(position):
        return position.differences.at[1].multiply(first / position.h)

    return run()


def _scipy(until, rtol, **options):
    system = _System(_predators)
    slope = jax.jit(system.slope)
    return DOP853(
        lambda t, y: np.asarray(slope(jnp.asarray(y))), 0.0, np.array([1.5, 0.7, 0.0]), until, rtol=rtol, **options
    )


def test_steps_are_those_of_scipy():
    until, rtol, h = 15.0, 1e-9, 1e-3
    _, end = _run(_predators, [1.5, 0.7], until, (), rtol, first=h, goes_on=False)
    solver, steps = _scipy(until, rtol, atol=rtol, first_step=h), 0
    while solver.status == "running":
        solver.step()
        steps += 1
    assert (int(end.code), int(end.steps)) == (REACHED, steps)
    assert int(end.evaluations) == solver.nfev + 11  # the record at the end is a step of its own
    np.testing.assert_allclose(end.differences[0], solver.y, rtol=1e-11)


def test_records_are_as_exact_as_the_steps_and_change_none():
    until, record, rtol = 15.0, np.linspace(0.0, 14.7, 50), 1e-7
    _, alone = _run(_predators, [1.5, 0.7], until, (), rtol, goes_on=False)
    records, end = _run(_predators, [1.5, 0.7], until, record, rtol, goes_on=False)
    assert int(end.steps) == int(alone.steps) < len(record)  # several in a step
    np.testing.assert_array_equal(end.differences[0], alone.differences[0])
    assert int(end.evaluations) == int(alone.evaluations) + 11 * 49
    solver, states = _scipy(until, 1e-12, atol=1e-12, max_step=0.05), [np.array([1.5, 0.7, 0.0])]
    while solver.status == "running":
        solver.step()
        states += [solver.dense_output()(time) for time in record if solver.t_old < time <= solver.t]
    np.testing.assert_allclose(records.states[:-1], states, rtol=3 * rtol)
    np.testing.assert_array_equal(records.spacings, 0)


@pytest.mark.parametrize("weight", [0.0, 30.0])
def test_an_image_that_is_carried_behind_the_state_changes_no_step(weight):
    record = np.linspace(0.0, 14.7, 50)
    records, end = _run(_predators, [1.5, 0.7], 15.0, record, 1e-7, goes_on=False, weight=weight)
    imaged, same = _run(_predators, [1.5, 0.7], 15.0, record, 1e-7, goes_on=False, weight=weight, of=_Imaged)
    assert (int(same.code), int(same.steps)) == (REACHED, int(end.steps))
    assert int(same.evaluations) == int(end.evaluations)
    np.testing.assert_allclose(imaged.states, records.states, rtol=1e-9)
    assert same.differences.shape == end.differences.shape


def test_an_image_is_left_behind_where_implicit_steps_go_on():
    records, end = _run(_relaxing, [3.0, 1.0], 10.0, np.linspace(0.001, 9.0, 30))
    imaged, same = _run(_relaxing, [3.0, 1.0], 10.0, np.linspace(0.001, 9.0, 30), of=_Imaged)
    assert int(same.code) == int(end.code) == REACHED
    np.testing.assert_allclose(imaged.states, records.states, atol=1e-6)


def test_errors_of_what_is_watched_shorten_the_steps_until_implicit_ones_are_longer():
    few, more, far_more = (
        _run(_predators, [1.5, 0.7], 15.0, rtol=1e-6, weight=weight, goes_on=False)[1] for weight in (0.0, 30.0, 1e6)
    )
    assert (int(few.code), int(more.code), int(far_more.code)) == (REACHED, REACHED, RUNNING)
    assert int(more.steps) > 1.2 * int(few.steps)


def test_implicit_steps_go_on_where_stability_limits_the_explicit_ones():
    until, record = 10.0, np.linspace(0.001, 9.0, 30)
    records, end = _run(_relaxing, [3.0, 1.0], until, record)
    times = np.append(record, until)
    slow = np.exp(-times)
    fast = 1000 / 999 * slow + (3 - 1000 / 999) * np.exp(-1000 * times)
    assert int(end.code) == REACHED
    assert int(end.steps) < 400  # 1700 explicit ones of h lambda = 6
    np.testing.assert_allclose(records.states[:, :2], np.stack([fast, slow], 1), atol=2e-6)
    integral = (1000 / 999) ** 2 * (1 - slow**2) / 2 + 2 * 1000 / 999 * (3 - 1000 / 999) / 1001
    integral += (3 - 1000 / 999) ** 2 / 2000
    np.testing.assert_allclose(records.states[5:, 2], integral[5:], atol=2e-6)


def test_the_position_for_implicit_steps_has_the_differences_of_the_solution():
    _, position = _run(_relaxing, [3.0, 1.0], 10.0, goes_on=False)
    assert (int(position.code), int(position.order)) == (RUNNING, 5)
    t, h = float(position.time), float(position.h)
    times = t - h * np.arange(6)
    slow = np.exp(-times)
    states = np.stack([1000 / 999 * slow + (3 - 1000 / 999) * np.exp(-1000 * times), slow], 1)
    for order in range(6):
        nabla = np.diff(states[::-1], n=order, axis=0)[-1]
        np.testing.assert_allclose(position.differences[order, :2], nabla, atol=1e-7)
    np.testing.assert_array_equal(position.differences[6:], 0)


def test_a_step_whose_slopes_are_not_finite_is_refused():
    records, end = _run(_bounded, [0.0], 0.6, first=0.6)
    assert int(end.code) == REACHED
    assert int(end.evaluations) > 12 * int(end.steps) + 12
    np.testing.assert_allclose(records.states[-1, 0], -np.log(0.4), rtol=1e-7)


def test_a_run_that_no_step_continues_ends_where_it_is():
    _, end = _run(lambda y: jnp.where(y < 0.5, 1.0, jnp.nan), [0.0], 1.0)
    assert (int(end.code), bool(end.finite)) == (STUCK, False)
    np.testing.assert_allclose([end.time, end.differences[0, 0]], 0.5, rtol=1e-9)


@pytest.mark.parametrize("most", [40, 200])
def test_evaluations_end_a_run(most):
    _, end = _run(_predators, [1.5, 0.7], 1e4, most=most)
    assert int(end.code) == EXHAUSTED
    assert most <= int(end.evaluations) < most + 23
