"""U-Net: equal to a NumPy implementation on the same weights, initially the identity, errors for wrong sizes."""

import numpy as np
import pytest
import reference_bound as by_hand
import torch

from saddlescope._shared.errors import InputError
from saddlescope.training.diffusion.unet import Backbone, UNet, UNetConfig

VARIANTS = {
    "image": UNetConfig(pixels=8, channels=(8, 16), blocks=2),
    "pixel, three levels": UNetConfig(pixels=8, channels=(8, 12, 16), blocks=1, normalization="pixel", heads=2),
    "groups": UNetConfig(pixels=6, channels=(8, 16), blocks=1, normalization="group", groups=4, heads=1),
    "one level": UNetConfig(pixels=5, channels=(8,), blocks=1, dropout=0.3),
}


def drawn(config: UNetConfig, *, seed: int = 0) -> UNet:
    """Return a U-Net in double precision without a zero weight, so that every path matters."""
    model = UNet(config, seed=seed).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.empty_like(parameter).uniform_(-0.1, 0.1, generator=generator))
    return model


def inputs(config: UNetConfig, images: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return noised images, times and conditions."""
    generator = torch.Generator().manual_seed(7)
    shapes = (images, 3, config.pixels, config.pixels), (images,), (images, config.condition)
    z, time, condition = (torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return 3 * z - 1, time, condition


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS.keys())
def test_predicts_what_numpy_makes_of_the_weights(config: UNetConfig) -> None:
    model = drawn(config)
    z, time, condition = inputs(config)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    network = by_hand.Network(weights, config.normalization, config.groups, config.heads)
    wanted = by_hand.predict(network, z.numpy(), time.numpy(), condition.numpy())
    found = model(z, time, condition).detach().numpy()
    assert np.abs(found - z.numpy()).max() > 0.1  # the network says something
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)


def test_starts_as_the_identity() -> None:
    config = UNetConfig(pixels=8, channels=(8, 16))
    z, time, condition = (part.float() for part in inputs(config))
    assert torch.equal(UNet(config)(z, time, condition), z)


def test_size_at_the_papers_size() -> None:
    assert sum(parameter.numel() for parameter in UNet(UNetConfig()).parameters()) == 10_618_883


def test_initial_spread_is_pytorchs_own() -> None:
    first = UNet(UNetConfig(pixels=4, channels=(8, 8), blocks=1), seed=3).state_dict()
    # uniform within 1/sqrt(inputs), here of 3 x 3 pixels in 3 and in 8 channels
    for name, inputs_of in (("backbone.enter", 27), ("backbone.before.first", 72)):
        largest = first[f"{name}.weight"].abs().max().item() * inputs_of**0.5
        assert 0.95 < largest <= 1 + 1e-6


def test_layout_of_the_images_does_not_matter() -> None:
    config = VARIANTS["image"]
    model, (z, time, condition) = drawn(config), inputs(config)
    other = z.contiguous(memory_format=torch.channels_last)
    assert torch.equal(model(z, time, condition), model(other, time, condition))


def test_each_image_is_seen_alone_and_dropout_sleeps_when_evaluated() -> None:
    config = VARIANTS["one level"]
    model, (z, time, condition) = drawn(config), inputs(config)
    together = model(z, time, condition)
    for k in range(len(z)):
        torch.testing.assert_close(model(z[k : k + 1], time[k : k + 1], condition[k : k + 1])[0], together[k])
    torch.manual_seed(0)
    assert not torch.allclose(model.train()(z, time, condition), together)


def test_backbone_alone_has_features_of_the_first_width_and_of_every_pixel() -> None:
    config = UNetConfig(pixels=8, channels=(6, 12), blocks=1, heads=3)
    backbone = Backbone(config, seed=1)
    features = backbone(torch.rand(2, 3, 8, 8))
    assert features.shape == (2, 6, 8, 8)
    assert features.std() > 0.1
    assert not any("projections" in name for name in backbone.state_dict())


def test_other_shapes_are_refused() -> None:
    model = UNet(UNetConfig(pixels=8, channels=(8, 16), blocks=1))
    with pytest.raises(InputError, match=r"images must have shape \(n, 3, 8, 8\); got \(1, 3, 16, 16\)\."):
        model(torch.zeros(1, 3, 16, 16), torch.zeros(1), torch.zeros(1, 4))
    with pytest.raises(InputError, match=r"condition must hold 4 numbers per image; got shape \(1, 11\)\."):
        model(torch.zeros(1, 3, 8, 8), torch.zeros(1), torch.zeros(1, 11))
