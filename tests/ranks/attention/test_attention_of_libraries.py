"""Attention as timm, vit-pytorch, Diffusers, Whisper and FlexAttention write it, in stand-ins like the libraries."""

import warnings
from typing import Any

import pytest
import torch
from attention_standins import attend
from other_attention import TokensMixedFirst, _Llama
from torch import nn
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

from saddlescope._shared.errors import InputError
from saddlescope.ranks import RankTracker
from saddlescope.ranks.attention.attention_blocks import find_attention


def rows_of(module, name="attn"):
    return list(find_attention(nn.ModuleDict({name: module})).coverage)


class BiasTable(nn.Module):
    """TinyViT: weights head by head, a table of biases for 25 tokens, and a `train` that returns nothing."""

    attention_bias_idxs: torch.Tensor

    def __init__(self, tokens=25):
        super().__init__()
        self.num_heads = 4
        self.qkv, self.proj = nn.Linear(12, 36), nn.Linear(12, 12)
        self.attention_biases = nn.Parameter(torch.randn(4, tokens))
        distances = (torch.arange(tokens)[:, None] - torch.arange(tokens)).abs()
        self.register_buffer("attention_bias_idxs", distances, persistent=False)

    def train(self, mode=True):  # pyright: ignore[reportIncompatibleMethodOverride]
        super().train(mode)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (4, 9)).split(3, dim=3)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        weights = (q @ k.transpose(-2, -1) + self.attention_biases[:, self.attention_bias_idxs]).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).flatten(2))


def test_the_tokens_of_a_table_of_biases_are_tried():
    """An unchecked module would have the weights of q, k and v one after the other, which is wrong here."""
    module = BiasTable()
    (block,) = find_attention(nn.ModuleDict({"attn": module})).blocks
    (row,) = rows_of(module)
    assert (row.outcome, row.reason) == ("verified", "")
    key = module.qkv.weight.detach().unflatten(0, (4, 9))[:, 3:6]  # (heads, width, inputs)
    torch.testing.assert_close(block.factors().key, key.transpose(1, 2))


def test_a_check_on_inputs_does_not_refuse_mixed_tokens():
    """The products are those of the projections: what mixes tokens before them is outside of them."""
    model = nn.Sequential(TokensMixedFirst())
    tracker = RankTracker(model)
    (row,) = tracker.check(model, torch.randn(2, 6, 12))
    assert (row.outcome, row.reason) == (
        "unchecked",
        "its queries and keys are not those of single tokens of its input",
    )


class WrongOrder(_Llama):
    """Needs an argument that no check knows, and has its heads in another order."""

    def forward(self, x, options):
        q, k, v = self.parts(x)
        return self.joined(attend(q, k, v)[:, [1, 0, 3, 2]] * options["scale"])


def test_a_check_on_inputs_still_finds_products_that_differ():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = WrongOrder()

        def forward(self, x):
            return self.attn(x, {"scale": 1.0})

    model = Model()
    with pytest.raises(InputError, match="its output is not what the heads have read"):
        RankTracker(model).check(model, torch.randn(2, 5, 12))


class InterleavedOnly(nn.Module):
    """Needs an argument that no check knows; each head's query, key and value are together."""

    def __init__(self):
        super().__init__()
        self.num_heads = 4
        self.qkv, self.proj = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x, options):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(x).unflatten(-1, (4, 9)).split(3, dim=3))
        return self.proj(attend(q, k, v).transpose(1, 2).flatten(2) * options["scale"])


def test_a_check_on_inputs_names_the_layout_that_agrees():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = InterleavedOnly()

        def forward(self, x):
            return self.attn(x, {"scale": 1.0})

    model = Model()
    with pytest.raises(InputError, match=r"its weights are those of Interleaved\(qkv='qkv', output='proj'"):
        RankTracker(model).check(model, torch.randn(2, 5, 12))


class Rectified(_Llama):
    """Attention of another name, with queries that are not linear in the inputs."""

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.joined(attend(q.relu(), k, v))


class Gated(nn.Module):
    """Not attention, with names of it (Mamba)."""

    def __init__(self):
        super().__init__()
        self.num_heads = 4
        self.in_proj, self.out_proj = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x):
        a, b, c = self.in_proj(x).chunk(3, dim=-1)
        return self.out_proj(a * b.cumsum(1) + c.softmax(-1))


def test_refused_attention_of_any_class_is_reported():
    model = nn.ModuleDict({"mixer": Rectified(), "other": Gated(), "attn": BiasTable()})
    with pytest.warns(UserWarning, match="1 of Rectified, such as mixer: its scores are not those"):
        tracker = RankTracker(model)
    assert [(row.name, row.outcome) for row in tracker.coverage] == [("mixer", "refused"), ("attn", "verified")]


class Flex(_Llama):
    """Compiled FlexAttention with a bias by distance."""

    compiled: Any = staticmethod(torch.compile(flex_attention, backend="eager"))  # pyright: ignore[reportArgumentType]

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.joined(self.compiled(q, k, v, score_mod=lambda score, b, h, i, j: score - 0.1 * (i - j).abs()))


def test_compiled_flex_attention_is_checked():
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    (row,) = rows_of(Flex())
    assert (row.outcome, row.reason) == ("verified", "")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before  # nothing was compiled


@torch.compile(backend="eager")
def _scores(q, k):
    return (q @ k.transpose(-1, -2)).softmax(-1)


class CompiledScores(_Llama):
    def forward(self, x):
        q, k, v = self.parts(x)
        return self.joined(_scores(q, k) @ v)


def test_compiled_functions_are_seen_through():
    (row,) = rows_of(CompiledScores())
    assert (row.outcome, row.reason) == ("verified", "")


class SixChannels(nn.Module):
    """vit-pytorch's XCiT with heads of 6 channels, the number of tokens that are tried first."""

    def __init__(self):
        super().__init__()
        self.heads = 2
        self.to_qkv, self.to_out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 6)).permute(0, 2, 3, 1) for part in self.to_qkv(x).chunk(3, dim=-1))
        q, k = (functional.normalize(part, dim=-1) for part in (q, k))
        weights = torch.einsum("b h i n, b h j n -> b h i j", q, k).softmax(-1)
        return self.to_out(torch.einsum("b h i j, b h j n -> b h i n", weights, v).permute(0, 3, 1, 2).flatten(2))


def test_as_many_channels_as_tokens_are_not_taken_for_tokens():
    (row,) = rows_of(SixChannels())
    assert row.outcome == "refused"
    assert "its softmax compares channels" in row.reason


class HeadNorm(nn.Module):
    """vit-pytorch's RMSNorm of queries and keys, with a scale for each head."""

    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(4, 1, 3))

    def forward(self, x):
        return functional.normalize(x, dim=-1) * 3**0.5 * self.gamma


class Normalized(_Llama):
    def __init__(self):
        super().__init__()
        self.q_norm, self.k_norm = HeadNorm(), HeadNorm()

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.joined(attend(self.q_norm(q), self.k_norm(k), v))


def test_norms_with_a_scale_for_each_head_are_left_out():
    (row,) = rows_of(Normalized())
    assert (row.outcome, row.reason) == ("verified", "")


class ConvolvedNorm(nn.Module):
    """Not a norm alone: a convolution over tokens comes with it."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(12, 12, 3, padding=1, groups=12)

    def forward(self, x):
        return self.conv(functional.normalize(x, dim=-1).transpose(1, 2)).transpose(1, 2)


class AfterConvolution(_Llama):
    def __init__(self):
        super().__init__()
        self.norm = ConvolvedNorm()

    def forward(self, x):
        return self.joined(attend(*self.parts(self.norm(x))))


def test_norms_with_a_convolution_are_not_left_out():
    (row,) = rows_of(AfterConvolution())
    assert (row.outcome, row.reason) == (
        "unchecked",
        "its queries and keys are not those of single tokens of its input",
    )


class Joint(nn.Module):
    """Diffusers' Flux: tokens of image and text, each with projections of their own, attend to all."""

    def __init__(self):
        super().__init__()
        self.heads = 4
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(12, 12) for _ in range(4))
        self.add_q_proj, self.add_k_proj, self.add_v_proj, self.to_add_out = (nn.Linear(12, 12) for _ in range(4))

    def forward(self, hidden_states, encoder_hidden_states: Any = None):
        pairs = ((self.add_q_proj, self.to_q), (self.add_k_proj, self.to_k), (self.add_v_proj, self.to_v))
        texts, images = encoder_hidden_states, hidden_states
        q, k, v = (
            torch.cat([text(texts), image(images)], dim=1).unflatten(-1, (4, 3)).transpose(1, 2)
            for text, image in pairs
        )
        read = attend(q, k, v).transpose(1, 2).flatten(2)
        count = texts.shape[1]
        return self.to_out(read[:, count:]), self.to_add_out(read[:, :count])


def test_joint_attention_is_checked_and_its_other_projections_are_named():
    (row,) = rows_of(Joint())
    left_out = "its other projections are left out: add_q_proj, add_k_proj, add_v_proj, to_add_out"
    assert (row.outcome, row.reason) == ("verified", left_out)


class Windows(nn.Module):
    """vit-pytorch's MaxViT: a grid of windows, each a square of tokens, and inputs with six axes."""

    def __init__(self):
        super().__init__()
        self.heads = 4
        self.to_qkv = nn.Linear(12, 36)
        self.to_out = nn.Sequential(nn.Linear(12, 12), nn.Dropout(0.0))

    def forward(self, x):
        shape = x.shape
        flat = x.reshape(-1, shape[3] * shape[4], shape[5])
        q, k, v = (part.unflatten(-1, (4, 3)).transpose(1, 2) for part in self.to_qkv(flat).chunk(3, dim=-1))
        return self.to_out(attend(q, k, v).transpose(1, 2).reshape(shape))


def test_a_window_with_six_axes_is_checked_by_inputs():
    model = nn.Sequential(Windows())
    tracker = RankTracker(model)
    (row,) = tracker.check(model, torch.randn(2, 1, 1, 3, 3, 12))
    assert (row.outcome, row.reason) == ("verified", "")


class Whisper(nn.Module):
    """OpenAI's Whisper."""

    def __init__(self):
        super().__init__()
        self.n_head = 4
        self.query, self.value, self.out = (nn.Linear(12, 12) for _ in range(3))
        self.key = nn.Linear(12, 12, bias=False)

    def forward(self, x, xa=None, mask=None, kv_cache=None):
        source = x if xa is None else xa
        parts = self.query(x), self.key(source), self.value(source)
        q, k, v = (part.unflatten(-1, (4, 3)).transpose(1, 2) for part in parts)
        return self.out(attend(q, k, v).transpose(1, 2).flatten(2)), None


def test_whisper():
    (row,) = rows_of(Whisper())
    assert (row.outcome, row.heads, row.reason) == ("verified", 4, "")


class Cross(_Llama):
    """Cross-attention that may be given the values of another layer."""

    def forward(self, x, context=None, former=None):
        context = x if context is None else context
        q, k = (self.q_proj(x), self.k_proj(context))
        v = self.v_proj(context).unflatten(-1, (4, 3)).transpose(1, 2)
        q, k = (part.unflatten(-1, (4, 3)).transpose(1, 2) for part in (q, k))
        return self.joined(attend(q, k, v if former is None else v + former))


class Needy(nn.Module):
    """A model whose run without values fails in a function of PyTorch."""

    def __init__(self):
        super().__init__()
        self.attn = Cross()

    def forward(self, x, context=None):
        return self.attn(x, x) + torch.ones(5, 7)


def test_a_run_without_values_that_fails_is_silent(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (row,) = find_attention(Needy()).coverage
    assert row.outcome in ("unchecked", "verified")
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""
