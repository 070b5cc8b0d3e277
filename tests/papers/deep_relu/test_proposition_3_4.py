"""Proposition 3.4's claims hold, and networks that spend too much refute them; the ensembles are as documented."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.papers.deep_relu.shared.network_ensembles import KINDS, draw_networks
from saddlescope.reproduction import find_entry
from saddlescope.theory.escape.speed import escape_speed

NAME = "deep-relu/proposition-3-4"
ENTRY = find_entry(NAME)


def test_all_claims_hold_at_the_quick_size(run, outcomes):
    assert set(outcomes(ENTRY, run).values()) == {"reproduced"}


def spends_too_much(run):
    run.relu.values[0, 1, 2] = run.budget.values[0, 1, 2] - run["rank"].values[0, 1, 2] + 1e-6


def nothing_tight(run):
    run.budget.values[:] *= 1.1


def too_few(run):
    run.missing.values[-1, 0, 0, -1] = 1


def too_few_hidden(run):
    run.missing_hidden.values[-1, 0, 0, -1] = 1


@pytest.mark.parametrize(
    ("spoil", "claim"),
    [
        (spends_too_much, "sharper"),
        (nothing_tight, "tight"),
        (too_few, "proposition-3-4"),
        (too_few_hidden, "printed-hidden"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(run, outcomes, spoil, claim):
    spoil(run)
    assert outcomes(ENTRY, run)[claim] == "refuted"


@pytest.mark.parametrize("kind", ["random", "extreme"])
def test_networks_are_on_the_sphere_with_a_positive_speed_and_repeatable(kind):
    first, again = (list(draw_networks(kind, depth=3, count=20, seed=5)) for _ in range(2))
    assert len(first) == 20
    for (weights, X, G), (same, _, _) in zip(first, again, strict=True):
        assert len(weights) == 3
        assert sum(np.sum(w**2) for w in weights) == pytest.approx(3)
        assert escape_speed(weights, X, G) > 0
        assert all(np.array_equal(one, other) for one, other in zip(weights, same, strict=True))
    assert KINDS == ("random", "descended", "fast", "extreme")


def test_descent_brings_networks_nearer_the_optimum(run):
    budgets = run.budget.median(["case", "depth"])
    assert float(budgets.sel(kind="fast")) < float(budgets.sel(kind="descended"))


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"depths": "2,2"}, "depths must be one or more integers, each at least 2, each once"),
        ({"shares": "0.5,1.0"}, "shares must be one or more numbers, each above 0 and below 1"),
        ({"count": "0"}, "count must be at least 1"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
