"""Settings of PyTorch: bfloat16 of the processor."""

import torch

from saddlescope.training.torch_settings import has_bfloat16


def test_bfloat16_is_that_of_the_processor(monkeypatch):
    assert has_bfloat16("cuda")
    for capabilities, expected in (
        ({"avx2": True}, False),
        ({"avx512_bf16": False}, False),
        ({"amx_bf16": True}, True),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found)
        assert has_bfloat16("cpu") is expected
