"""Small vision transformer for tests, a stand-in for a step of an optimiser, and dense updates."""

import numpy as np
import torch

from saddlescope.training import ViT, ViTConfig

SMALL = ViTConfig(
    image_size=8, channels=1, patch=4, embedding=12, depth=2, heads=3, head_width=2, mlp_width=7, classes=4
)


def step_at_random(model, seed=0, size=0.1):
    """Move every weight a little, in place, like an optimiser."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


def assert_record(tracker, record, after):
    """Compare a record with the dense products of the weights after the step, from those of seed 1."""
    for layer, head in ((layer, head) for layer in range(2) for head in range(3)):
        updates = dense(ViT(SMALL, seed=1), after, layer, head, width=2)
        for product, expected in zip(("KQ", "VO"), updates, strict=True):
            found = tracker.to_xarray().update_spectrum.sel(product=product).values[record, layer, head]
            np.testing.assert_allclose(found, expected[:4], rtol=1e-4, atol=1e-7)


def dense(before, after, layer, head, width):
    """Return both updates of one head of our ViT as d x d matrices in float64: the reference implementation."""
    rows = slice(width * head, width * (head + 1))

    def products(model):
        attention = model.blocks[layer].attention
        W_K, W_Q, W_V = (getattr(attention, name).weight[rows].T.double() for name in ("key", "query", "value"))
        W_O = attention.output.weight[:, rows].double()
        return (W_K @ W_Q.T).detach(), (W_V @ W_O.T).detach()

    return [torch.linalg.svdvals(new - old) for new, old in zip(products(after), products(before), strict=True)]
