"""A vision transformer small enough for every test, and a stand-in for a step of an optimiser."""

import torch

from saddlescope.train import ViTConfig

SMALL = ViTConfig(
    image_size=8, channels=1, patch=4, embedding=12, depth=2, heads=3, head_width=2, mlp_width=7, classes=4
)


def step_at_random(model, seed=0, size=0.1):
    """Moves every weight a little, in place, as an optimiser does."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
