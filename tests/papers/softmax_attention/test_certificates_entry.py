"""The entry on certificates: its cone programmes against CVXPY's, and claims that a wrong run refutes."""

import cvxpy as cp
import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.papers.softmax_attention.certificates import (
    conic_frobenius_norm,
    semidefinite_nuclear_svm,
)
from saddlescope.reproduction import find_entry
from saddlescope.theory import certify_svm

NAME = "softmax-attention/certificates"
ENTRY = find_entry(NAME)


def test_the_cone_programmes_are_the_problems():
    data = gaussian_tokens(3, 4, 5, seed=3)
    W = cp.Variable((5, 5))
    margins = cp.hstack([data.differences[i] @ W @ data.z[i] for i in range(3)])
    nuclear = cp.Problem(cp.Minimize(cp.normNuc(W)), [margins >= 1]).solve(solver=cp.CLARABEL)
    frobenius = cp.Problem(cp.Minimize(cp.norm(W, "fro")), [margins >= 1]).solve(solver=cp.CLARABEL)
    factors, multipliers = semidefinite_nuclear_svm(data)
    assert np.linalg.norm(factors[0] @ factors[1].T, "nuc") == pytest.approx(nuclear, rel=1e-6)
    assert multipliers.sum() == pytest.approx(nuclear, rel=1e-6)
    assert data.margins(factors).min() == pytest.approx(1, abs=1e-6)
    assert certify_svm(data, factors, multipliers, norm="nuclear").gap < 1e-6
    assert conic_frobenius_norm(data) == pytest.approx(frobenius, rel=1e-6)


def test_a_loose_accuracy_is_one(run):
    gaps = run.their_gap.max("small_draw")
    assert float(gaps.sel(accuracy="1e-8")) < 1e-6 < 1e-5 < float(gaps.sel(accuracy="1e-4")) < 1e-2


def test_what_the_quick_size_can_say(run, outcomes):
    verdicts = outcomes(ENTRY, run)
    assert verdicts.pop("rank-as-read-loosely") == "refuted"
    assert verdicts.pop("rank-as-read") == "undecided"  # too few draws
    assert set(verdicts.values()) == {"reproduced"}


def loose(run):
    run["gap"][{"draw": 0}] = [1e-11, 1e-11, 1e-9]


def other_optimum(run):
    run["difference"][{"small_draw": 0, "norm": 2}] = 1e-4


def uncertified(run):
    run["rank_certified"][{"draw": 0, "norm": 2}] = False
    run["unique"][{"draw": 0, "norm": 0}] = False


def full_rank(run):
    run["rank"][:] = 10
    run["rank"][{"draw": 0, "norm": 2}] = 11


def vouched(run):
    run["vouched"][{"small_draw": 0, "accuracy": 1}] = True
    run["told_rank"][{"small_draw": 0, "accuracy": 1}] = run.true_rank[0] + 1


@pytest.mark.parametrize(
    ("spoil", "claims"),
    [
        (loose, {"gap-l1", "gap-frobenius", "gap-nuclear"}),
        (other_optimum, {"independent-solvers"}),
        (uncertified, {"ranks-certified", "unique"}),
        (full_rank, {"low-rank"}),
        (vouched, {"not-fooled"}),
    ],
)
def test_a_wrong_run_refutes(run, outcomes, spoil, claims):
    spoil(run)
    assert {outcomes(ENTRY, run)[claim] for claim in claims} == {"refuted"}


def test_ranks_as_read_follow_the_counts(run, outcomes):
    run = run.isel(small_draw=[*range(12)] * 20).copy(deep=True)
    run["read_rank"][:] = run.true_rank
    assert outcomes(ENTRY, run)["rank-as-read"] == outcomes(ENTRY, run)["rank-as-read-loosely"] == "reproduced"
    run["true_rank_certified"][{"small_draw": 0}] = False
    assert outcomes(ENTRY, run)["rank-as-read"] == "undecided"
    run["true_rank_certified"][:] = True
    run["read_rank"][:] = run.true_rank + 1
    assert outcomes(ENTRY, run)["rank-as-read"] == outcomes(ENTRY, run)["rank-as-read-loosely"] == "refuted"


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"draws": "0"}, "draws must be at least 1"),
        ({"dim": "39"}, "dim must be at least 40, the number of constraints"),
        ({"small_dim": "8"}, "small_dim must be at least 12"),
    ):
        with pytest.raises(InputError, match=sentence):
            ENTRY.configure("quick", settings)
