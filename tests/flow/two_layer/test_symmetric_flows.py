"""The symmetric two-layer flow: against closed forms, independent solvers, its conservation law and its invariances."""

import mpmath
import numpy as np
import pytest

from references import symmetric_map_series
from saddlescope.flow import Ending, symmetric_flows
from saddlescope.measure import find_descents

MU_3, MU_4 = np.array([1.0, 1.5, 2.2]), np.array([1.0, 1.5, 2.2, 2.7])  # Figures 8 and 9
A_3 = MU_3**2 / 3 + 0.05**2
A_4 = MU_4**2 / 4 + np.array([0.05, 0.05, 0.05, 0.5]) ** 2


def _starts(n, d, seed=0, scale=0.1, width=None):
    return scale * np.random.default_rng(seed).standard_normal((n, d, width or d))


def _with_descents(a, x, counts):
    """A start with each of these numbers of descents, from positive entries."""
    starts = np.abs(_starts(4000, len(a), seed=7))
    found = find_descents(symmetric_flows(a, starts, test_point=x, until=40.0, tolerance=1e-8).turning_losses)
    chosen = [np.flatnonzero(found.counts == count)[counts[:n].count(count)] for n, count in enumerate(counts)]
    return starts[chosen]


@pytest.mark.parametrize(("a", "x", "counts"), [(A_3, MU_3, (2, 2, 3, 3)), (A_4, MU_4, (3, 4, 4))], ids=["3", "4"])
def test_as_series_of_the_map_in_long_doubles(a, x, counts):
    """Another variable, W, another arithmetic, another step: W within 1e-10, the extrema where dL/dt is 0."""
    starts = _with_descents(a, x, counts)
    flows = symmetric_flows(a, starts, test_point=x, until=25.0, record=np.linspace(0, 10, 6), tolerance=1e-11)
    np.testing.assert_array_equal(find_descents(flows.turning_losses).counts, counts)
    for i, start in enumerate(starts):
        turns = flows.turning_times[i, 1 : flows.turns[i] + 1]
        recorded = flows.times[:-1]
        near = np.sort(np.concatenate([recorded, turns - 1e-6, turns + 1e-6]))
        W, slopes = symmetric_map_series(a, start @ start.T, near)
        np.testing.assert_allclose(flows.W[i, :-1], W[np.searchsorted(near, recorded)], atol=1e-10, rtol=0)
        g = np.einsum("ti,tij,j->t", (W @ x - x).astype(float), slopes.astype(float), x)
        signs = np.sign(g[[np.searchsorted(near, turns - 1e-6), np.searchsorted(near, turns + 1e-6)]])
        np.testing.assert_array_equal(signs[0] * signs[1], -1)  # each turn within 1e-6


def test_as_mpmath_to_thirty_digits():
    a, x, start = np.array([0.5, 1.25]), np.array([1.0, 2.0]), np.array([[0.125, -0.0625], [0.25, 0.1875]])
    flows = symmetric_flows(a, start[None], test_point=x, until=3.0, tolerance=1e-11)
    with mpmath.workdps(30):
        A, one = mpmath.diag(a.tolist()), mpmath.eye(2)

        def slope(_, u):
            U = mpmath.matrix([[u[0], u[1]], [u[2], u[3]]])
            E = U * U.T - one
            return list(-(A * E + E * A) * U)

        u = mpmath.odefun(slope, 0, start.ravel().tolist())(3)
        U = mpmath.matrix([[u[0], u[1]], [u[2], u[3]]])
        W = np.array((U * U.T).tolist(), float)
    np.testing.assert_allclose(flows.W[0, -1], W, atol=1e-12, rtol=0)


def test_diagonal_starts_are_logistic():
    scales = np.array([[1e-1, 1e-3, 1e-8], [0.5, 1e-2, 1.5]])
    times = np.linspace(0, 15, 31)
    flows = symmetric_flows(
        A_3, np.stack(list(map(np.diag, scales))), test_point=MU_3, until=15.0, record=times, tolerance=1e-11
    )
    w = scales[:, None] ** 2
    grown = w * np.exp(4 * A_3 * times[:, None])
    expected = grown / (1 - w + grown)
    np.testing.assert_allclose(np.diagonal(flows.W, axis1=2, axis2=3), expected, atol=1e-9)
    np.testing.assert_allclose(flows.losses, np.sum((MU_3 * (1 - expected)) ** 2, axis=-1) / 2, atol=1e-9)
    assert np.abs(flows.W * (1 - np.eye(3))).max() == 0


def test_equal_strengths_are_logistic_in_the_eigenvalues_of_the_start():
    start = _starts(1, 3)[0]
    flows = symmetric_flows(np.full(3, 0.7), start[None], test_point=np.ones(3), until=4.0, tolerance=1e-11)
    w, V = np.linalg.eigh(start @ start.T)
    grown = w * np.exp(4 * 0.7 * 4.0)
    np.testing.assert_allclose(flows.W[0, -1], V * (grown / (1 - w + grown)) @ V.T, atol=1e-10)


@pytest.mark.parametrize(("a", "x"), [(A_3, MU_3), (A_4, MU_4)], ids=["3", "4"])
def test_log_det_grows_by_its_law(a, x):
    """d/dt log det W = 4 tr(A (1 - W)), by Gauss's formula on records of W."""
    nodes, weights = np.polynomial.legendre.leggauss(12)
    panels = np.linspace(0, 12, 41)
    half = np.diff(panels)[:, None] / 2
    times = panels[:-1, None] + half * (1 + nodes)
    flows = symmetric_flows(
        a,
        _starts(4, len(a), seed=3),
        test_point=x,
        until=12.0,
        record=np.append(times.ravel(), panels),
        tolerance=1e-11,
    )

    def rows(some):
        return flows.W[:, np.searchsorted(flows.times, some)]

    growth = 4 * np.einsum("i,nkjii->nkj", a, np.eye(len(a)) - rows(times))
    grown = np.cumsum(np.sum(growth * half * weights, axis=-1), axis=1)
    logs = np.linalg.slogdet(rows(panels))[1]
    assert np.all(grown[:, -1] > 1)
    np.testing.assert_allclose(logs[:, 1:] - logs[:, :1], grown, atol=1e-10, rtol=0)
    assert flows.drifts.max() < 1e-10


def test_what_does_not_change_the_flow():
    rng = np.random.default_rng(5)
    starts, times = _starts(6, 3), np.linspace(0, 12, 7)

    def run(a, starts, x):
        return symmetric_flows(a, starts, test_point=x, until=12.0, record=times, tolerance=1e-11)

    flows = run(A_3, starts, MU_3)
    Q, R = (np.linalg.qr(rng.standard_normal((d, d)))[0] for d in (3, 5))
    wide = np.concatenate([starts, np.zeros((6, 3, 2))], axis=2) @ R
    order = np.array([2, 0, 1])
    cases = {
        "U Q": (run(A_3, starts @ Q, MU_3), flows.W),
        "a wide U": (run(A_3, wide, MU_3), flows.W),
        "permuted": (run(A_3[order], starts[:, order], MU_3[order]), flows.W[:, :, order][..., order]),
        "rotated": (run(Q * A_3 @ Q.T, Q @ starts, Q @ MU_3), Q @ flows.W @ Q.T),
    }
    for changed, W in cases.values():
        np.testing.assert_allclose(changed.W, W, atol=1e-11)
        np.testing.assert_allclose(changed.turning_times, flows.turning_times, atol=1e-8)
        np.testing.assert_allclose(changed.turning_losses, flows.turning_losses, atol=1e-10)
    again = symmetric_flows(A_3, run(A_3, starts, MU_3).ends, test_point=MU_3, until=8.0, tolerance=1e-11)
    whole = symmetric_flows(A_3, starts, test_point=MU_3, until=20.0, tolerance=1e-11)
    np.testing.assert_allclose(again.W[:, -1], whole.W[:, -1], atol=1e-11)


def test_time_and_strength_are_one():
    starts = _starts(5, 3)
    flows, faster = (
        symmetric_flows(c * A_3, starts, test_point=MU_3, until=9.0 / c, tolerance=1e-11) for c in (1.0, 50.0)
    )
    np.testing.assert_allclose(50 * faster.turning_times, flows.turning_times, atol=1e-9)
    np.testing.assert_allclose(faster.W, flows.W, atol=1e-12)


def test_a_lower_tolerance_is_kept():
    starts, times = np.abs(_starts(50, 4)), np.linspace(0, 20, 21)
    exact = symmetric_flows(A_4, starts, test_point=MU_4, until=20.0, record=times, tolerance=1e-12)
    for tolerance in (1e-4, 1e-6, 1e-9):
        flows = symmetric_flows(A_4, starts, test_point=MU_4, until=20.0, record=times, tolerance=tolerance)
        assert np.abs(flows.W - exact.W).max() < tolerance


def test_what_is_learned_comes_to_rest():
    """However long the run: no step is beyond where the series is stable, so that rounding does not grow."""
    for tolerance in (1e-11, 1e-6, 1e-3):
        flows = symmetric_flows(A_3, _starts(20, 3), test_point=MU_3, until=1e6, tolerance=tolerance)
        np.testing.assert_allclose(
            flows.W[:, -1], np.broadcast_to(np.eye(3), (20, 3, 3)), atol=max(1e-12, tolerance / 1e4)
        )


def test_failures_are_distinguished():
    rng = np.random.default_rng(2)
    low = _starts(1, 3, width=2)[0] @ rng.standard_normal((2, 3))
    starts = np.stack([_starts(1, 3)[0], low, 1e-5 * np.eye(3)])
    flows = symmetric_flows(A_3, starts, test_point=MU_3, until=10.0, tolerance=1e-11)
    assert list(flows.endings) == [Ending.LEARNED, Ending.RANK_DEFICIENT, Ending.PLATEAU]
    np.testing.assert_array_equal(flows.ranks, [3, 2, 3])
    assert [flows.status(i).ok for i in range(3)] == [True, False, False]
    assert "rank 2" in flows.status(1).sentence
    assert flows.learned_at(1) == np.inf
    np.testing.assert_allclose(flows.learned_at(2), np.log(1e10 - 1) / (4 * A_3[0]), rtol=1e-6)
    assert "17.1" in flows.status(2).cure
    assert repr(flows) == "SymmetricFlows(3 starts to t = 10: 1 learned, 1 plateau, 1 rank deficient, 0 artefact)"


def test_what_rounding_has_replaced_is_an_artefact():
    """Starts a rounding error away from rank 2: in some of them log det W loses more than two digits."""
    rng = np.random.default_rng(2)
    low = 0.1 * rng.standard_normal((3, 2)) @ rng.standard_normal((2, 3))

    def run(distance):
        starts = low + distance * rng.standard_normal((100, 3, 3))
        return symmetric_flows(A_3, starts, test_point=MU_3, until=60.0, tolerance=1e-11)

    flows = run(1e-15)
    bad = flows.endings == Ending.ARTEFACT
    assert 5 < bad.sum() < 95
    assert flows.drifts[bad].min() > 0.01 > flows.drifts[~bad].max()
    status = flows.status(int(np.flatnonzero(bad)[0]))
    assert not status.ok
    assert "log det W" in status.sentence
    assert np.all(run(1e-9).endings == Ending.LEARNED)


def test_a_direction_without_data_is_never_learned():
    flows = symmetric_flows(
        np.array([1.0, 0.0]), 0.1 * np.eye(2)[None], test_point=np.ones(2), until=20.0, tolerance=1e-11
    )
    assert flows.learned_at(0) == np.inf
    assert "eigenvalue of 0" in flows.status(0).cure
    np.testing.assert_allclose(flows.W[0, -1], np.diag([1.0, 0.01]), atol=1e-12)


def test_a_plateau_ends_when_it_is_said_to():
    starts = _starts(20, 3, seed=9, scale=1e-4)
    early = symmetric_flows(A_3, starts, test_point=MU_3, until=5.0, tolerance=1e-11)
    ends = np.array([early.learned_at(i) for i in range(20)])
    assert np.all(early.endings == Ending.PLATEAU)
    flows = symmetric_flows(A_3, starts, test_point=MU_3, until=60.0, record=ends, tolerance=1e-11)
    w = np.diagonal(flows.W[np.arange(20), np.searchsorted(flows.times, ends)], axis1=1, axis2=2)
    np.testing.assert_allclose(w.min(axis=1), 0.5, atol=0.01)


def test_a_deficient_start_rests_at_half_the_square_of_the_lost_mean():
    flows = symmetric_flows(A_3, _starts(30, 3, width=2), test_point=MU_3, until=400.0, tolerance=1e-11)
    np.testing.assert_allclose(flows.losses[:, -1], MU_3[0] ** 2 / 2, atol=1e-9)
    assert flows.turns.max() <= 5  # rounding on the endless plateau turns nothing


@pytest.mark.parametrize("scale", [0.0, 1e-150, 1e-16, 1e-3, 1.0, 200.0])
def test_nothing_is_ever_infinite(scale):
    flows = symmetric_flows(A_4, _starts(50, 4, scale=scale), test_point=MU_4, until=40.0, tolerance=1e-6)
    for array in (flows.W, flows.losses, flows.turning_times, flows.turning_losses, flows.ends, flows.drifts):
        assert np.isfinite(array).all()
    assert np.all(np.diff(flows.turning_times) >= 0)
    assert np.linalg.eigvalsh(flows.W[:, -1]).max() < 1 + 1e-5 or scale > 1
