"""Units of PyTorch models, the number of distinct active ones, and its record during training."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.train import Every, UnitTracker, active_units, units_of


def weight(model, layer) -> Any:
    return model[layer].weight


def perceptron(width=6, activation: Callable[[], nn.Module] = nn.ReLU, bias=True):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, width, bias=bias), activation(), nn.Linear(width, 2))


class Mlp(nn.Module):
    def __init__(self, between=None):
        super().__init__()
        self.fc1, self.fc2, self.between = nn.Linear(4, 5), nn.Linear(5, 4), between or nn.GELU()

    def forward(self, x):
        return self.fc2(self.between(self.fc1(x)))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(4, 7, bias=False), nn.Linear(4, 7, bias=False)
        self.down_proj = nn.Linear(7, 4, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


wrong: Any = {"schedule": 3}


def images():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(75, 2)
    )


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (perceptron(), [("0 -> 2", "neurons", 6, 0)]),
        (perceptron(activation=nn.Tanh), [("0 -> 2", "neurons", 6, -1)]),
        (nn.ModuleDict({"mlp": Mlp()}), [("mlp.fc1 -> mlp.fc2", "neurons", 5, 0)]),
        (Gated(), [("up_proj and gate_proj -> down_proj", "neurons", 7, 0)]),
        (images(), [("0 -> 3", "kernels", 4, -1), ("3 -> 6", "kernels", 3, 0)]),
        (nn.Sequential(nn.MultiheadAttention(8, 2)), [("0", "heads", 2, 0)]),
    ],
)
def test_units_are_found(model, found):
    modes, before = [m.training for m in model.modules()], [p.clone() for p in model.parameters()]
    assert [(group.name, group.kind, group.count, group.parity) for group in units_of(model)] == found
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(3, 5), nn.Softmax(-1), nn.Linear(5, 2)),
        Mlp(nn.Softmax(-1)),
        nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 2)),
        nn.Linear(3, 3),
    ],
)
def test_what_is_no_sum_of_units_is_left_out(model):
    with pytest.raises(InputError, match="sum of units"):
        units_of(model)


def _convolution(channels, *, into=1, pool: nn.Module | None = None):
    return nn.Sequential(nn.Conv2d(into, channels, 3), nn.ReLU(), pool or nn.MaxPool2d(2))


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(13)])
def test_kernels_are_found_through_pooling_and_nested_sequences(pool):
    torch.manual_seed(0)
    stack = nn.Sequential(_convolution(4, pool=pool), _convolution(6, into=4))
    model = nn.Sequential(stack, nn.Flatten(), nn.Sequential(nn.Linear(6 * 25, 7), nn.ReLU(), nn.Linear(7, 2)))
    groups = units_of(model)
    assert [(group.name, group.kind, group.count) for group in groups] == [
        ("0.0.0 -> 0.1.0", "kernels", 4), ("0.1.0 -> 2.0", "kernels", 6), ("2.0 -> 2.2", "neurons", 7)
    ]  # fmt: skip
    _, out = groups[1].weights()
    read = weight(model[2], 0).detach().double()
    np.testing.assert_array_equal(out, [read[:, 25 * unit : 25 * (unit + 1)].T.flatten() for unit in range(6)])


class Backwards(nn.Sequential):
    def forward(self, input):
        for layer in reversed(list(self)):
            input = layer(input)
        return input


def test_a_sequence_that_calls_its_layers_otherwise_is_left_out():
    with pytest.raises(InputError, match="found none"):
        units_of(Backwards(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))


def test_named_pairs():
    model = nn.ModuleDict({"first": nn.Linear(3, 6), "second": nn.Linear(6, 1)})
    (group,) = units_of(model, pairs={"first": "second"})
    assert (group.name, group.count) == ("first -> second", 6)
    into, out = group.weights()
    assert (into.shape, out.shape, into.dtype) == ((6, 4), (6, 1), torch.float64)
    with pytest.raises(InputError, match="no layer of pairs 'frist'; did you mean first"):
        units_of(model, pairs={"frist": "second"})
    with pytest.raises(InputError, match="features fit"):
        units_of(model, pairs={"first": "first"})


@torch.no_grad()
def set_weights(model, into, out):
    weight(model, 0).copy_(torch.tensor(into))
    weight(model, 2).copy_(torch.tensor(out))


def test_duplicates_are_one_neuron_and_opposite_ones_cancel():
    model = nn.Sequential(nn.Linear(2, 4, bias=False), nn.ReLU(), nn.Linear(4, 1))
    set_weights(model, [[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [0.0, 3.0]], [[1.0, 0.5, 1.0, -1.0]])
    found = active_units(model, level=0.5)
    np.testing.assert_allclose(found.sizes[0], [3.0, 2.0, 1.0, 0.0])
    assert (found.active, found.counts) == ((3,), (4,))
    set_weights(model, [[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [0.0, 3.0]], [[1.0, -0.5, 1.0, -1.0]])
    np.testing.assert_allclose(active_units(model).sizes[0], [3.0, 1.0, 0.0, 0.0], atol=1e-12)


def test_scale_moved_between_layers_changes_nothing():
    model = perceptron(bias=False)
    before = active_units(model).sizes[0]
    with torch.no_grad():
        weight(model, 0).mul_(4.0)
        weight(model, 2).div_(4.0)
    np.testing.assert_allclose(active_units(model).sizes[0], before, rtol=1e-6)


@pytest.mark.parametrize(("activation", "expected"), [(nn.Tanh, [3.0, 0.0]), (nn.ReLU, [2.0, 1.0])])
def test_neurons_that_differ_by_a_sign_are_one_if_the_activation_is_odd(activation, expected):
    model = nn.Sequential(nn.Linear(1, 2, bias=False), activation(), nn.Linear(2, 1))
    set_weights(model, [[1.0], [-1.0]], [[2.0, -1.0]])
    np.testing.assert_allclose(active_units(model).sizes[0], expected, atol=1e-12)


def test_a_network_learns_one_neuron_after_the_other():
    """Labels of orthogonal samples: the positive ones first, then the negative ones, each by one distinct neuron."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False)).double()
    with torch.no_grad():
        weight(model, 0).abs_().mul_(1e-4)
        weight(model, 2).copy_(torch.where(torch.arange(8) % 2 == 0, 1.0, -1.0) * weight(model, 0).norm(dim=1))
    x, y = torch.eye(4).double(), torch.tensor([[2.0], [2.0], [-0.7], [-0.7]]).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    losses = []
    with UnitTracker(model, schedule=Every(10)).watch(optimizer) as tracker:
        for step in range(401):
            loss = ((model(x) - y) ** 2).mean() / 2
            if step % 10 == 0:
                losses.append(loss.item())
            if step < 400:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    stairs = tracker.staircase(losses)
    assert stairs.ranks == (0, 1, 2)
    np.testing.assert_allclose(stairs.losses, [(8 + 0.98) / 8, 0.98 / 8, 0.0], atol=2e-3)
    assert tracker.to_xarray().sizes == {"step": 41, "unit": 8}


def test_a_resumed_tracker_goes_on():
    model = perceptron()
    first, second = UnitTracker(model, schedule=Every(1)), UnitTracker(model, schedule=Every(1))
    first.step()
    second.load_state_dict(first.state_dict())
    second.step()
    assert (second.steps, len(second.sizes[0])) == ((0, 1, 2), 3)
    with pytest.raises(InputError, match="state must be of the units"):
        UnitTracker(images()).load_state_dict(first.state_dict())


def test_callbacks_take_it():
    pytest.importorskip("transformers")
    from saddlescope.train.tracker.trainer_hook import TrackerHook

    hook, model = TrackerHook(functools.partial(UnitTracker, schedule=Every(1))), perceptron()
    hook.start(model, first_process=True, state=None)
    hook.step()
    hook.finish()
    assert hook.tracker.steps == (0, 1)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: active_units(perceptron(), level=0.0), "level must be positive"),
        (lambda: active_units(perceptron(), tolerance=2.0), "tolerance must be between"),
        (lambda: UnitTracker(perceptron(), **wrong), "schedule must be a function"),
        (lambda: UnitTracker(perceptron()).staircase([1.0, 2.0]), "losses must be 1 numbers"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence, types_unchecked):
    with types_unchecked(), pytest.raises(InputError, match=sentence):
        call()


def test_weights_that_are_not_finite_are_refused():
    model = perceptron()
    with torch.no_grad():
        weight(model, 0)[0, 0] = torch.nan
    with pytest.raises(InputError, match="weights must be finite"):
        active_units(model)
