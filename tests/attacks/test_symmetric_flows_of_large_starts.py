"""Turns of the symmetric two-layer flow from large starts and moments of low rank, beside a flow in long double."""

from typing import Any

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.flow import symmetric_flows
from saddlescope.flow.two_layer.symmetric_path import symmetric_path

_ORDER, _SAMPLES = 16, 8  # terms of the series, and samples of each step
_STATIONARY = 1e-14  # size of the entries of W - 1 that move W, at the end


def reference_losses(a: Any, start: Any, x: Any, until: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss at samples of time, and the scale of its errors there, in long double by a Taylor series."""
    a, u, x = (np.asarray(each, np.longdouble) for each in (a, start, x))
    pairs, one, now = a[:, None] + a[None, :], np.eye(len(a), dtype=np.longdouble), np.longdouble(0)
    losses: list[Any] = []
    scales: list[Any] = []
    while now < until:
        terms: list[Any] = [u]
        errors: list[Any] = []
        for k in range(_ORDER):
            errors.append(sum(terms[j] @ terms[k - j].T for j in range(k + 1)) - (one if k == 0 else 0))
            rates = [pairs * error for error in errors]
            terms.append(-sum(rates[j] @ terms[k - j] for j in range(k + 1)) / (k + 1))
        last = max(np.abs(terms[-1]).max(), np.longdouble(1e-300))
        h = min(until - now, (np.longdouble(1e-17) * np.abs(u).max() / last) ** (np.longdouble(1) / _ORDER), 1.5)
        for part in np.linspace(0, 1, _SAMPLES, endpoint=False):
            here: Any = sum(term * (part * h) ** k for k, term in enumerate(terms))
            W = here @ here.T
            residual = W @ x - x
            length = np.sqrt(x @ x)
            losses.append(residual @ residual / 2)
            scales.append(max(length**2 / 2, np.sqrt(residual @ residual) * length * max(1, np.abs(W).max())))
        u, now = sum(term * h**k for k, term in enumerate(terms)), now + h
        if np.abs(np.where(pairs > 0, u @ u.T - one, 0)).max() < _STATIONARY * max(1, np.abs(u).max() ** 2):
            break
    return np.array(losses, float), np.array(scales, float)


def turns_beyond(losses, least):
    """Count the turns of a sampled curve, with a hysteresis that may differ from sample to sample."""
    turns, direction, extreme = 0, 0, losses[0]
    for value, small in zip(losses, least, strict=True):
        if direction == 0:
            if abs(value - extreme) > small:
                direction, extreme = np.sign(value - extreme), value
        elif (value - extreme) * direction > 0:
            extreme = value
        elif abs(value - extreme) > small:
            turns, direction, extreme = turns + 1, -direction, value
    return turns


def assert_turns(a, starts, x, until, tolerance):
    found = symmetric_flows(a, starts, test_point=x, until=until, tolerance=tolerance)
    for start, turns in zip(starts, found.turns, strict=True):
        losses, scales = reference_losses(a, start, x, until)
        most, least = (turns_beyond(losses, factor * tolerance * scales) for factor in (0.01, 100))
        assert least <= turns <= most, (a, start.tolist(), int(turns), least, most)


@pytest.mark.parametrize("x", [[1.0, 0.0], [0.3, -2.0]])
def test_a_moment_with_a_zero_eigenvalue_invents_no_turns(x):
    a = np.array([0.0, 1.0])
    assert_turns(a, np.array([[[30.0, 20.0], [10.0, 40.0]]]), np.array(x), 5.0, 1e-6)


@pytest.mark.parametrize("size", [0.1, 2.0, 5.0, 8.0])
def test_large_random_starts_turn_as_often_as_in_long_double(size):
    a = np.array([0.0, 0.5, 1.0])
    starts = size * np.random.default_rng(int(10 * size)).standard_normal((2, 3, 3))
    assert_turns(a, starts, np.ones(3), 20.0, 1e-8)


def test_a_moment_given_as_a_matrix_of_low_rank_has_exact_zeros():
    vector = np.array([[0.6, 0.8]])
    flows = symmetric_flows(
        vector.T @ vector, np.array([[[30.0, 20.0], [10.0, 40.0]]]), test_point=[1.0, 1.0], until=20.0, tolerance=1e-6
    )
    assert sorted(flows.strengths.tolist())[0] == 0.0
    assert flows.turns[0] <= 2


def test_a_start_that_cannot_be_followed_is_refused():
    a, start = np.array([0.0, 1.0]), np.array([[300.0, 200.0], [100.0, 400.0]])
    with pytest.raises(InputError, match="Pass smaller starts, or a smaller until"):
        symmetric_flows(a, start[None], test_point=[1.0, 1.0], until=200.0, tolerance=1e-6)
    with pytest.raises(InputError, match="Pass smaller starts, or a smaller until"):
        symmetric_path(a, start, until=200.0, tolerance=1e-6)
