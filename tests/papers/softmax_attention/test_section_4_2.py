"""The entry on section 4.2: excesses from the flows' matrices themselves, and linear regression at its limits."""

import numpy as np
import pytest

from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.papers.softmax_attention.section_4_2 import FACTORS, _regress
from saddlescope.papers.softmax_attention.shared.flows import key_query_flow
from saddlescope.reproduction import find_entry
from saddlescope.theory import frobenius_svm, nuclear_svm

NAME = "softmax-attention/section-4-2"
ENTRY = find_entry(NAME)


def test_excesses_are_those_of_the_matrix_and_never_below_zero(run):
    data = gaussian_tokens(4, 5, 8, seed=41)
    start = 0.1 / 8**0.5 * np.random.default_rng((41, 1)).normal(size=(2, 8, 8))
    flow = key_query_flow(data, (start[0], start[1]), run.log10_time.values * np.log(10), 1e-7)
    W = flow.keys(2) @ flow.queries(2).T
    W /= data.margins(W).min()
    found = run.sel(draw=1, flow=FACTORS).isel(time=2)
    nuclear, frobenius = nuclear_svm(data).certificate.primal, frobenius_svm(data).certificate.primal
    assert float(found.nuclear) == pytest.approx(np.linalg.norm(W, "nuc") / nuclear - 1, rel=1e-6)
    assert float(found.frobenius) == pytest.approx(np.linalg.norm(W) / frobenius - 1, rel=1e-6)
    assert min(float(run.nuclear.min()), float(run.frobenius.min())) > -1e-9


def test_linear_regression_fits_and_from_a_large_scale_ends_like_beta():
    """w+^2 - w-^2 from a large scale is beta itself, in a unit of time: the least l2 norm."""
    params = ENTRY.configure("quick", {"scales": "10,0.001"})
    found = _regress(params, 7)
    assert float(found.residual.max()) < 1e-6
    assert float(found.squares_excess[0]) == pytest.approx(float(found.beta_excess), rel=0.05)
    assert 0 <= float(found.squares_excess[1]) < 0.1 * float(found.beta_excess)
