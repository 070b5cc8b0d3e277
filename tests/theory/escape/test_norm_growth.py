"""The growth law against gradient flow of a real escape direction by SciPy, and the printed law against both."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

from saddlescope.theory.escape.norm_growth import escape_time, norm_at
from saddlescope.theory.escape.rank_one import rank_one_escape_speed

# Off the circle's symmetry the rank-one optimum is inside an arc, where L_0 is differentiable.
X = np.array([[1.0, 0.2, -0.4], [0.1, 0.9, 1.0]])
G = np.array([[-1.0, -0.8, 0.1]])


@pytest.mark.parametrize("depth", [2, 3, 4, 6])
def test_it_is_gradient_flow_along_an_escape_direction(depth):
    best = rank_one_escape_speed(X.T, G.T, depth=depth)
    v, a, sign = best.weights[0][0], np.array([w.item() for w in best.weights[1:]]), np.sign(best.weights[-1].item())
    direction = np.concatenate([v, a])

    def slope(_, theta):
        """-grad of sign * prod(a) * sum_j G_j relu(v.x_j) by hand."""
        v, a = theta[:2], theta[2:]
        active = v @ X > 0
        neuron = float(G[0] @ np.maximum(v @ X, 0))
        others = np.array([np.prod(np.delete(a, i)) for i in range(len(a))])
        return -np.concatenate([np.prod(a) * (G[0] * active) @ X.T, others * neuron])

    assert_allclose(slope(0, direction), best.lower * direction, atol=1e-12)  # an escape direction of speed s
    assert sign == 1.0
    norm = 0.3
    until = 0.8 * escape_time(10.0 * norm, norm=norm, speed=best.lower, depth=depth)
    times = np.linspace(0, until, 5)
    start = norm * direction / np.linalg.norm(direction)
    flow = solve_ivp(slope, (0, until), start, "DOP853", t_eval=times, rtol=1e-13, atol=1e-15)
    found = np.linalg.norm(flow.y, axis=0)
    law = {"norm": norm, "speed": best.lower, "depth": depth}
    assert_allclose(found, norm_at(times, **law), rtol=1e-9)
    printed = norm_at(times, **law, printed=True)
    assert np.max(np.abs(printed / found - 1)) > 0.05  # as the paper prints it, it is another law
    assert_allclose(escape_time(found[-1], **law), until, rtol=1e-9)


@pytest.mark.parametrize("depth", [2, 3, 6, 16])
@pytest.mark.parametrize("norm", [1e-8, 0.1, 2.0])
def test_time_and_norm_are_each_others_inverse(depth, norm):
    law = {"norm": norm, "speed": 0.7, "depth": depth}
    for factor in (1.0, 1.0 + 1e-6, 3.0):
        time = escape_time(norm * factor, **law)
        assert_allclose(norm_at(time, **law), norm * factor, rtol=1e-9)


def test_the_printed_formulas_are_the_papers():
    theta, r, s, L = 0.2, 0.7, 0.4, 5
    law = {"norm": theta, "speed": s, "depth": L, "printed": True}
    assert_allclose(norm_at(0.9, **law), (theta ** (2 - L) + (2 - L) * L * s * 0.9) ** (1 / (2 - L)))
    assert_allclose(escape_time(r, **law), (theta ** (2 - L) + r ** (2 - L)) / ((L - 2) * L * s))
    law["depth"] = 2
    assert_allclose(norm_at(0.9, **law), theta * np.exp(2 * s * 0.9))
    assert_allclose(escape_time(r, **law), np.log(r / theta) / (2 * s))
    # Adding instead of taking away: at r = norm no time should pass.
    law["depth"] = L
    assert escape_time(theta, **law) > 1.0
    assert escape_time(theta, **{**law, "printed": False}) == 0.0


def test_above_depth_2_infinity_is_reached_in_finite_time():
    law = {"norm": 0.5, "speed": 2.0, "depth": 4}
    end = escape_time(np.inf, **law)
    assert_allclose(end, (0.5 / 2) ** -2 / (2 * 2.0))
    near, after = norm_at([end * (1 - 1e-12), end * 1.1], **law)
    assert 1e4 < near < np.inf
    assert after == np.inf
    assert escape_time(np.inf, norm=0.5, speed=2.0, depth=2) == np.inf
    assert escape_time(1.0, norm=1e-300, speed=1.0, depth=6) == np.inf  # beyond float64
