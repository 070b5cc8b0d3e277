"""Initial weights of every network are a function of its sizes and the seed; the random state stays as it was."""

import pytest
import torch
from small_runs import SIZES
from tests.tiny_language import tiny_gpt2

from saddlescope.training import ViT
from saddlescope.training.diffusion.classifier import ConceptClassifier
from saddlescope.training.diffusion.unet import UNet, UNetConfig

SMALL = UNetConfig(pixels=8, channels=(8, 16), blocks=1)
MAKE = {
    "vit": lambda seed: ViT(SIZES, seed=seed),
    "gpt2": tiny_gpt2,
    "unet": lambda seed: UNet(SMALL, seed=seed),
    "classifier": lambda seed: ConceptClassifier(SMALL, seed=seed),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_they_depend_on_the_seed_alone(make):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, other = make(3).state_dict(), make(4).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    torch.testing.assert_close(make(3).state_dict(), one, rtol=0, atol=0)
    assert not all(torch.equal(one[name], other[name]) for name in one)
