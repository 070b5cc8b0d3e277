"""Figure 10: noise has the requested size, training after it agrees with a plain solver, and claims can fail."""

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from saddlescope.papers.gradual_rank.figure_10 import displacement, remaining
from saddlescope.papers.gradual_rank.shared.noisy_training import beta_of, sgd_after, state_at
from saddlescope.reproduction import find_entry

NAME = "gradual-rank/figure-10"
ENTRY = find_entry(NAME)


def test_the_weights_do_not_return(run):
    assert remaining(run.noisy, run.weights).min("step").max() > 0.5  # of the noise that changes u² − v²


def test_noise_reaches_exactly_what_is_not_negligible(run):
    params = ENTRY.configure("quick")
    before, after = run.weights.isel(step=0), run.noisy.isel(step=0)
    reached = abs(before) > params.threshold
    assert 0 < reached.sum() < reached.size
    assert ((abs(after - before) > 1e-9) == reached).all()
    noise = (after - before).values[reached.values]
    assert np.std(noise) == pytest.approx(params.noise, rel=3 / np.sqrt(2 * noise.size))


def test_what_is_negligible_keeps_its_logarithms(run):
    params = ENTRY.configure("quick")
    before = state_at(run, 1)
    after = params.disturbed(before, 1)
    tiny = ~run.learned.sel(moment=1).values
    assert tiny.any()
    assert (after.log_sum[tiny] == before.log_sum[tiny]).all()
    assert (after.log_difference[tiny] == before.log_difference[tiny]).all()


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_plain_solver_in_the_weights_agrees_while_no_coordinate_enters(run, moment):
    params = ENTRY.configure("quick")
    network = params.task().network
    slope = jax.jit(jax.grad(lambda w: network(w[0] * w[1])))
    here = run.sel(moment=moment)
    step = int(np.searchsorted(here.since.values, 20.0))
    start = here.noisy.isel(step=0).values
    plain = solve_ivp(
        lambda t, w: -np.asarray(slope(w.reshape(start.shape))).ravel(),
        (0.0, float(here.since[step])),
        start.ravel(),
        method="DOP853",
        rtol=1e-9,
        atol=1e-9,
    )
    np.testing.assert_allclose(here.noisy.values[step], plain.y[:, -1].reshape(start.shape), atol=1e-4)
    assert abs(here.noisy.values[step] - start).max() > 1e-2


def test_remaining_is_one_at_first_and_half_where_half_is_left(run):
    run.noisy.values[:] = (run.weights.isel(step=0) + 0.3 * np.sign(run.weights.isel(step=0))).values[:, None]
    run.weights.values[:] = run.weights.isel(step=slice(0, 1)).values
    run.noisy.values[:, 1] = (run.noisy.values[:, 0] + run.weights.values[:, 0]) / 2
    np.testing.assert_allclose(remaining(run.noisy, run.weights).values[:, :2], [[1.0, 0.5]] * 3, rtol=1e-12)
    assert displacement(run.noisy, run.weights).values[0, 0] == pytest.approx(
        0.3 * np.sqrt(run.sizes["coordinate"] * 2)
    )


def test_sgd_starts_where_the_flow_does_and_stays_near_it(run):
    for noise, flow in (("with", run.noisy), ("without", run.weights)):
        sgd = run.sgd.sel(noise=noise)
        for order in run.order:
            np.testing.assert_allclose(sgd.sel(order=order).isel(sgd_step=0), flow.isel(step=0), rtol=1e-9, atol=1e-30)
        end = beta_of(flow).isel(step=-1) - beta_of(sgd).isel(sgd_step=-1)
        assert float(abs(end).max()) < 0.05
    assert float(abs(run.sgd.isel(order=0) - run.sgd.isel(order=1)).max()) > 1e-4  # other minibatches


def test_both_trainings_by_sgd_see_the_same_minibatches(run):
    params, start = ENTRY.configure("quick"), state_at(run, 1)
    network = params.task().network
    with jax.enable_x64(True):
        made = sgd_after(network, (start, start), np.array([0.0, 5.0]), rate=0.5, batch=20, orders=(3,)).sgd
    np.testing.assert_array_equal(made.sel(noise="with"), made.sel(noise="without"))
    assert float(abs(made.isel(sgd_step=1) - made.isel(sgd_step=0)).max()) > 0
