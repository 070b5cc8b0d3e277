"""Small vision transformer for tests, a stand-in for a step of an optimiser, and dense updates."""

import torch

from saddlescope.training import ViTConfig

SMALL = ViTConfig(
    image_size=8, channels=1, patch=4, embedding=12, depth=2, heads=3, head_width=2, mlp_width=7, classes=4
)


def step_at_random(model, seed=0, size=0.1):
    """Move every weight a little, in place, like an optimiser."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


def dense(before, after, layer, head, width):
    """Return both updates of one head of our ViT as d x d matrices in float64: the reference implementation."""
    rows = slice(width * head, width * (head + 1))

    def products(model):
        attention = model.blocks[layer].attention
        W_K, W_Q, W_V = (getattr(attention, name).weight[rows].T.double() for name in ("key", "query", "value"))
        W_O = attention.output.weight[:, rows].double()
        return (W_K @ W_Q.T).detach(), (W_V @ W_O.T).detach()

    return [torch.linalg.svdvals(new - old) for new, old in zip(products(after), products(before), strict=True)]
