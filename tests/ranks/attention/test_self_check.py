"""Self-check: products are those that the module's own forward pass uses, or the module is refused with the reason."""

import contextlib
import copy
import weakref
from typing import Any

import pytest
import torch
from attention_standins import LlamaAttention, attend
from other_attention import (
    MIXED,
    READ,
    REFUSED,
    AddedPositions,
    ChannelsFirst,
    ClassAttention,
    DifferentialInTwoCalls,
    GatedQueries,
    NeedsMask,
    NotFinite,
    OverChannels,
    OverManyChannels,
    StridedGroups,
    TokensMixedFirst,
    _Llama,
)
from torch import nn
from torch.nn.utils import parametrizations

from saddlescope._shared.errors import InputError
from saddlescope.ranks import Fused, RankTracker, Separate
from saddlescope.ranks.attention.attention_blocks import attention_blocks, find_attention


@pytest.mark.parametrize("kind", READ)
def test_the_check_finds_the_arrangement_that_names_leave_open(kind):
    """Compare outputs: attention computed from the factors equals the module's own."""
    torch.manual_seed(0)
    module = kind().double()
    for name, parameter in module.named_parameters():
        if name.endswith("bias") and "norm" not in name:
            nn.init.zeros_(parameter)
    (block,) = attention_blocks(nn.ModuleDict({"layer": module}))
    x = torch.randn(3, 6, 12, dtype=torch.float64)
    expected = module(x.transpose(0, 1)).transpose(0, 1) if kind.__name__ == "SampleSecond" else module(x)
    inputs = module.norm(x) if hasattr(module, "norm") else x
    factors = block.factors().expanded()
    total = torch.zeros_like(expected)
    gates = torch.ones(3, 6, 4, 5)
    if kind is GatedQueries:
        gates = module.q_proj(x).unflatten(-1, (4, 10))[..., 5:].sigmoid()
    for h, (key, query, value, output) in enumerate(zip(*factors[:4], strict=True)):
        width = 1 if kind.__name__ == "Einsum" else key.shape[-1]
        weights = (inputs @ query @ key.T @ inputs.transpose(1, 2) / width**0.5).softmax(-1)
        read = weights @ inputs @ value
        total = total + (read * gates[:, :, h] if kind is GatedQueries else read) @ output.T
    residual = x if hasattr(module, "norm") else 0
    torch.testing.assert_close(total + residual, expected.detach())


@pytest.mark.parametrize("kind", REFUSED)
def test_attention_whose_products_mean_something_else_is_refused(kind):
    model = nn.ModuleDict({"self_attn": kind()})
    found = find_attention(model)
    assert not found.blocks
    (row,) = found.coverage
    assert row.outcome == "refused"
    assert row.reason
    with pytest.raises(InputError, match=kind.__name__):
        RankTracker(model)


@pytest.mark.parametrize("kind", MIXED)
def test_heads_that_are_mixed_are_named_as_the_reason(kind):
    (row,) = find_attention(nn.ModuleDict({"self_attn": kind()})).coverage
    by = "einsum" if kind.__name__ == "MixedByEinsum" else "conv2d"
    assert row.reason == f"its scores or attention weights are mixed by {by}, over heads or tokens"


@pytest.mark.parametrize("kind", [OverChannels, OverManyChannels])
def test_a_softmax_over_channels_is_named_as_the_reason(kind):
    (row,) = find_attention(nn.ModuleDict({"self_attn": kind()})).coverage
    assert row.reason == "its softmax compares channels, by sums over tokens: it is not attention of tokens"


@pytest.mark.parametrize("rotated", [False, True])
def test_the_width_of_a_head_stands_for_the_number_of_heads(rotated):
    """ESMFold2 states no number; a rotary embedding must have the width before the module can be called."""

    class OfWidth(_Llama):
        def __init__(self):
            super().__init__()
            del self.num_heads
            self.head_dim = 3

        def forward(self, x, position_embeddings: Any = None):
            q, k, v = self.parts(x)
            if rotated:
                cos, sin = position_embeddings[0].expand(len(x), -1, 3), position_embeddings[1]
                q, k = (part * cos[:, None] + part.flip(-1) * sin for part in (q, k))
            return self.joined(attend(q, k, v))

    model = nn.ModuleDict({"attn": OfWidth()})
    for check in (True, False):
        assert attention_blocks(model, check=check)[0].heads == 4
    assert find_attention(model).coverage[0].outcome == "verified"


def test_images_without_a_number_of_heads_have_the_one_that_is_seen():
    """The only attention of Chameleon's and Janus' encoders of images."""

    class OfImage(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.GroupNorm(2, 12)
            self.q, self.k, self.v, self.proj_out = (nn.Conv2d(12, 12, 1) for _ in range(4))

        def forward(self, hidden_states):
            x = self.norm(hidden_states)
            q, k, v = (part(x).flatten(2) for part in (self.q, self.k, self.v))
            weights = torch.bmm(q.permute(0, 2, 1), k).softmax(dim=2)
            return hidden_states + self.proj_out(torch.bmm(v, weights.permute(0, 2, 1)).reshape(hidden_states.shape))

    (row,) = find_attention(nn.ModuleDict({"attn": OfImage()})).coverage
    assert (row.outcome, row.heads) == ("verified", 1)


def test_differential_attention_is_named_as_the_reason():
    (row,) = find_attention(nn.ModuleDict({"self_attn": DifferentialInTwoCalls()})).coverage
    assert row.reason == (
        "each head reads several sets of values, as in differential attention, and W_V has one for each head"
    )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (NotFinite, "its forward pass gave NaN or infinity on random inputs"),
        (TokensMixedFirst, "its queries and keys are not those of single tokens of its input"),
        (
            ClassAttention,
            "one query meets all tokens, as in class attention or pooling: the check does not cover it",
        ),
    ],
)
def test_a_call_that_cannot_decide_leaves_the_module_unchecked(kind, reason):
    """The products were not seen to differ: nothing is refused."""
    found = find_attention(nn.ModuleDict({"self_attn": kind()}))
    assert len(found.blocks) == 1
    assert [(row.outcome, row.reason) for row in found.coverage] == [("unchecked", reason)]


@pytest.mark.parametrize("kind", [AddedPositions, NeedsMask, ChannelsFirst])
def test_arguments_that_a_module_cannot_go_without_are_supplied(kind):
    (row,) = find_attention(nn.ModuleDict({"self_attn": kind()})).coverage
    assert (row.outcome, row.reason) == ("verified", "")


def test_a_user_s_inputs_that_give_nan_leave_the_module_unchecked():
    model = nn.Sequential(NotFinite())
    tracker = RankTracker(model)
    (row,) = tracker.check(model, torch.randn(2, 5, 12))
    assert row.outcome == "unchecked"
    assert "NaN" in row.reason


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ({}, "verified"),
        ({"attn_pre_talking_heads": True}, "mixed by conv2d"),
        ({"attn_post_talking_heads": True}, "mixed by conv2d"),
        ({"attn_pre_scale_post_talking_heads": True}, "mixed by conv2d"),
        ({"attn_laser": True}, "its values are not those of W_V"),
        ({"rotary_xpos": True}, "verified"),
        ({"attn_kv_heads": 1}, "verified"),
        ({"attn_kv_heads": 2}, "verified"),
        ({"attn_softclamp_logits": True}, "TorchScript hides it"),
        ({"attn_on_attn": True}, "its output is not what the heads have read"),
        ({"attn_gate_values": True}, "a gate comes between W_V and W_O"),
    ],
)
def test_x_transformers(options, outcome):
    """The library itself, where it is installed; above are modules that compute the same."""
    x_transformers = pytest.importorskip("x_transformers")
    layers = x_transformers.Decoder(dim=64, depth=1, heads=4, **options)
    row = find_attention(layers).coverage[0]
    assert outcome in f"{row.outcome} {row.reason}"


def test_a_wrong_layout_of_the_user_is_refused():
    wrong = Separate("v_proj", "q_proj", "k_proj", "o_proj")
    model = nn.ModuleDict({"attn": LlamaAttention(12, 4, 4, 3)})
    with pytest.raises(InputError, match="its scores are not those of W_K W_Q"):
        attention_blocks(model, (wrong,))


def test_the_gate_is_reported():
    row = find_attention(nn.ModuleDict({"attn": GatedQueries()})).coverage[0]
    assert row.outcome == "verified"
    assert row.reason == "a gate comes between W_V and W_O"


def test_the_check_changes_nothing():
    """Weights, buffers, modes, hooks and the random state are those of before."""
    module = StridedGroups().train()
    called = []
    module.to_q.register_forward_hook(lambda *_: called.append(1))
    before, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    find_attention(module)
    assert torch.equal(torch.get_rng_state(), state)
    assert not called
    assert module.training
    assert len(module.to_q._forward_hooks) == 1
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_zero_weights_hide_nothing():
    """Initial output projections are often zero."""
    module = StridedGroups()
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    assert find_attention(module).coverage[0].outcome == "verified"
    assert find_attention(module).blocks[0].factors().strided


def test_layers_that_differ_only_in_weights_share_one_check(monkeypatch):
    from saddlescope.ranks.attention import attention_blocks as searched

    calls = []
    original = searched.probes
    monkeypatch.setattr(searched, "probes", lambda *a, **k: calls.append(1) or original(*a, **k))
    model = nn.ModuleList(LlamaAttention(12, 4, 2, 5) for _ in range(3))
    model.append(LlamaAttention(12, 4, 4, 5))
    assert find_attention(model).coverage.count("verified") == 4
    assert len(calls) == 2


def test_layers_of_one_shape_and_other_numbers_of_heads_are_checked_apart():
    """The number is in a configuration, as in composite models of Transformers."""
    model = nn.ModuleList(LlamaAttention(12, heads, heads, 12 // heads) for heads in (4, 2))
    for check in (True, False):
        assert [block.heads for block in attention_blocks(model, check=check)] == [4, 2]


class OtherKeys(_Llama):
    """Queries of one input, keys and values of another one."""

    def forward(self, x, context):
        q, _, _ = self.parts(x)
        _, k, v = self.parts(context)
        return self.joined(attend(q, k, v))


@pytest.mark.parametrize("tokens", [3, 5, 9])
def test_keys_of_more_or_fewer_tokens_than_queries_are_checked_or_left(tokens):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = OtherKeys()

        def forward(self, x):
            return self.attn(x, torch.randn(len(x), tokens, 12))

    model = Reader()
    tracker = RankTracker(model)
    (row,) = tracker.check(model, torch.randn(2, 5, 12))
    assert row.outcome == "verified"


class NeedsMore(_Llama):
    """Attention with an argument that no check can guess."""

    def forward(self, x, bias):
        q, k, v = self.parts(x)
        return self.joined(((q @ k.transpose(-1, -2)) + bias["table"]).softmax(-1) @ v)


class Model(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.attn = layer

    def forward(self, x):
        return self.attn(x, {"table": torch.zeros(x.shape[1], x.shape[1])})


class Crossed(NeedsMore):
    def parts(self, x):  # pyright: ignore[reportIncompatibleMethodOverride]
        q, k, v = super().parts(x)
        return q, k.flip(1), v


def test_inputs_of_the_user_check_what_cannot_be_called_alone():
    model = Model(NeedsMore()).train()
    tracker = RankTracker(model)
    (row,) = tracker.coverage
    assert (row.outcome, row.tracked) == ("unchecked", True)
    assert "could not be called alone" in row.reason
    assert tracker.check(model, torch.randn(1, 5, 12))[0].outcome == "verified"
    assert "verified" in str(tracker)
    assert model.training
    wrong = Model(Crossed())
    with pytest.raises(InputError, match=r"products must be those of the model; got others in attn"):
        RankTracker(wrong).check(wrong, torch.randn(2, 5, 12))
    with pytest.raises(InputError, match="inputs must be arguments of the model"):
        tracker.check(model, {"y": 1})


class Rotated(_Llama):
    """litgpt: cosines and sines as two arguments, for some of the columns."""

    rope_n_elem = 2

    def forward(self, x, cos, sin):
        q, k, v = self.parts(x)
        q, k = (torch.cat([part[..., :2] * cos + part[..., :2].flip(-1) * sin, part[..., 2:]], -1) for part in (q, k))
        return self.joined(attend(q, k, v))


def test_rotary_embeddings_that_are_arguments_are_found_by_their_names():
    (row,) = find_attention(nn.ModuleDict({"attn": Rotated()})).coverage
    assert row.outcome == "verified"


class Composite(_Llama):
    """WavLM: PyTorch's function of the whole attention."""

    def forward(self, x):
        y = x.transpose(0, 1)
        weights, biases = zip(*((one.weight, one.bias) for one in (self.q_proj, self.k_proj, self.v_proj)), strict=True)
        out, _ = nn.functional.multi_head_attention_forward(
            y, y, y, 12, 4, torch.empty(0), torch.cat(biases), None, None, False, 0.0, self.o_proj.weight,
            self.o_proj.bias, use_separate_proj_weight=True, q_proj_weight=weights[0], k_proj_weight=weights[1],
            v_proj_weight=weights[2], need_weights=False,
        )  # fmt: skip
        return out.transpose(0, 1)


def test_attention_out_of_sight_is_tracked_and_said_to_be_unchecked():
    (row,) = find_attention(nn.ModuleDict({"attn": Composite()})).coverage
    assert row.outcome == "unchecked"
    assert row.reason == "its forward pass calls multi_head_attention_forward, into which the check cannot look"


class OwnMultihead(nn.MultiheadAttention):
    """A subclass with another forward pass."""

    def forward(self, query, key, value):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(query, value, key)


def test_multihead_attention_of_torch_is_known_but_not_its_subclasses():
    found = find_attention(nn.ModuleList([nn.MultiheadAttention(12, 4), OwnMultihead(12, 4)]))
    assert [row.outcome for row in found.coverage] == ["verified", "unchecked"]
    assert found.coverage[1].reason == "its forward pass is not that of torch.nn.MultiheadAttention"


def test_spectral_norm_is_read_without_a_power_iteration():
    module = _Llama()
    parametrizations.spectral_norm(module.q_proj)
    module.forward = lambda x: x
    before = copy.deepcopy(module.q_proj.state_dict())
    block = attention_blocks(nn.ModuleDict({"attn": module}), check=False)[0]
    read = block.factors().query
    for name, value in module.q_proj.state_dict().items():
        assert torch.equal(value, before[name])
    q_proj: Any = module.q_proj
    assert q_proj.parametrizations.weight[0].training
    q_proj.eval()
    torch.testing.assert_close(read, q_proj.weight.T.unflatten(1, (4, 3)).permute(1, 0, 2).detach())


def test_weight_norm_is_read_as_the_forward_pass_computes_it():
    for norm in (parametrizations.weight_norm, torch.nn.utils.weight_norm):
        module = _Llama()
        with pytest.warns(FutureWarning) if norm is torch.nn.utils.weight_norm else contextlib.nullcontext():
            norm(module.q_proj)
        with torch.no_grad():
            for name, parameter in module.q_proj.named_parameters():
                if name.endswith(("_g", "original0")):
                    parameter.mul_(2)
        read = attention_blocks(nn.ModuleDict({"attn": module}), check=False)[0].factors().query
        expected = module.q_proj(torch.eye(12)) - module.q_proj.bias
        torch.testing.assert_close(read, expected.unflatten(1, (4, 3)).permute(1, 0, 2).detach())


def test_convolutions_of_one_pixel_and_foreign_linear_layers_are_read():
    class Foreign(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(outputs, inputs))

        def forward(self, x):
            return x @ self.weight.T

    class Convolved(nn.Module):
        num_heads = 4

        def __init__(self):
            super().__init__()
            self.qkv, self.proj = nn.Conv1d(12, 36, 1), Foreign(12, 12)

        def forward(self, x):
            parts = self.qkv(x.transpose(1, 2)).transpose(1, 2).chunk(3, dim=-1)
            q, k, v = (part.unflatten(-1, (4, 3)).transpose(1, 2) for part in parts)
            return self.proj(attend(q, k, v).transpose(1, 2).flatten(2))

    found = find_attention(nn.ModuleDict({"attn": Convolved()}))
    assert found.coverage[0].outcome == "verified"
    assert isinstance(found.blocks[0].layout, Fused)


def test_a_recurrent_layer_is_called_few_times_and_its_states_are_not_kept():
    """Each state is a product of keys and values plus the last one, and may be as large as the layer."""
    calls, states, most = [], [], []

    class Recurrent(_Llama):
        def forward(self, x):
            calls.append(1)
            q, k, v = self.parts(x)
            state, read = torch.zeros(len(x), 4, 3, 3), []
            states.clear()
            for at in range(x.shape[1]):
                state = 0.9 * state + k[:, :, at : at + 1].transpose(-1, -2) @ v[:, :, at : at + 1]
                states.append(weakref.ref(state))
                most.append(sum(one() is not None for one in states))
                read.append((q[:, :, at : at + 1] * 0 + state.sum(dim=-1)[:, :, None]).detach())
            return self.joined(torch.cat(read, dim=2))

    (row,) = find_attention(nn.ModuleDict({"attn": Recurrent()})).coverage
    assert row.reason == "its forward pass has no softmax: it is not softmax attention on tokens"
    assert len(calls) <= 8  # four that succeed, and those of other forms
    assert max(most) <= 2
