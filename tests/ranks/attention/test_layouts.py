"""Layouts: the factors of each library's attention reproduce its outputs."""

# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

import math
from types import SimpleNamespace

import pytest
import torch
from attention_standins import GPT2Attention, LlamaAttention, TimmAttention, all_kinds, attention_blocks, zero_biases
from kinds import READ, Einsum, GatedQueries, SampleSecond
from torch import nn
from torch.nn import functional

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import Separate
from saddlescope.ranks.attention.attention_blocks import find_attention

KINDS = ("vit", "torch", "gpt2", "nanogpt", "timm", "vit-pytorch", "bert", "llama", "t5")


def from_factors(factors, x, scale=None):
    """Yield by the paper's formula what each head reads, and its factor of the output."""
    for W_K, W_Q, W_V, W_O in zip(*factors.product(0), *factors.product(1), strict=True):
        width = W_K.shape[1] if scale is None else scale
        yield functional.softmax(x @ W_Q @ W_K.T @ x.transpose(1, 2) / math.sqrt(width), dim=-1) @ x @ W_V, W_O.T


@pytest.mark.parametrize("kind", [*KINDS, *READ])
def test_the_factors_compute_what_the_module_computes(kind):
    """Also where the check has to find an arrangement that names leave open."""
    module = all_kinds()[kind] if kind in KINDS else zero_biases(READ[kind]()).double()
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    (block,) = attention_blocks(nn.ModuleDict({"inner": module}))
    total = sum(read @ out for read, out in from_factors(block.factors(), x))
    torch.testing.assert_close(total, module(x).detach())
    assert block.heads == block.factors().heads == (8 if kind == "pieces" else 4)
    assert not any(part.requires_grad for part in block.factors()[:4])


@pytest.mark.parametrize("kind", [GatedQueries, SampleSecond, Einsum])
@torch.no_grad()
def test_the_factors_compute_what_is_between_norms_gates_and_residuals(kind):
    module = kind().double()
    for name, parameter in module.named_parameters():
        if name.endswith("bias") and "norm" not in name:
            nn.init.zeros_(parameter)
    (block,) = attention_blocks(nn.ModuleDict({"layer": module}))
    x = torch.randn(3, 6, 12, dtype=torch.float64)
    expected = module(x.transpose(0, 1)).transpose(0, 1) if kind is SampleSecond else module(x)
    inputs = module.norm(x) if kind is Einsum else x
    gates = (
        module.q_proj(x).unflatten(-1, (4, 10))[..., 5:].sigmoid() if kind is GatedQueries else torch.ones(1, 1, 4, 1)
    )
    heads = from_factors(block.factors(), inputs, scale=1 if kind is Einsum else None)
    total = sum(gates[:, :, head] * read @ out for head, (read, out) in enumerate(heads))
    torch.testing.assert_close(total + (x if kind is Einsum else 0), expected)


def test_zero_weights_hide_nothing():
    """Initial output projections are often zero."""
    module = READ["strided"]()
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    found = find_attention(module)
    assert found.coverage[0].outcome == "verified"
    assert found.blocks[0].factors().strided


def test_multihead_attention_with_keys_and_values_of_other_widths():
    module = nn.MultiheadAttention(12, 4, kdim=5, vdim=7, bias=False, batch_first=True).double()
    assert module.in_proj_weight is None
    x, k, v = (torch.randn(2, 6, width, dtype=torch.float64) for width in (12, 5, 7))
    total = 0
    factors = attention_blocks(module)[0].factors()
    for W_K, W_Q, W_V, W_O in zip(*factors.product(0), *factors.product(1), strict=True):
        total = total + functional.softmax(x @ W_Q @ W_K.T @ k.transpose(1, 2) / math.sqrt(3), dim=-1) @ v @ W_V @ W_O.T
    torch.testing.assert_close(total, module(x, k, v, need_weights=False)[0].detach())


def test_blocks_come_in_the_models_order_and_shared_weights_once():
    shared = TimmAttention(8, 2)
    model = nn.Sequential(TimmAttention(8, 2), shared, nn.ReLU(), shared, nn.TransformerEncoderLayer(8, 2))
    assert [block.name for block in attention_blocks(model)] == ["0", "1", "4.self_attn"]


def test_modules_with_the_same_parameters_are_reported_once():
    """Tie layers by their parameters, as in unrolled ALBERT-like models: all four, or only some."""
    first, tied, half = (LlamaAttention(8, 2, 1, 4) for _ in range(3))
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        setattr(tied, name, getattr(first, name))
    half.q_proj.weight = first.q_proj.weight
    half.k_proj.weight = first.k_proj.weight
    assert [block.name for block in attention_blocks(nn.Sequential(first, tied, half))] == ["0", "2"]


class Strange(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys, self.queries, self.values, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.setting = nn.Module()
        self.setting.count = 2


def by_hand(**options):
    return (Separate("keys", "queries", "values", "out", **options),)


def test_unknown_names_are_refused_and_can_be_named_by_hand():
    model = nn.Sequential(Strange())
    offered = r"got Sequential, which has none\. Pass layouts=\(Separate\('keys', 'queries', 'values', 'out', heads=N\)"
    with pytest.raises(InputError, match=offered) as reported:
        attention_blocks(model)
    assert len(str(reported.value)) <= 300
    (block,) = attention_blocks(model, by_hand(heads="setting.count"))
    torch.testing.assert_close(block.factors().key[1], model[0].keys.weight[4:].T.detach())
    assert attention_blocks(model, by_hand(heads=4))[0].factors().key.shape == (4, 8, 2)


def test_names_without_a_number_of_heads_or_with_the_wrong_shapes_are_refused():
    model, cross = Strange(), GPT2Attention(8, 2)
    cross.c_attn = type(cross.c_attn)(16, 8)
    unknown = "Strange.*Strange must have its number of heads as an integer under num_heads, "
    refused(unknown, attention_blocks, model, by_hand())
    split = r"Strange.*must split into 3 heads; got \(in, out\) shapes \(8, 8\)"
    refused(split, attention_blocks, model, by_hand(heads=3))
    refused("GPT2Attention.*c_attn must have queries, keys and values of the width 8", attention_blocks, cross)
    model.keys = nn.Linear(8, 12)
    divisor = "Strange.*divisor of its 4 heads for keys, and as many.*got 6 and 4"
    refused(divisor, attention_blocks, model, by_hand(heads=4))


class _NeedsGPU(nn.Module):
    """Attention whose forward pass runs on GPUs alone, so that its names and numbers must suffice."""

    def forward(self, hidden_states, attention_mask=None):
        raise RuntimeError("No CUDA GPUs are available")


class ColumnParallel(nn.Module):
    """Megatron's linear layer: a matrix (out, in), and a forward pass that returns the bias apart."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight.T, self.bias


class Megatron(_NeedsGPU):
    """megatron.core's SelfAttention in one of two processes: two of four query heads, on one of two key heads."""

    def __init__(self, gate=False):
        super().__init__()
        self.config = SimpleNamespace(num_attention_heads=4, num_query_groups=2, hidden_size=12)
        self.num_attention_heads_per_partition, self.num_query_groups_per_partition = 2, 1
        self.linear_qkv = ColumnParallel(12, 3 * (2 + 2 + 2 * gate))
        self.linear_proj = ColumnParallel(6, 12)


class MegatronCross(_NeedsGPU):
    """megatron.core's CrossAttention: for each head, its key and then its value."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(num_attention_heads=4, num_query_groups=4, hidden_size=12)
        self.num_attention_heads_per_partition = 4
        self.linear_q, self.linear_kv = ColumnParallel(12, 12), ColumnParallel(8, 24)
        self.linear_proj = ColumnParallel(12, 12)


class SplitLinear(nn.Module):
    """TransformerEngine's Linear with parameters_split: one parameter for queries, one for keys, one for values."""

    def __init__(self, inputs, **outputs):
        super().__init__()
        self.weight_names = [f"{name}_weight" for name in outputs]
        for name, size in outputs.items():
            self.register_parameter(f"{name}_weight", nn.Parameter(torch.randn(size, inputs)))
            self.register_parameter(f"{name}_bias", nn.Parameter(torch.zeros(size)))


class TransformerEngine(_NeedsGPU):
    """transformer_engine.pytorch's MultiheadAttention: four query heads on two key heads."""

    def __init__(self, fuse_qkv_params=False):
        super().__init__()
        self.num_attention_heads = self.num_attention_heads_per_partition = 4
        self.num_gqa_groups = self.num_gqa_groups_per_partition = 2
        self.qkv_weight_interleaved = fuse_qkv_params
        split = {"query": 12, "key": 6, "value": 6}
        self.layernorm_qkv = ColumnParallel(12, 24) if fuse_qkv_params else SplitLinear(12, **split)
        self.proj = ColumnParallel(12, 12)


def heads_of(rows, *sizes):
    """Return the heads of consecutive rows (out, in), each (in, width)."""
    return [part.T for part in rows.split(sizes)]


def test_megatron_s_linear_layers_are_read_by_the_heads_of_this_process():
    """Its forward pass needs a GPU: what names and numbers say must be right."""
    module = Megatron()
    found = find_attention(nn.ModuleDict({"self_attention": module}))
    assert [(row.outcome, row.heads, row.key_heads) for row in found.coverage] == [("unchecked", 2, 1)]
    assert "No CUDA GPUs" in found.coverage[0].reason
    factors = found.blocks[0].factors()
    first, second, key, value = heads_of(module.linear_qkv.weight, 3, 3, 3, 3)
    torch.testing.assert_close(factors.query, torch.stack([first, second]))
    torch.testing.assert_close(factors.key, key[None])
    torch.testing.assert_close(factors.value, value[None])
    torch.testing.assert_close(factors.output, torch.stack(module.linear_proj.weight.split(3, dim=1)))
    assert find_attention(nn.ModuleDict({"self_attention": Megatron(gate=True)})).coverage[0].outcome == "refused"


def test_megatron_s_cross_attention():
    module = MegatronCross()
    (block,) = attention_blocks(nn.ModuleDict({"cross_attention": module}))
    parts = heads_of(module.linear_kv.weight, *[3] * 8)
    torch.testing.assert_close(block.factors().key, torch.stack(parts[::2]))
    torch.testing.assert_close(block.factors().value, torch.stack(parts[1::2]))


@pytest.mark.parametrize("fused", [False, True])
def test_transformer_engine_s_linear_layers(fused):
    module = TransformerEngine(fuse_qkv_params=fused)
    (block,) = attention_blocks(nn.ModuleDict({"self_attention": module}))
    factors, layer = block.factors(), module.layernorm_qkv
    if fused:  # head by head: two queries, their key, their value
        parts = heads_of(layer.weight, *[3] * 8)
        query, key, value = [parts[at] for at in (0, 1, 4, 5)], [parts[2], parts[6]], [parts[3], parts[7]]
    else:
        query = heads_of(layer.query_weight, *[3] * 4)
        key, value = heads_of(layer.key_weight, 3, 3), heads_of(layer.value_weight, 3, 3)
        assert set(block.weights) == {f"layernorm_qkv.{name}_weight" for name in ("query", "key", "value")} | {
            "proj.weight"
        }
    for found, expected in zip((factors.query, factors.key, factors.value), (query, key, value), strict=True):
        torch.testing.assert_close(found, torch.stack(expected))
