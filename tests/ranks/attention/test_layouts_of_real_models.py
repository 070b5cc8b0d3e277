"""Layouts of real models: the factors compared with the attention that the models compute.

The models are those of Transformers, tiny and with random weights. Scores come from the attention probabilities that a
model returns, outputs from the inputs and outputs of its output projection. The parts outside of the products are
disabled: biases are zero, all positions are 0 (rotary embeddings are then the identity), norms of queries and keys are
the identity.
"""

# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false

import pytest
import torch
from attention_standins import attention_blocks
from real_models import GPT, GROUPED, MODELS, built, transformers
from torch import nn

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.ranks import RankTracker
from saddlescope.ranks.attention.attention_blocks import find_attention
from saddlescope.ranks.attention.layouts import Fused, Interleaved, KeyValue
from saddlescope.ranks.attention.stated_numbers import resolve


def entered_and_left(model, modules, run):
    """Return the inputs and outputs of these modules during a call."""
    seen = {}
    hooks = [
        module.register_forward_hook(lambda module, given, result: seen.__setitem__(module, (given[0], result)))
        for module in modules
    ]
    out = run(model)
    for hook in hooks:
        hook.remove()
    return out, seen


def run(model):
    if model.main_input_name == "pixel_values":
        return model(torch.randn(2, 3, 8, 8, dtype=torch.float64), output_attentions=True)
    tokens = torch.randint(3, 50, (2, 7))
    placed = type(model).__name__ not in ("BloomModel", "DistilBertModel")  # their positions are no argument
    still = {"position_ids": torch.zeros_like(tokens)} if placed else {}
    return model(tokens, attention_mask=torch.ones_like(tokens), output_attentions=True, **still)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_scores_and_outputs_are_those_of_the_products(name, monkeypatch):
    if name == "Bloom":  # positions enter as a bias of the scores: none here
        monkeypatch.setattr(
            "transformers.models.bloom.modeling_bloom.build_alibi_tensor",
            lambda mask, heads, dtype: torch.zeros(mask.shape[0] * heads, 1, mask.shape[1], dtype=dtype),
        )
    model = built(name)
    blocks = attention_blocks(model)
    assert len(blocks) == 2
    keys = [getattr(block.layout, "key", None) or block.layout.qkv for block in blocks]
    inputs = [resolve(block.module, path) for block, path in zip(blocks, keys, strict=True)]
    outputs = [resolve(block.module, block.layout.output) for block in blocks]
    out, seen = entered_and_left(model, [*inputs, *outputs], run)
    for block, into, outof, probabilities in zip(blocks, inputs, outputs, out.attentions, strict=True):
        x, (key, query), (value, read) = seen[into][0], *map(block.factors().product, (0, 1))
        assert block.heads == 4
        scores = torch.einsum("bid,hdk,hek,bje->bhij", x, query, key, x) * key.shape[-1] ** -0.5
        seeing = probabilities > 0
        assert seeing.double().mean() > 0.5
        torch.testing.assert_close(scores.masked_fill(~seeing, -torch.inf).softmax(-1), probabilities)
        left = torch.einsum("bhij,bjd,hdk,hek->bie", probabilities, x, value, read)
        torch.testing.assert_close(left, seen[outof][1])


@torch.no_grad()
def test_cross_attention_of_gpt2():
    model = transformers.GPT2Model(transformers.GPT2Config(**GPT, add_cross_attention=True)).double().eval()
    blocks = attention_blocks(model)
    assert [block.name for block in blocks] == ["h.0.attn", "h.0.crossattention", "h.1.attn", "h.1.crossattention"]
    cross = model.h[0].crossattention
    nn.init.normal_(cross.c_attn.weight)
    nn.init.normal_(cross.q_attn.weight)
    tokens, other = torch.randint(3, 50, (2, 5)), torch.randn(2, 6, 24, dtype=torch.float64)
    out, seen = entered_and_left(
        model, [cross.q_attn], lambda model: model(tokens, encoder_hidden_states=other, output_attentions=True)
    )
    factors = blocks[1].factors()
    scores = torch.einsum("bid,hdk,hek,bje->bhij", seen[cross.q_attn][0], factors.query, factors.key, other) / 6**0.5
    torch.testing.assert_close(scores.softmax(-1), out.cross_attentions[0])


def test_the_check_finds_weights_that_alternate_head_by_head():
    """Use StarCoder without its shared key, which has the names of GPT-2 and the order of GPT-NeoX."""
    model = transformers.GPTBigCodeModel(transformers.GPTBigCodeConfig(**GPT, multi_query=False))
    with pytest.raises(InputError, match=r"multi_query=False, which orders them head by head. Pass layouts=\(Interlea"):
        attention_blocks(model, check=False)
    block = attention_blocks(model)[0]
    assert block.layout == Interleaved("c_attn", "c_proj", heads=4)
    factors = block.factors()
    weight = model.h[0].attn.c_attn.weight
    torch.testing.assert_close(factors.query[1], weight[18:24].T.detach())
    torch.testing.assert_close(factors.key[1], weight[24:30].T.detach())
    torch.testing.assert_close(factors.value[1], weight[30:36].T.detach())


def test_a_block_that_cannot_be_read_is_reported_and_the_others_are_tracked():
    model = transformers.LlamaModel(transformers.LlamaConfig(**GROUPED))
    model.layers[0].self_attn.q_proj = nn.Linear(24, 64)
    found = find_attention(model)
    assert [block.name for block in found.blocks] == ["layers.1.self_attn"]
    assert [row.outcome for row in found.coverage] == ["refused", "verified"]
    assert "as many for values; got 1 and 2" in found.coverage[0].reason
    with pytest.warns(UserWarning, match="1 of LlamaAttention, such as layers.0.self_attn"):
        RankTracker(model)
    refused(r"trackable with strict=True; got layers.0.self_attn: ", RankTracker, model, strict=True)


def test_heads_that_do_not_divide_are_refused():
    model = transformers.LlamaModel(transformers.LlamaConfig(**GROUPED))
    model.layers[1].self_attn.config.num_attention_heads = 5
    refused(r"must split into 5 heads; got \(in, out\) shapes \(24, 16\), \(24, 32\)", RankTracker, model)
    for layout, message in ((Interleaved("qkv", "proj"), "must have 5 queries"), (KeyValue("kv", "q", "proj"), "5 h"),
                            (Fused("qkv", "proj", heads=5), "split into 5 heads")):  # fmt: skip
        module = nn.Module()
        module.num_heads, module.qkv, module.proj = 5, nn.Linear(24, 72), nn.Linear(24, 24)
        module.q, module.kv = nn.Linear(24, 24), nn.Linear(24, 48)
        refused(message, attention_blocks, module, (layout,))
