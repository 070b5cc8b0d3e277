"""Adapters with a rank per matrix: PEFT's model has the ranks of the table."""

import pytest
import torch
from tests.tiny_language import SIZES, tiny_gpt2
from torch import nn
from transformers.models.llama import LlamaConfig, LlamaForCausalLM

from refusals import refused
from saddlescope.ranks.lora import with_adapters
from saddlescope.training.architectures.gpt2 import GPT2Sizes

LLAMA = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
RANKS = {
    "transformer.h.0.attn.c_attn.weight": 3,
    "transformer.h.0.mlp.c_proj": 1,
    "transformer.h.1.mlp.c_fc.weight": 5,
    "transformer.h.1.attn.c_proj.weight": 0,
}


def trained_factors(adapted):
    """Return A (r, inputs) and B (outputs, r) by the name of the module."""
    factors = {}
    for name, weight in adapted.named_parameters():
        if weight.requires_grad:
            module, _, which = name.removeprefix("base_model.model.").partition(".lora_")
            factors.setdefault(module, {})[which[0]] = weight
    return factors


def with_names_that_end_in_each_other():
    model = tiny_gpt2()
    model.c_fc = nn.Linear(4, 4, bias=False)
    model.mlp = nn.ModuleDict({"c_fc": nn.Linear(4, 4, bias=False)})
    return model


@pytest.mark.parametrize(
    ("make", "ranks"),
    [
        (tiny_gpt2, RANKS),
        (lambda: tiny_gpt2(sizes=GPT2Sizes(vocabulary=300, block=8, embedding=8, depth=12, heads=1)),
         {f"transformer.h.{layer}.mlp.c_fc": layer % 4 + 1 for layer in range(12)}),
        (with_names_that_end_in_each_other, {"c_fc": 1, "mlp.c_fc": 3}),
        (lambda: LlamaForCausalLM(LlamaConfig(vocab_size=64, num_key_value_heads=1, **LLAMA)),
         {"model.layers.0.mlp.down_proj.weight": 2}),
    ],
)  # fmt: skip
def test_each_matrix_has_the_rank_of_the_table(make, ranks):
    """No name is taken for the beginning or the end of another one."""
    model = make()
    factors = trained_factors(with_adapters(model, ranks))
    found = {module: tuple(pair["B"].shape + pair["A"].shape) for module, pair in factors.items()}
    expected = {}
    for name, rank in ranks.items():
        module = name.removesuffix(".weight")
        m, n = model.get_submodule(module).weight.shape
        m, n = (m, n) if isinstance(model.get_submodule(module), nn.Linear) else (n, m)
        expected |= {module: (m, rank, rank, n)} if rank else {}
    assert found == expected


def test_all_adapters_have_one_scale_whatever_their_rank():
    """Set B and A: the adapted model computes with W + s B A, for GPT-2's transposed matrices too."""
    model, scale = tiny_gpt2(), 0.7
    adapted = with_adapters(model, RANKS, scale=scale)
    generator = torch.Generator().manual_seed(0)
    twin = tiny_gpt2()
    with torch.no_grad():
        for module, pair in trained_factors(adapted).items():
            pair["B"].normal_(generator=generator)
            twin.get_submodule(module).weight += scale * (pair["B"] @ pair["A"]).T
    tokens = torch.arange(16)[None]
    torch.testing.assert_close(adapted(input_ids=tokens).logits, twin(tokens).logits, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(twin(tokens).logits, model(tokens).logits, atol=1e-2)


def test_before_training_nothing_changes_and_the_model_stays_its_own():
    model = tiny_gpt2()
    before = torch.get_rng_state()
    one, again, other = (with_adapters(model, RANKS, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    tokens = torch.arange(16)[None]
    assert torch.equal(one(input_ids=tokens).logits, model(tokens).logits)
    A, B, C = ([pair["A"] for pair in trained_factors(each).values()] for each in (one, again, other))
    assert all(torch.equal(a, b) and not torch.equal(a, c) for a, b, c in zip(A, B, C, strict=True))
    assert all(weight.requires_grad for weight in model.parameters())
    assert not any("lora" in name for name, _ in model.named_modules())


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        ({}, "one above 0"),
        ({"transformer.h.0.mlp.c_fc": 0}, "one above 0"),
        ({"transformer.h.0.mlp.c_fc": -1, "transformer.h.1.mlp.c_fc": 1}, "ranks must be at least 0"),
        ({"transformer.h.7.mlp.c_fc": 1}, "transformer.h.7.mlp.c_fc', which it does not have"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(ranks, sentence):
    refused(sentence, with_adapters, tiny_gpt2(), ranks)


def test_two_ways_of_storing_matrices_are_not_mixed():
    model = tiny_gpt2()
    model.transformer.extra = nn.Linear(SIZES.embedding, 4)
    refused("got both", with_adapters, model, {"transformer.extra": 1, "transformer.h.0.mlp.c_fc": 1})
