"""Self-check: products are those that the module's own forward pass uses, or the module is refused with the reason."""

import contextlib
import copy
import warnings
import weakref

import numpy as np
import pytest
import torch
from attention_standins import Layers, LlamaAttention, attend, attention_blocks
from kinds import OUTCOMES, SINGLE, BiasTable, Convolved, Flex, Llama, OfWidth, OfWidthRotated, Whisper, heads, llama
from torch import nn
from torch.nn.utils import parametrizations

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import Fused, RankTracker, Separate
from saddlescope.ranks.attention.attention_blocks import find_attention, require_attention


def found_in(module, name="attn"):
    return find_attention(nn.ModuleDict({name: module}))


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes_and_reasons(name):
    make, outcome, reason = OUTCOMES[name]
    module = make()
    found = found_in(module)
    (row,) = found.coverage
    assert row.outcome == outcome
    assert row.reason.startswith(reason) if reason is not None else row.reason == ""
    if outcome == "refused":
        assert row.reason
        refused(f"with attn .{type(module).__name__}.: ", require_attention, found, nn.ModuleDict({"attn": module}))
    else:
        assert len(found.blocks) == 1
        assert row.heads == (1 if name == "images without a number of heads" else 4)


def test_weights_of_arrangements_that_names_would_misread():
    module = BiasTable()
    key = module.qkv.weight.detach().unflatten(0, (4, 9))[:, 3:6]  # (heads, width, inputs)
    torch.testing.assert_close(found_in(module).blocks[0].factors().key, key.transpose(1, 2))
    assert isinstance(found_in(Convolved()).blocks[0].layout, Fused)
    for kind in (OfWidth, OfWidthRotated):
        assert attention_blocks(nn.ModuleDict({"attn": kind()}), check=False)[0].heads == 4


def test_nothing_is_compiled_for_a_check():
    module = Flex()
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert found_in(module).coverage[0].outcome == "verified"
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


class Mamba(Layers, num_heads=4, in_proj=(12, 36), out_proj=(12, 12)):
    """Names of attention without any."""

    def forward(self, x):
        a, b, c = self.in_proj(x).chunk(3, dim=-1)
        return self.out_proj(a * b.cumsum(1) + c.softmax(-1))


def test_refused_attention_of_any_class_is_reported():
    rectified = OUTCOMES["rectified queries"][0]()
    model = nn.ModuleDict({"mixer": rectified, "other": Mamba(), "attn": BiasTable()})
    with pytest.warns(UserWarning, match="1 of Kind, such as mixer: its scores are not those"):
        tracker = RankTracker(model)
    assert [(row.name, row.outcome) for row in tracker.coverage] == [("mixer", "refused"), ("attn", "verified")]


def test_a_wrong_layout_of_the_user_is_refused():
    wrong = Separate("v_proj", "q_proj", "k_proj", "o_proj")
    with pytest.raises(InputError, match="its scores are not those of W_K W_Q"):
        attention_blocks(nn.ModuleDict({"attn": LlamaAttention(12, 4, 4, 3)}), (wrong,))


def test_the_check_changes_nothing():
    """Weights, buffers, modes, hooks and the random state are those of before."""
    module, called = LlamaAttention(12, 4, 2, 5).train(), []
    module.q_proj.register_forward_hook(lambda *_: called.append(1))
    before, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    find_attention(module)
    assert torch.equal(torch.get_rng_state(), state)
    assert not called
    assert module.training
    assert len(module.q_proj._forward_hooks) == 1
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("shared", [("q_proj", "k_proj"), ("k_proj", "v_proj"), ("v_proj", "o_proj")])
def test_a_layer_of_two_names_keeps_its_parameters(shared):
    module = LlamaAttention(12, 4, 4, 3)
    setattr(module, shared[1], getattr(module, shared[0]))
    before = dict(module.named_parameters(remove_duplicate=False))
    tracker = RankTracker(nn.Sequential(module))
    with torch.no_grad():
        module.q_proj.weight.mul_(1.5)
    tracker.measure()
    after = dict(module.named_parameters(remove_duplicate=False))
    assert {name: id(one) for name, one in before.items()} == {name: id(one) for name, one in after.items()}
    assert np.all(tracker.to_xarray().update_norm.sel(product="KQ").values > 0)


def test_layers_that_differ_only_in_weights_share_one_check(monkeypatch):
    from saddlescope.ranks.attention import attention_blocks as searched

    calls, original = [], searched.probes
    monkeypatch.setattr(searched, "probes", lambda *a, **k: calls.append(1) or original(*a, **k))
    model = nn.ModuleList(LlamaAttention(12, 4, 2, 5) for _ in range(3))
    model.append(LlamaAttention(12, 4, 4, 5))
    assert find_attention(model).coverage.count("verified") == 4
    assert len(calls) == 2
    model = nn.ModuleList(LlamaAttention(12, count, count, 12 // count) for count in (4, 2))  # of one shape
    for check in (True, False):
        assert [block.heads for block in attention_blocks(model, check=check)] == [4, 2]


class Inside(nn.Module):
    """Model that calls its attention with an argument that no check can guess."""

    def __init__(self, layer, argument):
        super().__init__()
        self.attn, self.argument = layer, argument

    def forward(self, x):
        return self.attn(x, self.argument(x))


class WrongOrder(Llama):
    def forward(self, x, options):
        return self.joined(attend(*self.parts(x))[:, [1, 0, 3, 2]] * options["scale"])


class InterleavedOnly(Layers, num_heads=4, qkv=(12, 36), proj=(12, 12)):
    """Each head's query, key and value are together."""

    def forward(self, x, options):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(x).unflatten(-1, (4, 9)).split(3, dim=3))
        return self.proj(attend(q, k, v).transpose(1, 2).flatten(2) * options["scale"])


class OtherKeys(Llama):
    """Queries of one input, keys and values of another one."""

    def forward(self, x, context):
        return self.joined(attend(heads(self.q_proj(x)), heads(self.k_proj(context)), heads(self.v_proj(context))))


class NeedsMore(Llama):
    def forward(self, x, bias):
        q, k, v = self.parts(x)
        return self.joined(((q @ k.transpose(-1, -2)) + bias["table"]).softmax(-1) @ v)


class Crossed(NeedsMore):
    def parts(self, x):
        q, k, v = super().parts(x)
        return (part for part in (q, k.flip(1), v))


class Windows(Layers, heads=4, to_qkv=(12, 36), to_out=lambda: nn.Sequential(nn.Linear(12, 12), nn.Dropout(0.0))):
    """vit-pytorch's MaxViT: a grid of windows, each a square of tokens, and inputs with six axes."""

    def forward(self, x):
        shape = x.shape
        flat = x.reshape(-1, shape[3] * shape[4], shape[5])
        q, k, v = (heads(part) for part in self.to_qkv(flat).chunk(3, dim=-1))
        return self.to_out(attend(q, k, v).transpose(1, 2).reshape(shape))


class Stateful(Llama, calls=lambda: nn.Buffer(torch.zeros(()))):
    """The residual is added in place, and calls are counted."""

    def forward(self, x):
        self.calls += 1
        return x.add_(self.joined(attend(*self.parts(x))))


def scale(x):
    return {"scale": 1.0}


def table(x):
    return {"table": torch.zeros(x.shape[1], x.shape[1])}


@pytest.mark.parametrize(
    ("make", "shape", "found"),
    [
        *((lambda tokens=tokens: Inside(OtherKeys(), lambda x: torch.randn(len(x), tokens, 12)), (2, 5, 12),
           "verified ") for tokens in (3, 5, 9)),
        (lambda: Inside(NeedsMore(), table), (1, 5, 12), "verified "),
        (lambda: nn.Sequential(llama(lambda m, q, k, v: (q @ k.mT).softmax(-1) @ v)()), (2, 64, 12), "verified "),
        (lambda: nn.Sequential(nn.Identity(), Stateful()), (2, 5, 12), "verified "),
        (lambda: nn.Sequential(Windows()), (2, 1, 1, 3, 3, 12), "verified "),
        (lambda: nn.Sequential(OUTCOMES["CvT, tokens mixed first"][0]()), (2, 6, 12), f"unchecked {SINGLE}"),
        (lambda: nn.Sequential(OUTCOMES["not finite"][0]()), (2, 5, 12), "unchecked its forward pass gave NaN or inf"),
    ],
)  # fmt: skip
def test_a_check_on_inputs_of_the_user(make, shape, found):
    model = make().train()
    tracker = RankTracker(model)
    assert tracker.coverage[0].tracked
    (row,) = tracker.check(model, torch.randn(shape))
    assert not any(one.any() for one in model.buffers())
    assert f"{row.outcome} {row.reason}".startswith(found)
    assert row.outcome in str(tracker)
    assert model.training
    refused("inputs must be arguments of the model", tracker.check, model, {"y": 1})
    refused("model must be the tracked one; got another", tracker.check, nn.Linear(5, 5), torch.randn(shape))


def test_hooks_by_which_transformers_keeps_outputs_change_nothing():
    model = nn.Sequential(LlamaAttention(12, 4, 4, 3))
    for module, outcome in (("transformers.utils.output_capturing", "verified"), (__name__, "unchecked")):
        hook = lambda *_: None  # noqa: E731
        hook.__module__ = module
        model[0].q_proj.register_forward_hook(hook)
        assert RankTracker(model).coverage[0].outcome == outcome


def test_a_check_sees_a_forward_pass_that_was_replaced_since():
    model = nn.Sequential(LlamaAttention(12, 4, 4, 3))
    tracker = RankTracker(model)
    assert tracker.coverage[0].outcome == "verified"
    original = model[0].q_proj.forward
    model[0].q_proj.forward = lambda x: 2 * original(x)
    (row,) = tracker.check(model, torch.randn(2, 5, 12))
    assert row.outcome == "unchecked"
    assert row.reason.startswith("the forward pass of q_proj is replaced from outside")


@pytest.mark.parametrize(
    ("layer", "argument", "reported"),
    [
        (WrongOrder, scale, "its output is not what the heads have read"),
        (InterleavedOnly, scale, r"its weights are those of Interleaved\(qkv='qkv', output='proj'"),
        (Crossed, table, "products must be those of the model; got others in attn"),
    ],
)
def test_a_check_on_inputs_finds_products_that_differ(layer, argument, reported):
    model = Inside(layer(), argument)
    tracker = RankTracker(model)
    assert tracker.coverage[0].outcome == "unchecked"
    assert "could not be called alone" in tracker.coverage[0].reason
    refused(reported, tracker.check, model, torch.randn(2, 5, 12))


def test_norms_of_weights_are_read_as_the_forward_pass_computes_them():
    """Without a power iteration of a spectral norm."""
    for norm in (parametrizations.weight_norm, torch.nn.utils.weight_norm, parametrizations.spectral_norm):
        module = Llama()
        with pytest.warns(FutureWarning) if norm is torch.nn.utils.weight_norm else contextlib.nullcontext():
            norm(module.q_proj)
        with torch.no_grad():
            for name, parameter in module.q_proj.named_parameters():
                if name.endswith(("_g", "original0")):
                    parameter.mul_(2)
        before = copy.deepcopy(module.state_dict())
        read = attention_blocks(nn.ModuleDict({"attn": module}), check=False)[0].factors().query
        torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
        assert all(part.training for part in module.modules())
        expected = module.eval().q_proj(torch.eye(12)) - module.q_proj.bias
        torch.testing.assert_close(read, expected.unflatten(1, (4, 3)).permute(1, 0, 2).detach())


def test_a_recurrent_layer_is_called_few_times_and_its_states_are_not_kept():
    """Each state is a product of keys and values plus the last one, and may be as large as the layer."""
    calls, states, most = [], [], []

    class Recurrent(Llama):
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

    (row,) = found_in(Recurrent()).coverage
    assert row.reason == "its forward pass has no softmax: it is not softmax attention on tokens"
    assert len(calls) <= 8  # four that succeed, and those of other forms
    assert max(most) <= 2


class Cross(Whisper):
    """Cross-attention that may be given the values of another layer."""

    def forward(self, x, context=None, former=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        context = x if context is None else context
        v = heads(self.value(context))
        read = attend(heads(self.query(x)), heads(self.key(context)), v if former is None else v + former)
        return self.out(read.transpose(1, 2).flatten(2))


class Needy(Layers, attn=Cross):
    """A model whose run without values fails in a function of PyTorch."""

    def forward(self, x, context=None):
        return self.attn(x, x) + torch.ones(5, 7)


def test_a_run_without_values_that_fails_is_silent(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (row,) = find_attention(Needy()).coverage
    assert row.outcome in ("unchecked", "verified")
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""
