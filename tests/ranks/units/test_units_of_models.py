"""Units of PyTorch models, the number of distinct active ones, and its record; probing leaves no trace."""

import functools
import math
import random
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from attention_standins import Layers
from torch import Tensor, nn
from torch.nn.utils import prune

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import Every, UnitTracker, active_units, units_of
from saddlescope.ranks.units import equal_units


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


class Gated(Layers, gate_proj=(4, 7, False), up_proj=(4, 7, False), down_proj=(7, 4, False)):
    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Between(nn.Module):
    """Function between two layers."""

    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, x):
        return self.act(x)


def power(exponent):
    return Between(lambda x: x**exponent)


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.intermediate = nn.Sequential()
        self.intermediate.add_module("dense", nn.Linear(4, 6))
        self.intermediate.add_module("act", nn.GELU())
        self.output = nn.ModuleDict({"dense": nn.Linear(6, 4)})


wrong: Any = {"schedule": 3}


def images():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(75, 2)
    )


def old_weight_norm(layer):
    with pytest.warns(FutureWarning):
        return torch.nn.utils.weight_norm(layer)


FOUND = [  # model, and name, kind, number and parity of its units
    (perceptron(), [("0 -> 2", "neurons", 6, 0)]),
    (perceptron(activation=nn.Tanh), [("0 -> 2", "neurons", 6, -1)]),
    (nn.ModuleDict({"mlp": Mlp()}), [("mlp.fc1 -> mlp.fc2", "neurons", 5, 0)]),
    (Gated(), [("up_proj and gate_proj -> down_proj", "neurons", 7, 0)]),
    (images(), [("0 -> 3", "kernels", 4, -1), ("3 -> 6", "kernels", 3, 0)]),
    (nn.Sequential(nn.MultiheadAttention(8, 2)), [("0", "heads", 2, 0)]),
    (nn.Sequential(nn.Conv1d(1, 4, 5), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 124, 2)), [("0 -> 3", "kernels", 4, 0)]),
    (nn.Sequential(nn.Conv1d(1, 4, 300), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 3, 2)), [("0 -> 3", "kernels", 4, 0)]),
    (nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 18 * 30, 2)),
     [("0 -> 3", "kernels", 4, 0)]),
    (nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 5, 3), nn.ReLU(), nn.Conv2d(5, 1, 1)),
     [("0 -> 2", "kernels", 4, 0), ("2 -> 4", "kernels", 5, 0)]),
    (nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 1)), [("0 -> 2", "neurons", 1, 0)]),
    (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 5)), nn.ReLU(), nn.Linear(5, 1)),
     [("0 -> 2", "neurons", 5, 0)]),
    (nn.Sequential(old_weight_norm(nn.Linear(3, 5)), nn.ReLU(), nn.Linear(5, 1)), [("0 -> 2", "neurons", 5, 0)]),
    (nn.TransformerDecoderLayer(8, 2, 16, batch_first=True),
     [("linear1 -> linear2", "neurons", 16, 0), ("self_attn", "heads", 2, 0), ("multihead_attn", "heads", 2, 0)]),
    (nn.ModuleDict({"layer": Bert()}), [("layer.intermediate.dense -> layer.output.dense", "neurons", 6, 0)]),
    (nn.Sequential(OrderedDict(fc1=nn.Linear(3, 5), act=nn.ReLU(), fc2=nn.Linear(5, 1))),
     [("fc1 -> fc2", "neurons", 5, 0)]),
    (nn.Sequential(nn.Linear(3, 5), (twice := nn.ReLU()), nn.Linear(5, 4), twice, nn.Linear(4, 1)),
     [("0 -> 2", "neurons", 5, 0), ("2 -> 4", "neurons", 4, 0)]),
]  # fmt: skip


@pytest.mark.parametrize(("model", "found"), FOUND)
def test_units_are_found_once_and_the_model_stays(model, found):
    modes, before = [m.training for m in model.modules()], [p.clone() for p in model.parameters()]
    signs = {group.name: math.prod(group.parities or (0,)) for group in units_of(model)}
    assert [(one.name, one.kind, one.count, signs[one.name]) for one in units_of(model)] == found
    active_units(model)
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


class Backwards(nn.Sequential):
    def forward(self, input):
        for layer in reversed(list(self)):
            input = layer(input)
        return input


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(3, 5), nn.Softmax(-1), nn.Linear(5, 2)),
        Mlp(nn.Softmax(-1)),
        nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 2)),
        nn.Linear(3, 3),
        Backwards(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)),
        *(
            perceptron(activation=functools.partial(Between, act))
            for act in (
                lambda x: torch.cat([x[..., :3].relu(), x[..., 3:].tanh()], -1),
                lambda x: torch.cat([x[..., :3].relu(), -x[..., 3:].relu()], -1),
                lambda x: x.flip(-1).relu(),
                lambda x: x[..., [2, 1, 0, 3, 4, 5]].relu(),
                lambda x: x[..., [0, 3, 2, 1, 4, 5]].relu(),
                lambda x: (x + x.roll(2, -1)).relu(),
                lambda x: x.relu() * torch.tensor([1.0, 1, 1, 1, 1, 2]),
            )
        ),
    ],
)
def test_what_is_no_sum_of_units_is_left_out(model):
    """Functions between two layers may treat units differently, or move them."""
    refused("sum of units", units_of, model)


class Lora(nn.Linear):
    """As of loralib, with an update of 0 so far."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.a, self.b = nn.Parameter(torch.randn(1, inputs)), nn.Parameter(torch.zeros(outputs, 1))

    def forward(self, x):
        return nn.functional.linear(x, self.weight + self.b @ self.a, self.bias)


def _patched(model):
    model[0].forward = lambda x: nn.Linear.forward(model[0], x).flip(-1)


@pytest.mark.parametrize(
    "change", [_patched, lambda model: model.__setitem__(0, Lora(3, 6)), lambda model: model.__setitem__(2, Lora(6, 2))]
)
def test_what_computes_something_else_than_its_weights_say_is_left_out(change):
    model = perceptron()
    change(model)
    nn.init.zeros_(model[2].weight)  # which would hide the difference
    refused(r"found none, since 0 -> 2 is none: .* than its weights say. Name other layers", active_units, model)


class Uncopied(nn.Module):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def forward(self, x):
        return x.relu()


def raising(_):
    raise KeyError("the user's own")


@pytest.mark.parametrize(
    ("middle", "reason"),
    [
        (Uncopied(), "it cannot be copied (TypeError: cannot pickle"),
        (Between(raising), 'it cannot be called on random inputs (KeyError: "the user\'s own"'),
        (nn.PReLU(), "PReLU is no linear layer or convolution that reads 4 features"),
        (nn.GLU(), "Linear is no linear layer or convolution that reads 4 features"),
    ],
)
def test_the_reason_why_a_block_is_left_out_is_the_first_one(middle, reason):
    out = nn.Linear(2 if isinstance(middle, nn.GLU) else 4, 1)
    refused(re.escape(reason), units_of, nn.Sequential(nn.Linear(3, 4), middle, out))


def test_sparse_weights_are_refused():
    model = perceptron()
    model[0].weight = nn.Parameter(model[0].weight.data.to_sparse())
    refused("weights must be dense; got a tensor of torch.sparse_coo", units_of, model)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model[0].register_forward_hook(lambda *_: pytest.fail("a hook was called")),
        lambda model: prune.l1_unstructured(model[0], "weight", amount=5),
        lambda model: prune.l1_unstructured(model[2], "weight", amount=5),
    ],
)
def test_hooks_are_not_called_but_those_that_compute_weights(change):
    model = perceptron()
    change(model)
    assert active_units(model).counts == (6,)


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
    _, out = groups[1].weights_by_layer()
    read = weight(model[2], 0).detach().double()
    np.testing.assert_array_equal(out, [read[:, 25 * unit : 25 * (unit + 1)].T.flatten() for unit in range(6)])


def test_named_pairs():
    model = nn.ModuleDict({"first": nn.Linear(3, 6), "second": nn.Linear(6, 1)})
    (group,) = units_of(model, pairs={"first": "second"})
    assert (group.name, group.count) == ("first -> second", 6)
    (into,), out = group.weights_by_layer()
    assert (into.shape, out.shape, into.dtype) == ((6, 4), (6, 1), torch.float64)
    assert active_units(model, pairs={"first": "second"}).counts == (6,)
    refused("no layer of pairs 'frist'; did you mean first", units_of, model, pairs={"frist": "second"})
    refused("features fit", units_of, model, pairs={"first": "first"})
    refused("features fit", units_of, nn.ModuleDict({"a": nn.Linear(3, 3)}), pairs={"a": "a"})


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
    refused("state must be of the units", UnitTracker(images()).load_state_dict, first.state_dict())


def test_callbacks_take_it():
    pytest.importorskip("transformers")
    from saddlescope.ranks.tracker.trainer_hook import TrackerHook

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
        (lambda: UnitTracker(perceptron()).load_state_dict({}), "state must be that of UnitTracker"),
        (lambda: UnitTracker(perceptron()).load_state_dict(cast("Any", None)), "state must be that of UnitTracker"),
        (lambda: units_of(perceptron(), pairs=cast("Any", {1: 2})), "pairs must map names of layers to names"),
        (lambda: active_units(perceptron(), inputs=torch.randn(0, 3)), "inputs must hold one sample or more"),
        (lambda: units_of(nn.Sequential(*[nn.Linear(2, 2, dtype=torch.complex64)] * 2)), "got a complex"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence, types_unchecked):
    with types_unchecked(), pytest.raises(InputError, match=sentence):
        call()


def neurons(activation, into, out):
    """Return a network with one output of neurons with these weights."""
    weights, width = torch.tensor(into, dtype=torch.float64), len(into)
    model = nn.Sequential(nn.Linear(weights.shape[1], width, bias=False), activation, nn.Linear(width, 1)).double()
    with torch.no_grad():
        weight(model, 0).copy_(weights)
        weight(model, 2).copy_(torch.tensor([out], dtype=torch.float64))
    return model


@pytest.mark.parametrize(
    ("activation", "into", "out", "sizes"),
    [
        (nn.ReLU(), [[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [0.0, 3.0]], [1.0, 0.5, 1.0, -1.0], [3.0, 2.0, 1.0, 0.0]),
        (nn.ReLU(), [[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0], [0.0, 3.0]], [1.0, -0.5, 1.0, -1.0], [3.0, 1.0, 0.0, 0.0]),
        (nn.ReLU(), [[1.0], [-1.0]], [2.0, -1.0], [2.0, 1.0]),
        (nn.Tanh(), [[1.0], [-1.0]], [2.0, -1.0], [3.0, 0.0]),  # odd: neurons that differ by a sign are one
        (power(2), [[2.0], [-1.0]], [1.0, -4.0], [0.0, 0.0]),  # (2x)^2 - 4x^2 is nothing
        (power(2), [[2.0], [1.0]], [1.0, -2.0], [2 ** (2 / 3), 0.0]),  # 2 x^2: three factors, as a product of two
        (power(3), [[2.0], [-1.0]], [1.0, 8.0], [0.0, 0.0]),
        (Between(torch.abs), [[2.0], [-1.0]], [1.0, -2.0], [0.0, 0.0]),
        (nn.LeakyReLU(), [[2.0], [1.0], [-1.0]], [1.0, 1.0, 1.0], [3.0, 1.0, 0.0]),
        (nn.Tanh(), [[1.0], [2.0], [-2.0]], [1.0, 1.0, -1.0], [4.0, 1.0, 0.0]),  # tanh(2x) is not tanh(x)
        (nn.GELU(), [[1.0], [2.0], [-2.0]], [1.0, 1.0, -1.0], [2.0, 2.0, 1.0]),
        (nn.ReLU6(), [[1.0], [2.0]], [1.0, 1.0], [2.0, 1.0]),  # as ReLU only below its bound
        (nn.Softplus(beta=100.0), [[0.012], [0.024]], [100.0, 100.0], [2.4, 1.2]),  # as ReLU only far from 0
        (nn.Threshold(0.01, 0.0), [[0.012], [0.024]], [100.0, 100.0], [2.4, 1.2]),
        (nn.Hardtanh(0.0, 1000.0), [[1.0], [1e4]], [1.0, 1e-4], [1.0, 1.0]),
        (nn.Identity(), [[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0]], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0]),
    ],
)
def test_units_are_one_if_their_features_are_in_proportion(activation, into, out, sizes):
    found = active_units(neurons(activation, into, out), level=0.5)
    np.testing.assert_allclose(found.sizes[0], sizes, atol=1e-12)
    assert (found.active, found.counts) == ((sum(size > 0.5 for size in sizes),), (len(sizes),))


@pytest.mark.parametrize("activation", [nn.ReLU(), power(2), power(3), nn.Tanh()])
def test_sizes_grow_with_the_square_of_all_weights(activation):
    """So that units of different powers compare, and a tenth of the largest size is a level for all."""
    sizes = [active_units(neurons(activation, [[scale]], [scale])).sizes[0] for scale in (1.0, 2.0)]
    np.testing.assert_allclose(sizes[1], 4 * sizes[0])


def test_many_small_copies_are_one_large_unit():
    model = neurons(nn.ReLU(), [[1.0, 0.0], *[[0.0, 1.0]] * 2000], [1.0, *[9e-4] * 2000])
    np.testing.assert_allclose(active_units(model).sizes[0][:3], [1.8, 1.0, 0.0], atol=1e-3)


def test_factors_of_single_units_may_be_of_any_size():
    model = neurons(nn.ReLU(), [[1e100, 0.0], [0.0, 1e-100], [1.0, 1.0]], [1e-100, 1e100, 1.0])
    np.testing.assert_allclose(active_units(model).sizes[0], [2**0.5, 1.0, 1.0])
    np.testing.assert_allclose(active_units(neurons(nn.ReLU(), [[1.0]], [5e-324])).log_sizes[0], np.log(5e-324))


def test_a_factor_between_layers_changes_nothing_for_units_on_inputs():
    model = neurons(nn.ReLU(), [[1e-8, 0.0], [0.0, 1.0], [-1.0, -1.0]], [1e8, 1.0, 1.0])
    assert active_units(model, inputs=torch.eye(2).double()).active == (2,)
    assert active_units(model).active == (3,)


@pytest.mark.parametrize("gate", [nn.functional.silu, nn.functional.relu])
def test_a_factor_between_the_layers_of_a_gated_neuron_changes_nothing(gate):
    torch.manual_seed(0)

    class Block(Gated):
        def forward(self, x):
            return self.down_proj(gate(self.gate_proj(x)) * self.up_proj(x))

    model = Block().double()
    x = torch.randn(5, 4).double()
    before, found = model(x), active_units(model)
    with torch.no_grad():  # neurons 0 and 1 become two halves of neuron 0 with another scale and sign, 1 is gone
        model.gate_proj.weight[1] = model.gate_proj.weight[0]
        model.up_proj.weight[1] = -2 * model.up_proj.weight[0]
        model.down_proj.weight[:, 1] = -0.25 * model.down_proj.weight[:, 0]
        model.down_proj.weight[:, 0] *= 0.5
    halved = active_units(model)
    assert int((halved.sizes[0] > 0).sum()) == 6
    with torch.no_grad():
        model.down_proj.weight[:, 1] = 0.0
        model.down_proj.weight[:, 0] *= 2.0
    np.testing.assert_allclose(active_units(model).sizes[0], halved.sizes[0])
    assert not torch.allclose(before, model(x))
    assert int((found.sizes[0] > 0).sum()) == 7
    parities = (-1, 0)
    degrees = (1.0, 1.0) if gate is nn.functional.relu else (1.0, np.nan)
    np.testing.assert_array_equal(units_of(model)[0].degrees, degrees)
    assert units_of(model)[0].parities == parities


def test_kernels_of_different_groups_read_different_channels():
    model = nn.Sequential(nn.Conv2d(4, 8, 3, groups=4, bias=False), nn.ReLU(), nn.Conv2d(8, 2, 1))
    with torch.no_grad():
        weight(model, 0).copy_(torch.randn(1, 1, 3, 3).expand(8, 1, 3, 3))
    assert int((active_units(model).sizes[0] > 0).sum()) == 4


def test_columns_of_transposed_convolutions_are_those_of_their_channels():
    torch.manual_seed(0)
    model = nn.Sequential(nn.ConvTranspose1d(2, 3, 4), nn.ReLU(), nn.ConvTranspose1d(3, 5, 2))
    (into,), out = units_of(model)[0].weights_by_layer()
    first, second = weight(model, 0).detach().double(), weight(model, 2).detach().double()
    np.testing.assert_array_equal(into[:, :-1], [first[:, unit].flatten() for unit in range(3)])
    np.testing.assert_array_equal(out, [second[unit].flatten() for unit in range(3)])


def test_a_pair_that_is_found_anyway_counts_once():
    assert active_units(units_of(perceptron(), pairs={"0": "2"})).counts == (6,)


@pytest.mark.parametrize("fill", [0.0, -100.0])
def test_dead_neurons_are_found(fill):
    model = perceptron()
    with torch.no_grad():
        weight(model, 0).zero_()
        cast("Tensor", model[0].bias).fill_(fill)
    assert units_of(model)[0].count == 6
    assert active_units(model).active == ((0,) if fill == 0.0 else (1,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("activation", "law"), [(nn.ReLU, (1.0, 0)), (nn.Tanh, (np.nan, -1)), (nn.GELU, (np.nan, 0))])
def test_half_precision_changes_no_law(dtype, activation, law):
    group = units_of(perceptron(activation=activation).to(dtype))[0]
    np.testing.assert_array_equal((*group.degrees, *group.parities), law)


def test_what_is_no_pytorch_model_is_refused_by_name(types_unchecked):
    with types_unchecked(), pytest.raises(InputError, match=r"model must be a torch.nn.Module; got"):
        units_of(wrong)


def test_many_units_take_seconds():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30_000, bias=False), nn.ReLU(), nn.Linear(30_000, 1))
    with torch.no_grad():
        weight(model, 0).copy_(torch.randn(50, 20)[torch.arange(30_000) % 50] * (torch.rand(30_000, 1) + 0.1))
        weight(model, 2).fill_(1.0)
    assert active_units(model, level=1.0).active == (50,)


@pytest.mark.parametrize("parities", [(0,), (1,), (-1,), (0, -1), (-1, -1)])
def test_a_tree_changes_nothing(parities, monkeypatch):
    rng = np.random.default_rng(0)
    which, sign = rng.integers(0, 30, 300), rng.choice([-1.0, 1.0], (300, 1))
    keys = [rng.standard_normal((30, 12))[which] * sign + 1e-2 * rng.standard_normal((300, 12)) for _ in parities]
    found = equal_units.leaders_of(keys, parities, 0.01)
    monkeypatch.setattr(equal_units, "_FEW", 1000)
    np.testing.assert_array_equal(found, equal_units.leaders_of(keys, parities, 0.01))
    assert 30 <= found[0].max() + 1 < 300


def test_a_run_that_diverges_goes_on_with_a_warning():
    model = perceptron()
    tracker = UnitTracker(model, schedule=Every(1))
    with torch.no_grad():
        weight(model, 0)[0, 0] = torch.nan
    with pytest.warns(UserWarning, match="NaN or infinity in 0 -> 2. Its records are NaN from step 1 on"):
        tracker.step()
    tracker.step()  # no further warning
    assert np.isnan(tracker.sizes[0][1:]).all()
    refused("NaN from step 1 on, where the training diverged", tracker.staircase, [1.0, np.nan, np.nan])
    refused("weights must be finite", UnitTracker, model)


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
    model = perceptron(64)
    with torch.no_grad():
        model[0].bias[:46] = -50.0
    x = torch.randn(500, 3)
    fires = int((model[:2](x) > 0).any(0).sum())
    found = active_units(model, inputs=x, tolerance=1e-6, level=1e-6)
    assert found.active == (fires,)
    assert "that fire on the inputs" in repr(found)
    assert "by weights alone" in repr(active_units(model))
    refused("inputs must be arguments of the model", active_units, model, inputs=torch.randn(5, 7))
    refused("inputs must give finite features", active_units, model, inputs=x * torch.nan)
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
