"""Ladder of widths: plateaus of wide runs, closed forms, saddles of wider networks, and every status."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saddlescope.flow import FactorInit, factored_flow, unit_flow
from saddlescope.measure import Stage, Staircase, find_stages
from saddlescope.papers.beyond.shared.units import (
    context_loss,
    coordinate,
    half_square,
    linear_head,
    linear_neuron,
    relu_neuron,
)
from saddlescope.theory import width_ladder

BAR = 1e-4  # of the initial loss, fixed before any run
FLAT = 1e-5  # change of the loss, in units of the initial loss, over the middle half of a resolved plateau


def quadratic_neuron(theta, x):
    return theta["a"] * (theta["w"] @ x) ** 2


def orthonormal(rng, d):
    return np.linalg.qr(rng.standard_normal((d, d)))[0]


def diagonal_case(rng):
    """Five correlated coordinates, two units each."""
    X = rng.standard_normal((12, 5)) @ (np.eye(5) + 0.4 * rng.standard_normal((5, 5)))
    weights = rng.standard_normal((10, 2))
    flow = {"log_scale": -110.0, "tolerance": 1e-6}
    return (
        coordinate,
        (X, X @ (2 * rng.standard_normal(5))),
        half_square,
        weights,
        {"kinds": 5, "log_scale": -110.0},
        flow,
    )


def linear_case(rng):
    """Six neurons on correlated inputs."""
    X = rng.standard_normal((200, 4)) @ np.diag([1.0, 1.2, 0.9, 1.0])
    target = orthonormal(rng, 4)[:, :3] * np.array([3.0, 1.0, 0.3]) @ orthonormal(rng, 3)
    weights = {"in": rng.standard_normal((6, 4)), "out": rng.standard_normal((6, 3))}
    return (
        linear_neuron,
        (X, X @ target),
        half_square,
        weights,
        {},
        {"log_scale": -34.0, "tolerance": 1e-6},
    )


def attention_case(rng):
    """Five linear heads that learn regression in context, with three principal components."""
    values, count = np.array([2.0, 1.4, 0.9]), 16
    basis = orthonormal(rng, 3)
    covariance = (basis * values) @ basis.T
    second = covariance @ covariance * (1 + 1 / count) + values.sum() * covariance / count
    data = np.zeros((1, 1)), {"covariance": covariance[None], "second": second[None]}
    weights = {"k": rng.standard_normal((5, 3)), "q": rng.standard_normal((5, 3)), "v": rng.standard_normal(5)}
    return linear_head, data, context_loss, weights, {}, {"degree": 3.0, "log_scale": -14.0, "tolerance": 1e-7}


def relu_case(rng):
    """Six ReLU neurons on orthogonal samples, two of which see all samples."""
    labels = rng.uniform(0.5, 1.5, 6) * np.repeat([1.0, -0.6], 3)
    into = rng.standard_normal((6, 6))
    into[:2] = np.abs(into[:2])
    weights = {"a": np.tile([1.0, -1.0], 3) * np.linalg.norm(into, axis=1), "w": into}
    return (
        relu_neuron,
        (np.eye(6), labels),
        half_square,
        weights,
        {},
        {"degree": 2.0, "log_scale": -160.0, "tolerance": 1e-6},
    )


def quadratic_case(rng):
    """Six quadratic neurons and a teacher of three orthogonal ones."""
    X = rng.standard_normal((60, 4))
    labels = (X @ orthonormal(rng, 4)[:, :3]) ** 2 @ np.array([2.0, -1.4, 0.8])
    weights = {"a": rng.standard_normal(6), "w": rng.standard_normal((6, 4))}
    return (
        quadratic_neuron,
        (X, labels),
        half_square,
        weights,
        {},
        {"degree": 3.0, "log_scale": -14.0, "tolerance": 1e-7},
    )


CASES = {
    "diagonal": diagonal_case,
    "linear": linear_case,
    "attention": attention_case,
    "relu": relu_case,
    "quadratic": quadratic_case,
}


def by_factors(family, data, weights, options, until, record):
    """Return a run of units that are products, where rounding would decide a run of their norms and directions."""
    X, Y = data
    if family == "linear":
        pairs = [(weights["in"].T, weights["out"].T)]
    else:  # two units of each coordinate
        pairs = [(u[None], v[None]) for u, v in np.moveaxis(weights.reshape(5, 2, 2), 2, 1)]

    def loss(products):
        joined = products[0] if family == "linear" else jnp.concatenate([product.ravel() for product in products])
        return jnp.mean(jax.vmap(half_square)(X @ joined, jnp.asarray(Y)))

    start = FactorInit(pairs, options["log_scale"])
    return factored_flow(loss, start, until=until, record=record, tolerance=options["tolerance"])


def wide_run(family, run):
    """Return the staircase of a run with the number of distinct units, found in its weights alone."""
    if family == "linear":  # units are mixed: their number is the rank of the map
        return find_stages(run.times, run.losses, run.singular_values[:, 0], level=0.02, time_unit=run.time_unit)
    if family == "diagonal":  # the norm of a coordinate's units
        strength = np.sqrt(2 * run.singular_values[:, :, 0])
        return find_stages(run.times, run.losses, strength, level=0.1, time_unit=run.time_unit)
    thetas = run.norms[..., None] * run.directions  # units of one direction at the end
    near = np.abs(np.einsum("ua,va->uv", run.directions[-1], run.directions[-1])) > 0.999
    groups = np.argmax(near, axis=1)
    strength = np.array([np.linalg.norm(thetas[:, groups == one], axis=(1, 2)) for one in np.unique(groups)]).T
    return find_stages(run.times, run.losses, strength, level=0.1, time_unit=run.time_unit)


def resolved(run, stage):
    """Return True if the loss is flat over the middle half of a stage."""
    length = stage.end - stage.start
    inside = (run.times > stage.start + length / 4) & (run.times < stage.end - length / 4)
    return inside.sum() >= 2 and np.ptp(run.losses[inside]) < FLAT * run.losses[0]


def held_against_a_wide_run(family, seed):
    """Return (error, found units, units of the rung) of every resolved plateau, and the ladder."""
    unit, data, loss, weights, ladder_options, flow_options = CASES[family](np.random.default_rng(seed))
    one = jax.tree.map(lambda leaf: np.zeros(leaf.shape[1:]), weights)
    count = len(jax.tree.leaves(weights)[0])
    ladder = width_ladder(unit, data, loss, range(min(count, 6) + 1), parameters=one, weights=weights, **ladder_options)
    growing = [rung.utility for rung in ladder.rungs if rung.saddle]
    until = (2.5 if ladder.degree == 2 else 10.0) * sum(1 / (ladder.degree * utility) for utility in growing)
    record = np.linspace(0, until, 3001)
    if family in ("linear", "diagonal"):
        run = by_factors(family, data, weights, flow_options, until, record)
    else:
        run = unit_flow(unit, data, loss, weights, until=until, record=record, **flow_options)
    stairs = wide_run(family, run)
    compared = ladder.compare(stairs)
    rows = [
        (match.error, match.rank, match.units)
        for match, stage in zip(compared.matches, stairs.stages, strict=True)
        if resolved(run, stage)
    ]
    return rows, ladder


def check_against_a_wide_run(family, seed):
    rows, ladder = held_against_a_wide_run(family, seed)
    errors, found, units = np.transpose(rows)
    assert np.max(np.abs(errors)) <= BAR
    assert found.tolist() == units.tolist()
    between = [count for count in found if 0 < count < ladder.rungs[-1].units]
    assert between, "a plateau between the first and the last must be resolved"
    assert max(found) == ladder.rungs[-1].units
    assert all(rung.stationary for rung in ladder.rungs)
    assert all(rung.saddle for rung in ladder.rungs[:-1])
    assert ladder.status.value == "complete" or ladder.rungs[-1].saddle == (ladder.status.value == "no_start")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("family", CASES)
def test_plateaus_of_wide_runs_are_stationary_points_of_narrow_networks(family, seed):
    check_against_a_wide_run(family, seed)


def test_the_plateau_need_not_have_the_lowest_loss_of_its_width():
    """L = sum v_k (beta_k - b_k)^2 / 2: v b decides who is learned first, v b^2 whose loss would be lowest."""
    v, b = np.array([4.0, 1.0]), np.array([0.5, 1.2])
    data = np.diag(np.sqrt(2 * v)), np.sqrt(2 * v) * b
    ladder = width_ladder(coordinate, data, half_square, [0, 1, 2], parameters=np.zeros(2), kinds=2)
    gains = v * b**2 / 2
    np.testing.assert_allclose(ladder.losses, [gains.sum(), gains[1], 0.0], atol=1e-12)
    assert gains[0] < gains[1]
    assert ladder.rungs[1].kinds == (0,)
    np.testing.assert_allclose([rung.utility for rung in ladder.rungs], [1.0, 0.6, 0.0], atol=1e-9)  # v b / 2


PARAMETERS = {"in": np.zeros(2), "out": np.zeros(2)}


def linear_ladder(Y, widths, loss=half_square, **given):
    data = np.eye(2), np.asarray(Y, float)
    return width_ladder(linear_neuron, data, loss, widths, parameters=PARAMETERS, **given)


def test_linear_networks_have_the_losses_of_their_singular_values_in_the_next_width_asked_for():
    rng = np.random.default_rng(3)
    target = orthonormal(rng, 2) * np.array([2.0, 1.3]) @ orthonormal(rng, 2)
    ladder = linear_ladder(target, [0, 2])
    assert [(rung.width, rung.units, rung.embedded) for rung in ladder.rungs] == [(0, 0, 2), (2, 2, 3)]
    assert (ladder.status.value, [rung.saddle for rung in ladder.rungs]) == ("complete", [True, False])
    first = ladder.initial_loss
    np.testing.assert_allclose(ladder.losses, [(2.0**2 + 1.3**2) / 4, 0.0], atol=1e-12)
    middle = linear_ladder(target, [1, 2])
    np.testing.assert_allclose(middle.losses, [1.3**2 / 4, 0.0], atol=1e-12)
    assert middle.rungs[0].stationary
    assert middle.rungs[0].split_curvature < -0.01, "copies of a linear neuron separate"
    wide = Staircase((Stage(0.0, 1.0, first * (1 + 1e-4), 0), Stage(1.0, 2.0, 0.9 * first, 2)), "t")
    compared = ladder.compare(wide)
    assert (compared.matches[1].width, compared.missed, compared.equal_counts) == (0, (2,), False)
    np.testing.assert_allclose(compared.errors, [1e-4, -0.1], atol=1e-12)


@pytest.mark.parametrize(("inputs", "targets"), [(1.0, 1e-24), (1.0, 1e30), (1e-30, 1.0), (1e16, 1.0)])
def test_units_of_measurement_do_not_matter(inputs, targets):
    data, first = (inputs * np.eye(2), targets * np.diag([2.0, 1.3])), targets**2 / 4
    ladder = width_ladder(linear_neuron, data, half_square, [0, 1, 2], parameters=PARAMETERS)
    np.testing.assert_allclose(np.array(ladder.losses) / first, [2.0**2 + 1.3**2, 1.3**2, 0.0], atol=1e-8)


def test_every_end_is_one_sentence():
    nothing = linear_ladder(np.zeros((2, 2)), [0, 1, 2])
    assert (nothing.status.value, nothing.losses) == ("converged", (0.0,))
    assert "nothing will ever be learned" in nothing.message
    along = {name: np.outer(np.arange(1.0, 5.0), [1.0, 0.0]) for name in PARAMETERS}
    blind = linear_ladder(np.diag([2.0, 1.0]), [0, 1, 2], weights=along)  # to the second singular vector
    assert (blind.status.value, len(blind.rungs)) == ("no_start", 2)
    assert "pass weights with more units" in blind.message


@pytest.mark.slow
def test_losses_without_a_minimum_or_a_value_end_the_ladder():
    unbounded = linear_ladder(np.eye(2), [0, 1, 2], lambda f, y: jnp.sum(jnp.exp(-f)) + 0 * jnp.sum(y))
    assert (unbounded.status.value, len(unbounded.rungs)) == ("no_minimum", 1)
    X = np.random.default_rng(6).standard_normal((40, 2))
    swish = lambda theta, x: theta["out"] * jax.nn.swish(theta["in"] @ x)  # noqa: E731
    inputs, zero = np.concatenate([X, -X]), {"in": np.zeros(2), "out": np.zeros(())}
    valley = width_ladder(swish, (inputs, np.abs(inputs[:, 0])), half_square, range(3), parameters=zero)
    assert "at infinity" in valley.message
    broken = lambda f, y: jnp.where(jnp.sum(f) > 1, jnp.nan, half_square(f, y))  # noqa: E731
    ended = linear_ladder(np.diag([2.0, 1.0]), [0, 1, 2], broken)
    assert (ended.status.value, len(ended.rungs)) == ("not_finite", 1)
