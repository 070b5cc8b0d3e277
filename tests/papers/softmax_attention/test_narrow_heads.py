"""The entry on narrow heads: values between the bounds of the problems, and heads as they are asked for."""

import numpy as np
import pytest

from saddlescope.flow import FlowError
from saddlescope.papers.softmax_attention.shared.flows import draw_head, in_balance

NAME = "softmax-attention/narrow-heads"


def test_values_lie_between_the_bounds_of_the_svms(run):
    last = run.value.isel(time=-1)
    assert np.all(run.bounded >= run.least)
    assert np.all(last >= run.bounded * (1 - 1e-6))
    wide = run.bounded.where(run.columns >= run["rank"])
    np.testing.assert_allclose((wide / run.least).values[wide.notnull().values], 1.0, rtol=1e-10)


def test_heads_have_the_scale_asked_for_and_flows_are_tightened_once_refused():
    K, Q = draw_head((1, 2), 400, 30, 0.1)
    assert K.shape == Q.shape == (400, 30)
    assert np.std(K) == pytest.approx(0.1 / 20, rel=0.03)
    asked = []

    def follow(tolerance):
        asked.append(tolerance)
        if tolerance > 5e-9:
            raise FlowError.__new__(FlowError)
        return "done"

    assert in_balance(follow) == "done"
    assert asked == [1e-7, 1e-8, 1e-9]
