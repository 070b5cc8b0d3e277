"""Arrays that hold no plain numbers, or whose results overflow: one sentence, never a silent infinity or NaN."""

import numpy as np
import pytest
import torch

from saddlescope import measure
from saddlescope._shared.errors import InputError
from saddlescope.measure.spectrum import spectrum

RNG = np.random.default_rng(0)


def test_masked_entries_are_not_counted_as_numbers():
    with pytest.raises(InputError, match="values must have no masked entries"):
        measure.stable_rank(np.ma.array([3.0, 2.0, 1.0], mask=[False, True, False]))
    assert measure.stable_rank(np.ma.array([2.0, 2.0])).item() == 2.0


@pytest.mark.parametrize("tensor", [torch.zeros(3, device="meta"), torch.eye(3).to_sparse()])
def test_tensors_without_numbers_of_their_own_are_refused(tensor):
    with pytest.raises(InputError, match="values must be dense and hold its numbers"):
        measure.stable_rank(tensor)


@pytest.mark.parametrize("exponent", [-300, -200, -100, 100, 200, 300])
def test_spectra_of_any_unit_have_the_same_shares(exponent):
    W = RNG.standard_normal((4, 3))
    found = spectrum(W * 10.0**exponent).values / 10.0**exponent
    np.testing.assert_allclose(found, spectrum(W).values, rtol=1e-12)
