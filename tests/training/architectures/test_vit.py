"""Vision transformer: sizes, initial weights, and heads that compute the formula."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from refusals import refused
from saddlescope.training import ViT, ViTConfig

SMALL = ViTConfig(
    image_size=8, channels=2, patch=4, embedding=12, depth=2, heads=3, head_width=5, mlp_width=7, classes=4
)


def test_the_defaults_are_the_papers():
    model = ViT(ViTConfig())
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert model.position.shape == (64, 512)
    assert len(model.blocks) == 6
    assert all(block.attention.key.weight.shape == (8 * 128, 512) for block in model.blocks)
    assert model.blocks[0].attention.output.weight.shape == (512, 8 * 128)
    assert model.blocks[0].expand.weight.shape == (512, 512)
    assert not [name for name, _ in model.named_parameters() if "attention." in name and "bias" in name]


def test_initial_scale_is_a_factor_on_every_weight_matrix_but_the_patch_embedding():
    whole, tenth = ViT(SMALL), ViT(replace(SMALL, initial_scale=0.1))
    factors = {}
    for (name, one), (_, other) in zip(whole.named_parameters(), tenth.named_parameters(), strict=True):
        is_matrix = name.endswith("weight") and "norm" not in name
        expected = one * 0.1 if is_matrix and "patch_embedding" not in name else one
        assert torch.equal(other, expected), name
        factors[name] = is_matrix
    assert sum(factors.values()) == 1 + 2 * 6 + 1


def test_initial_spread_is_pytorchs_own():
    weight = ViT(ViTConfig()).blocks[2].attention.value.weight
    bound = 1 / math.sqrt(512)
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)


def test_no_gradient_vanishes_at_the_smallest_scale():
    """Detect an initial scale at which float32 cannot train."""
    model = ViT(replace(SMALL, initial_scale=1e-6))
    functional.cross_entropy(model(torch.randn(8, 2, 8, 8)), torch.arange(8) % 4).backward()
    assert all((parameter.grad != 0).all() for name, parameter in model.named_parameters() if "attention." in name)


def test_images_of_another_size_are_refused():
    refused(r"images must have shape \(n, 2, 8, 8\); got \(1, 2, 12, 12\)", ViT(SMALL), torch.zeros(1, 2, 12, 12))


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_attention_is_the_papers_formula_head_by_head(kind):
    torch.manual_seed(0)
    attention = ViT(replace(SMALL, attention=kind)).double().blocks[0].attention
    x = torch.randn(2, 4, 12, dtype=torch.float64)
    expected = torch.zeros_like(x)
    for head in range(3):
        rows = slice(5 * head, 5 * head + 5)
        W_K, W_Q, W_V = (getattr(attention, name).weight[rows].T for name in ("key", "query", "value"))
        W_O = attention.output.weight[:, rows]
        scores = x @ (W_K @ W_Q.T).T @ x.transpose(1, 2) / math.sqrt(5)
        expected += (scores.softmax(dim=-1) if kind == "softmax" else scores / 4) @ x @ W_V @ W_O.T
    torch.testing.assert_close(attention(x), expected)


def test_patches_are_embedded_where_they_lie():
    model = ViT(SMALL)
    images = torch.zeros(1, 2, 8, 8, requires_grad=True)
    seen = []
    model.patch_embedding.register_forward_hook(lambda module, inputs, output: seen.append(output))
    model(images)
    (gradient,) = torch.autograd.grad(seen[0][0, 1].sum(), images)
    touched = gradient[0].abs().sum(0) > 0
    assert touched[:4, 4:].all()
    assert touched.sum() == 16


@torch.no_grad()
def test_attention_in_bfloat16_on_a_processor_is_that_of_float32():
    """Attention is written as products there: errors are those of rounding, 2^-9 for each of a few operations."""
    model = ViT(SMALL, seed=0)
    images = torch.randn(5, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    exact = model(images)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = model(images)
    assert rounded.dtype == torch.bfloat16
    assert 0 < (rounded.float() - exact).norm() < 0.02 * exact.norm()
