"""The surrogate of the gradient: exact at its nodes, of the stated order between them, with a valid error estimate."""

import numpy as np

from saddlescope.flow.diagonal.gradient_surrogate import GradientSurrogate

RNG = np.random.default_rng(3)
SIZE = 6
MATRIX = RNG.standard_normal((SIZE, SIZE))
WAVES = RNG.standard_normal((SIZE, SIZE))


def gradient(x):
    """Smooth and not a polynomial; Jacobian MATRIX + WAVES^T diag(cos) WAVES."""
    return MATRIX @ x + WAVES.T @ np.sin(WAVES @ x)


def hessian(x):
    return MATRIX + WAVES.T @ np.diag(np.cos(WAVES @ x)) @ WAVES


def _model(points, *, columns=()):
    model = GradientSurrogate(points[0], gradient(points[0]), 1.0)
    model.add_columns(np.array(columns, int), hessian(points[0])[:, list(columns)])
    for point in points[1:]:
        model.learn(point, gradient(point))
    return model


def test_it_is_exact_at_every_node_and_knows_it():
    points = 0.3 * RNG.standard_normal((5, SIZE))
    model = _model(points, columns=(0, 2))
    np.testing.assert_array_equal(model.anchor, points[-1])
    for point in points:
        np.testing.assert_allclose(model.gradient(point), gradient(point), rtol=1e-7)
        assert model.spread(point) < 1e-6
    assert model.spread(points[-1] + 0.1 * RNG.standard_normal(SIZE)) > 1e-2


def test_a_node_held_beside_the_anchor_counts_as_much():
    points = 0.3 * RNG.standard_normal((4, SIZE))
    model = _model(points[:3])
    model.hold(points[3], gradient(points[3]))
    np.testing.assert_array_equal(model.anchor, points[2])
    for point in points:
        np.testing.assert_allclose(model.gradient(point), gradient(point), rtol=1e-7)


def test_with_all_columns_known_its_error_is_of_second_order_and_with_none_of_first():
    direction = RNG.standard_normal(SIZE)
    powers = []
    for columns in (range(SIZE), ()):
        model = _model(np.zeros((1, SIZE)), columns=columns)
        errors = [np.abs(model.gradient(e * direction) - gradient(e * direction)).max() for e in (1e-2, 1e-3)]
        powers.append(np.log10(errors[0] / errors[1]))
    assert powers[0] > 1.7
    assert powers[1] < 1.3


def test_its_hessian_is_its_derivative():
    model = _model(0.3 * RNG.standard_normal((4, SIZE)), columns=(1, 4))
    x, e = 0.2 * RNG.standard_normal(SIZE), 1e-6
    for place, column in enumerate(model.columns):
        step = e * np.eye(SIZE)[column]
        difference = (model.gradient(x + step) - model.gradient(x - step)) / (2 * e)
        np.testing.assert_allclose(model.hessian(x)[:, place], difference, rtol=1e-6, atol=1e-7)


def test_columns_can_be_replaced_and_the_nodes_stay_exact():
    points = 0.3 * RNG.standard_normal((3, SIZE))
    model = _model(points, columns=(1,))
    model.set_columns(np.array([0, 5]), hessian(points[-1])[:, [0, 5]])
    np.testing.assert_array_equal(model.columns, [0, 5])
    for point in points:
        np.testing.assert_allclose(model.gradient(point), gradient(point), rtol=1e-7)
