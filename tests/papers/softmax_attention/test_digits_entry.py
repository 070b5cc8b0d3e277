"""The norms on real images: outcomes at the quick size, and the tokens."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from saddlescope.papers.softmax_attention.extensions.digits import digit_tokens

NAME = "softmax-attention/digits"


def test_each_flow_minimises_its_own_norm_at_the_quick_size(run):
    assert run.outcome.values.tolist() == [["nuclear", "Frobenius", "nuclear"]]


def test_tokens_are_the_images_patches_and_queries_their_mean():
    data, images = digit_tokens(3, 8, images=6, skip=2, head=2.0)
    assert data.X.shape == (12, 4, 16)
    assert data.y.tolist() == [1.0] * 6 + [-1.0] * 6
    assert data.X[5, 1].reshape(4, 4) == pytest.approx(images[5, :4, 4:])
    assert data.X[5, 2].reshape(4, 4) == pytest.approx(images[5, 4:, :4])
    assert data.z == pytest.approx(data.X.mean(axis=1))
    threes = load_digits().images[load_digits().target == 3] / 16
    assert any(np.array_equal(images[0], image) for image in threes[2:6])
    again, _ = digit_tokens(3, 8, images=6, skip=2, head=6.0)
    assert again.v == pytest.approx(3 * data.v)
    # the head is that of a ridge regression without intercept on centred patches: it separates most images
    outputs = data.y * ((data.z - data.z.mean(axis=0)) @ data.v)
    assert np.mean(outputs > 0) > 0.8
