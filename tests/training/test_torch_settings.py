"""Settings of PyTorch: what a training sets and restores, and bfloat16 of the processor."""

import random

import numpy as np
import pytest
import torch

from saddlescope.training.torch_settings import has_bfloat16, reproducible


def settings():
    numpys = np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
    states = random.getstate(), numpys, torch.get_rng_state().tolist()
    products = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    return *states, torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), *products


@pytest.mark.parametrize(("precision", "coarse"), [("float32", False), ("tf32", True), ("bf16", False)])
def test_all_is_set_and_restored(precision, coarse):
    before, drawn = settings(), []
    for _ in range(2):
        with reproducible(3, before[3] + 1, torch.device("cpu"), precision):
            assert settings()[3:] == (before[3] + 1, True, "high" if coarse else "highest", coarse)
            drawn.append((random.random(), np.random.rand(), torch.rand(()).item()))  # noqa: NPY002
        assert settings() == before
    assert drawn[0] == drawn[1]


def test_bfloat16_is_that_of_the_processor(monkeypatch):
    assert has_bfloat16("cuda")
    for capabilities, expected in (
        ({"avx2": True}, False),
        ({"avx512_bf16": False}, False),
        ({"amx_bf16": True}, True),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found)
        assert has_bfloat16("cpu") is expected
