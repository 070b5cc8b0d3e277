"""Entries on escape directions: what their quick runs show, and runs that must decide otherwise."""

import numpy as np
import pytest

from saddlescope.papers.deep_relu.shared.network_ensembles import KINDS, draw_networks
from saddlescope.papers.deep_relu.theorem_3_1 import leading_vectors
from saddlescope.reproduction import find_entry
from saddlescope.theory.escape.directions import escape_directions
from saddlescope.theory.escape.speed import escape_speed


@pytest.fixture
def quick(quick_run):
    """Return the entry of a name and a copy of its quick run."""

    def make(name):
        return find_entry(f"deep-relu/{name}"), quick_run(f"deep-relu/{name}").run.copy(deep=True)

    return make


def test_the_printed_growth_law_is_off_by_l_to_the_half_l(quick):
    _, run = quick("proposition-2-2")
    np.testing.assert_allclose(run.rate_ratio, run.depth ** (run.depth / 2), rtol=1e-12)
    np.testing.assert_allclose(run.measured_norm, run.corrected_norm, rtol=1e-9)


def test_the_output_bound_is_attained_by_some_network(quick):
    _, run = quick("proposition-2-2")
    assert float(run.bound_factor.max()) > 1 - 1e-6
    assert float(run.bound_factor.median()) < 0.5


def test_theorem_3_1_is_tested_where_an_optimum_is_known(quick, outcomes):
    entry, run = quick("theorem-3-1")
    cut = run.relu.where((run.bound < 1) & (run.ratio < 2)) > 0
    assert int(cut.any("layer").sum()) >= 2
    assert int((run.excess > 1e-6).sum()) >= 3
    run.weights.values[np.argmax(run.excess.values), 0] = 0.9  # its bound is far above 1
    assert outcomes(entry, run)["holds"] == "holds"
    run.bound.values[:] = 2.0
    assert outcomes(entry, run)["holds"] == "undecided"


def test_singular_vectors_of_matrices_of_both_signs_may_be_negative():
    rng = np.random.default_rng(0)
    signed = [leading_vectors(rng.normal(size=(4, 3))) for _ in range(20)]
    assert sum(min(u.min(), v.min()) < -1e-3 for u, v in signed) >= 15
    for A in (np.eye(3), np.diag([2.0, 2.0, 1.0]), np.zeros((2, 3))):
        u, v = leading_vectors(A)
        np.testing.assert_allclose(A @ u, np.linalg.norm(A, 2) * v, atol=1e-14)
        assert min(u.min(), v.min()) > -1e-14


def test_proposition_3_3_is_tested_where_its_bound_is_below_1(quick, outcomes):
    entry, run = quick("proposition-3-3")
    assert float((run.ratio.sel(kind="v ≥ 0", name="relu") > 0).mean()) > 0.1  # a ReLU has something to cut
    far = run.assign(excess=run.excess.where(run.share < 2**0.5 - 1, 0.5))
    assert outcomes(entry, far)["one-neuron"] == "seen"


def test_near_one_ray_no_wider_network_is_faster_in_five_dimensions_with_two_outputs():
    """The theorem of `proposition_3_3`, on which the remark on Theorem 3.1 rests, where nothing is certified."""
    rng = np.random.default_rng(3)
    for k in range(3):
        u, v, E = (np.abs(rng.normal(size=5)), np.abs(rng.normal(size=8)), rng.normal(size=(5, 8)))
        v[0] = 0.0
        X = (np.outer(u, v) / np.linalg.norm(u) / np.linalg.norm(v) + 0.05 * E / np.linalg.norm(E)).T
        G = -v[:, None] * rng.uniform(0.5, 1.5, (8, 2)) + 0.05 * rng.normal(size=(8, 2))
        one, wide = (
            escape_directions(X, G, depth=depth, widths=width, num_starts=8, steps=1000, seed=k).speeds.max()
            for depth, width in ((2, 1), (3, 8))
        )
        assert np.linalg.norm(G) * 0.05 / wide < 2**0.5 - 1
        assert wide <= one * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["random", "extreme"])
def test_networks_are_on_the_sphere_with_a_positive_speed_and_repeatable(kind):
    first, again = (list(draw_networks(kind, depth=3, count=20, seed=5)) for _ in range(2))
    assert len(first) == 20
    for (weights, X, G), (same, _, _) in zip(first, again, strict=True):
        assert sum(np.sum(w**2) for w in weights) == pytest.approx(3)
        assert escape_speed(weights, X, G) > 0
        assert all(np.array_equal(one, other) for one, other in zip(weights, same, strict=True))
    assert kind in KINDS


def test_extreme_networks_reach_the_sharper_inequality(quick):
    _, run = quick("proposition-3-4")
    assert float((run.spent / run.budget).max()) > 0.99
    budgets = run.budget.median(["case", "depth"])
    assert float(budgets.sel(kind="fast")) < float(budgets.sel(kind="descended"))
