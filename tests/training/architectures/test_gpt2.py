"""GPT-2 from its sizes: weights are drawn, never loaded, so a pretrained model cannot be used by mistake."""

import math

import pytest
import torch
from tests.tiny_language import SIZES, tiny_gpt2, tiny_tokens

from saddlescope.training.architectures.gpt2 import GPT2Sizes, fresh_gpt2


def test_the_weights_are_gpt_2_s_own_initialization():
    depth = 3
    model = fresh_gpt2(GPT2Sizes(vocabulary=400, block=32, embedding=96, depth=depth, heads=4), seed=0)
    block = model.transformer.h[1]
    for weight in (block.attn.c_attn.weight, block.mlp.c_fc.weight, model.transformer.wte.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.03)
        assert abs(weight.mean().item()) < 1e-3
    for weight in (block.attn.c_proj.weight, block.mlp.c_proj.weight):
        assert weight.std().item() == pytest.approx(0.02 / math.sqrt(2 * depth), rel=0.03)
    assert not block.mlp.c_fc.bias.any()
    assert model.lm_head.weight is model.transformer.wte.weight


def test_nothing_is_loaded_and_nothing_is_known(monkeypatch):
    """Detect a pretrained model in place of one trained from scratch."""
    from transformers import PreTrainedModel

    def refuse(*arguments, **options):
        raise AssertionError("weights must be drawn, not loaded")

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    tokens = torch.from_numpy(tiny_tokens().test).long()
    loss = tiny_gpt2()(input_ids=tokens, labels=tokens).loss.item()
    assert loss == pytest.approx(math.log(SIZES.vocabulary), rel=0.01)


def test_there_is_no_dropout():
    model = tiny_gpt2().train()
    tokens = torch.arange(16)[None]
    assert torch.equal(model(tokens).logits, model(tokens).logits)


def test_the_defaults_are_gpt_2_small():
    sizes = GPT2Sizes()
    assert (sizes.vocabulary, sizes.embedding, sizes.depth, sizes.heads) == (50257, 768, 12, 12)
