import pytest
import torch

from saddlescope.ranks.finite_tensors import all_finite

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("entry", [0, 1234, 9999])
def test_one_entry_that_is_not_finite_is_found(dtype, value, entry):
    tensor = torch.randn(10_000).to(dtype)
    assert all_finite(tensor)
    tensor[entry] = value
    assert not all_finite(tensor)
    assert not all_finite(tensor.view(100, 100).T)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_largest_number_and_no_numbers_are_finite(dtype):
    assert all_finite(torch.full((3,), torch.finfo(dtype).max, dtype=dtype))
    assert all_finite(torch.zeros(0, dtype=dtype))
