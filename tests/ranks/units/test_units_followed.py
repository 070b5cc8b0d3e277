"""Units are followed from their weights to what reads them, whatever is between, and probing leaves no trace."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks import active_units


class Between(nn.Module):
    """Function between two layers that treats units differently, or moves them."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, x):
        return self.act(x)


def mlp(act, width=6):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, width), Between(act), nn.Linear(width, 2))


@pytest.mark.parametrize(
    "act",
    [
        lambda x: torch.cat([x[..., :3].relu(), x[..., 3:].tanh()], -1),
        lambda x: torch.cat([x[..., :3].relu(), -x[..., 3:].relu()], -1),
        lambda x: x.flip(-1).relu(),
        lambda x: x[..., [2, 1, 0, 3, 4, 5]].relu(),
        lambda x: x[..., [0, 3, 2, 1, 4, 5]].relu(),
        lambda x: (x + x.roll(2, -1)).relu(),
        lambda x: x.relu() * torch.tensor([1.0, 1, 1, 1, 1, 2]),
    ],
)
def test_units_that_a_layer_moves_mixes_or_tells_apart_are_left_out(act):
    with pytest.raises(InputError, match="found none"):
        active_units(mlp(act))
    assert active_units(mlp(torch.relu)).counts == (6,)


@pytest.mark.parametrize("size", [1e200, 1e-200, 1.0])
@pytest.mark.parametrize("act", [nn.ReLU(), nn.Tanh()])
def test_units_of_any_size(size, act):
    model = nn.Sequential(nn.Linear(3, 4, bias=False), act, nn.Linear(4, 1, bias=False)).double()
    with torch.no_grad():
        model[0].weight.fill_(size)
        model[2].weight.fill_(size)
        model[0].weight[3] *= 1e-3
    assert active_units(model).active == (1,)


def test_a_unit_that_never_fires_is_not_active():
    torch.manual_seed(0)
    model = mlp(torch.relu, width=64)
    with torch.no_grad():
        model[0].bias[:46] = -50.0
    x = torch.randn(500, 3)
    fires = int((model[:2](x) > 0).any(0).sum())
    found = active_units(model, inputs=x, tolerance=1e-6, level=1e-6)
    assert found.active == (fires,)
    assert "that fire on the inputs" in repr(found)
    assert "by weights alone" in repr(active_units(model))
    with pytest.raises(InputError, match="inputs must be arguments of the model"):
        active_units(model, inputs=torch.randn(5, 7))
    assert model.training


def test_probing_leaves_no_trace():
    class Noisy(nn.Module):
        def forward(self, x):
            self.seen = x.shape
            return x.relu() + 0 * (torch.rand(1) + random.random() + np.random.rand())  # noqa: NPY002

    calls = []
    model = nn.Sequential(nn.Linear(3, 4), Noisy(), nn.Linear(4, 1))
    model[0].register_forward_hook(lambda *_: calls.append("own"))
    everywhere = nn.modules.module.register_module_forward_hook(lambda *_: calls.append("global"))
    before = torch.get_rng_state(), np.random.get_state()[2]  # noqa: NPY002  (beartype draws from random itself)
    try:
        assert active_units(model).counts == (4,)
    finally:
        everywhere.remove()
    assert not calls
    assert not hasattr(model[1], "seen")
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[2]  # noqa: NPY002


def test_a_default_device_without_memory():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    torch.set_default_device("meta")
    try:
        assert active_units(model).counts == (4,)
    finally:
        torch.set_default_device(None)
