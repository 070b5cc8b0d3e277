"""Pairing of exponents with rates: sorted for generic directions, by direction where problems fall apart."""

import mpmath
import numpy as np
import pytest

from saddlescope.theory.low_rank.growth_exponents import Frame, growth, symmetric_growth


def rotation(rng, size):
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def test_generic_directions_pair_in_sorted_order_whatever_the_overlaps():
    rng = np.random.default_rng(0)
    frame = Frame(rotation(rng, 3), rotation(rng, 3), np.array([0.5, 0.2, 0.1]))
    force = rng.standard_normal((3, 3))
    grown = growth(frame, force)
    np.testing.assert_allclose(grown.rate, np.linalg.svd(force)[1])
    orientation = np.sign(np.linalg.det(force) * np.linalg.det(frame.U) * np.linalg.det(frame.V))
    np.testing.assert_array_equal(grown.start, frame.xi * [1, 1, orientation])
    np.testing.assert_allclose(grown.U @ np.diag(grown.rate) @ grown.V.T, force, atol=1e-14)


def test_commuting_directions_keep_to_themselves_and_opposed_ones_shrink():
    rng = np.random.default_rng(1)
    U, V = rotation(rng, 3), rotation(rng, 3)
    frame = Frame(U, V, np.array([0.9, 0.5, 0.3]))
    grown = growth(frame, U @ np.diag([-1.0, 2.0, 0.5]) @ V.T)
    np.testing.assert_allclose(grown.rate, [2.0, 1.0, 0.5])
    np.testing.assert_allclose(grown.start, [0.5, -0.9, 0.3])
    np.testing.assert_allclose(grown.arrivals(1e-9), [0.25, 1.9, 1.4])
    after = grown.after(0.2)
    np.testing.assert_allclose(after.xi, [0.9, 0.7, 0.4])
    # the largest is 0.5 + 0.2 * 2; the second has shrunk from 0.9 and is still (u_0, v_0), not (u_0, -v_0)
    np.testing.assert_allclose(np.abs(np.sum(after.U * U[:, [1, 0, 2]], axis=0)), 1)
    np.testing.assert_allclose(np.sum(after.U * U[:, [1, 0, 2]], 0) * np.sum(after.V * V[:, [1, 0, 2]], 0), 1)


def test_blocks_pair_within_themselves_and_keep_their_orientation():
    rng = np.random.default_rng(2)
    force = np.zeros((4, 4))
    force[:2, :2], force[2:, 2:] = 3 * rng.standard_normal((2, 2)), 0.1 * rng.standard_normal((2, 2))
    grown = growth(Frame(np.eye(4), np.eye(4), np.array([0.1, 0.2, 0.8, 0.7])), force)
    signs = [np.sign(np.linalg.det(block)) for block in (force[:2, :2], force[2:, 2:])]
    np.testing.assert_array_equal(grown.start, [0.2, 0.1 * signs[0], 0.8, 0.7 * signs[1]])
    assert min(signs) < 0


def test_what_does_not_grow_never_arrives():
    grown = growth(Frame(np.eye(2), np.eye(2), np.zeros(2)), np.diag([1.0, 1e-15]))
    assert np.isinf(grown.arrivals(1e-9)[1])


def test_symmetric_directions_have_rates_and_exponents_of_either_sign():
    grown = symmetric_growth(Frame(np.eye(3), np.eye(3), np.array([0.5, 0.2, -0.4])), np.diag([-2.0, 1.0, 0.5]))
    np.testing.assert_allclose(grown.rate, [1.0, 0.5, -2.0])
    np.testing.assert_allclose(grown.start, [0.2, -0.4, 0.5])
    np.testing.assert_allclose(grown.arrivals(1e-9), [0.8, 2.8, np.inf])
    np.testing.assert_allclose(grown.after(0.8).xi, [1.0, 0.0, -1.1])


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_pairing_is_the_growth_of_exact_products_of_exponentials(seed, symmetric):
    """log of the singular values of exp(N S_2) exp(N S_1) over N, in 1500 digits, against two plateaus."""
    rng, N, d = np.random.default_rng(seed), 300, 2 + seed % 2
    forces = [rng.standard_normal((d, d)) for _ in range(2)]
    if symmetric:
        forces = [G + G.T for G in forces]
    paired = symmetric_growth if symmetric else growth
    first = paired(Frame(np.eye(d), np.eye(d), np.zeros(d)), forces[0]).after(1.0)
    second = paired(first, forces[1])
    predicted = second.start + second.rate
    with mpmath.workdps(1500):
        Phi = mpmath.eye(d if symmetric else 2 * d)
        for G in forces:
            whole = G if symmetric else np.block([[np.zeros((d, d)), G], [G.T, np.zeros((d, d))]])
            S = mpmath.matrix(whole.tolist())
            values, vectors = mpmath.eigsy(S)
            Phi = vectors * mpmath.diag([mpmath.exp(N * x) for x in values]) * vectors.T * Phi
        found = [float(mpmath.log(s)) / N for s in mpmath.svd_r(Phi, compute_uv=False)][:d]
    sizes = predicted if symmetric else np.abs(predicted)
    np.testing.assert_allclose(np.sort(sizes)[::-1], found, atol=0.03)
