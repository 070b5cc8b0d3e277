"""Entries on escape directions: what their quick runs show, and runs that must decide otherwise."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu.shared.network_ensembles import KINDS, draw_networks
from saddlescope.papers.deep_relu.theorem_3_1 import leading_vectors
from saddlescope.reproduction import find_entry
from saddlescope.theory.escape.speed import escape_speed

AGAINST = {"proposition-2-2": {"growth-printed": "fails"}}
"""Outcomes other than holds, agrees and seen at the quick size."""
TOO_FEW = {
    "figure-2": dict.fromkeys(("rises", "conjecture-1", "conjecture-1-harder"), "undecided"),
    "proposition-3-3": {"sign-needed": "undecided"},  # of six data sets
    "deep-linear": {},
}
ENTRIES = ["example-1", "figure-5", "proposition-3-2", "proposition-3-4", "theorem-3-1", "conjecture-2"]


@pytest.fixture
def quick(quick_run):
    """Return the entry of a name and a copy of its quick run."""

    def make(name):
        return find_entry(f"deep-relu/{name}"), quick_run(f"deep-relu/{name}").run.copy(deep=True)

    return make


@pytest.mark.parametrize("name", [*AGAINST, *TOO_FEW, *ENTRIES])
def test_quick_runs(quick, outcomes, name):
    expected = AGAINST.get(name, {}) | TOO_FEW.get(name, {})
    found = outcomes(*quick(name))
    assert {k: v for k, v in found.items() if v not in ("holds", "agrees", "seen")}.items() <= expected.items()


def test_the_printed_growth_law_is_off_by_l_to_the_half_l(quick):
    _, run = quick("proposition-2-2")
    np.testing.assert_allclose(run.rate_ratio, run.depth ** (run.depth / 2), rtol=1e-12)
    np.testing.assert_allclose(run.measured_norm, run.corrected_norm, rtol=1e-9)


def test_without_escape_directions_there_is_nothing_to_test(quick, outcomes):
    entry, run = quick("proposition-2-2")
    run["definition_error"] = run.definition_error + 1e-3
    found = outcomes(entry, run)
    assert found["direction"] == found["growth-printed"] == "not tested"


def test_the_output_bound_is_attained_by_some_network(quick):
    _, run = quick("proposition-2-2")
    assert float(run.bound_factor.max()) > 1 - 1e-6
    assert float(run.bound_factor.median()) < 0.5


def test_conserved_balances_are_told_from_those_that_are_not(quick, outcomes):
    entry, run = quick("proposition-2-2")
    swapped = run.assign(strong=run.weak, weak=run.strong)
    found = outcomes(entry, swapped)
    assert (found["weak-balance"], found["only-weak"]) == ("differs", "differs")


def test_theorem_3_1_is_tested_where_an_optimum_is_known(quick, outcomes):
    entry, run = quick("theorem-3-1")
    cut = run.relu.where((run.bound < 1) & (run.ratio < 2)) > 0
    assert int(cut.any("layer").sum()) >= 2
    assert int((run.excess > 1e-6).sum()) >= 3
    several = run.copy(deep=True)
    several.weights.values[np.argmax(run.excess.values), 0] = 0.9  # its bound is far above 1
    assert outcomes(entry, several)["holds"] == "holds"
    run.weights.values[-1, 0] = 0.9
    assert outcomes(entry, run)["holds"] == "fails"
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
    run.share.values[:] = 0.5
    assert outcomes(entry, run)["holds"] == "undecided"


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


def test_bounds_too_far_apart_leave_the_optimum_undecided(quick, outcomes):
    entry, run = quick("example-1")
    run.upper.loc[{"samples": 8}] = 0.6
    assert outcomes(entry, run)["optimum"] == "undecided"


def test_angles_that_miss_the_maxima_leave_their_place_undecided(quick, outcomes):
    entry, run = quick("figure-5")
    assert outcomes(entry, run.isel(angle=slice(3, 30)))["where"] == "undecided"


def test_searches_that_miss_the_optimum_decide_nothing_about_conjecture_2(quick, outcomes):
    entry, run = quick("conjecture-2")
    run.best.values[0, 1] = 0.49
    assert set(outcomes(entry, run).values()) == {"not tested"}


def test_a_rank_above_one_beyond_the_plane_differs(quick, outcomes):
    entry, run = quick("conjecture-2")
    run["beyond_rank"].loc[{"beyond_layer": 3, "beyond_depth": 4}] = 2
    assert outcomes(entry, run)["rank-one"] == "differs"


def test_shares_of_wide_networks_are_compared_with_the_bar(quick, outcomes):
    entry, run = quick("figure-2")
    wide = run.isel(width=[1, 1]).assign_coords(width=[32, 64])
    wide.speed.values[:] = 0.5
    assert outcomes(entry, wide)["conjecture-1"] == "undecided"  # six of six runs leave room for 60 %
    wide = wide.isel(start=np.zeros(400, int))
    assert outcomes(entry, wide)["conjecture-1"] == "agrees"
    wide.speed.values[:] = 2**0.5 - 1
    assert outcomes(entry, wide)["conjecture-1"] == "differs"


def test_a_share_that_falls_with_width_fails(quick, outcomes):
    entry, run = quick("figure-2")
    some = run.isel(width=[0, 0, 0], start=np.zeros(400, int)).assign_coords(width=[1, 32, 64])
    some.speed.values[0] = np.where(np.arange(400) < np.array([0, 390, 300])[:, None], 0.5, 0.3)
    assert outcomes(entry, some)["rises"] == "fails"


def test_a_stage_too_many_and_a_plateau_off_its_level_differ(quick, outcomes):
    entry, run = quick("deep-linear")
    run.stages_found[0] += 1
    run.stage_loss.loc[{"stage": 1}] += 0.01 * run.level.sel(stage=0)
    assert set(outcomes(entry, run).values()) == {"differs"}


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("example-1", {"samples": (4, 6)}, "samples must contain 8"),
        ("theorem-3-1", {"circles": (4,)}, "circles must contain 8"),
        ("escape-width", {"depths": (4, 5)}, "depths must begin with 3, whose optimum is certified"),
        ("deep-linear", {"deviations": (0.1,)}, "deviations must be 2 numbers, one per depth"),
        ("deep-linear", {"strengths": (1.0,) * 9}, "strengths must be 1 to 5"),
        ("conjecture-3", {"strengths": (1.0,) * 7}, "strengths must be"),
        ("conjecture-4", {"rates": (0.1,)}, "rates must be 2 positive numbers, one per depth"),
    ],
)
def test_conditions_between_parameters_are_named(name, given, sentence):
    params = find_entry(f"deep-relu/{name}").params
    with pytest.raises(InputError, match=sentence):
        params(**given)
