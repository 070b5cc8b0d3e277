"""Options of extract-lora, with adapters loaded by PEFT itself: its logits are those of the fine-tuned model."""

import json
from fnmatch import fnmatch
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from saved_models import TEXT, build, gpt2, llama, load, saved_pair, with_adapter

from refusals import refused
from saddlescope.ranks.lora import extract_lora, logits_error

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

TOKENS = torch.randint(3, 40, (2, 7), generator=torch.Generator().manual_seed(0))


def bert():
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(transformers.BertConfig(**TEXT, num_labels=3))


@torch.no_grad()
def logits(model, **inputs):
    return model(input_ids=TOKENS, **inputs).logits.double()


def relative(found, expected, before):
    return float((found - expected).norm() / (before - expected).norm())


def test_a_reward_model_of_a_language_model(tmp_path):
    """Its head is new: PEFT, which always stores it whole, loads the adapter."""
    base, *_ = saved_pair(tmp_path, llama())
    reward = transformers.LlamaForSequenceClassification.from_pretrained(tmp_path / "tuned", num_labels=1)
    reward.save_pretrained(tmp_path / "reward")
    extraction = extract_lora(base, tmp_path / "reward", tmp_path / "a", energy=1.0, modules_to_save=["*norm"])
    assert "score.weight" in extraction.whole
    assert "score.weight" not in extraction.left_out
    assert json.loads((tmp_path / "a/adapter_config.json").read_text())["task_type"] == "SEQ_CLS"
    kind = transformers.LlamaForSequenceClassification
    before = kind.from_pretrained(base, num_labels=1, pad_token_id=0)
    before.model.embed_tokens.load_state_dict(reward.model.embed_tokens.state_dict())
    reward.config.pad_token_id = 0
    found = with_adapter(before, tmp_path / "a")
    torch.testing.assert_close(logits(found), logits(reward.eval()), rtol=1e-3, atol=1e-4)
    refused("Pass --no-logits", logits_error, base, tmp_path / "reward", tmp_path / "a")


@pytest.mark.parametrize(
    ("made", "whole", "kept", "task"),
    [
        (llama, ["*norm"], "-", "CAUSAL_LM"),
        (gpt2, ["*.ln_?", "*.c_fc", "*.c_proj", "*wpe"], "*.c_attn.bias", "CAUSAL_LM"),
        (bert, ["*LayerNorm", "bert.embeddings.*_embeddings", "*dense", "*.query"], "*.[kv]*.bias", "SEQ_CLS"),
        (lambda: build("BartForConditionalGeneration"), ["*norm*", "*embed_*", "*v_proj", "*fc?"],
         "*.[kqo]*_proj.bias", "SEQ_2_SEQ_LM"),
    ],
)  # fmt: skip
def test_with_embeddings_and_whole_modules_nothing_is_lost(made, whole, kept, task, tmp_path):
    """Biases change where the module is whole; all other matrices have adapters of full rank."""
    base, tuned, model = saved_pair(tmp_path, made(), lambda name, _: not fnmatch(name, kept))
    extraction = extract_lora(base, tuned, tmp_path / "adapter", energy=1.0, embeddings=True, modules_to_save=whole)
    assert json.loads((tmp_path / "adapter/adapter_config.json").read_text())["task_type"] == task
    kind = type(model).__name__
    assert extraction.left_out == ()
    assert any("merge_and_unload adds both" in one for one in extraction.remarks) == (made is gpt2)
    found, before = with_adapter(load(kind, base), tmp_path / "adapter"), load(kind, base)
    extra = {"decoder_input_ids": TOKENS} if task == "SEQ_2_SEQ_LM" else {}
    assert relative(logits(found, **extra), logits(model, **extra), logits(before, **extra)) < 1e-4
    written = load_file(tmp_path / "adapter/adapter_model.safetensors")
    assert extraction.parameters == sum(tensor.numel() for tensor in written.values())


@pytest.mark.parametrize(
    "made", [gpt2, llama, *(partial(build, name) for name in (
        "ViTForImageClassification", "SwinForImageClassification", "MixtralForCausalLM", "Qwen3MoeForCausalLM",
        "LlavaForConditionalGeneration"))],
)  # fmt: skip
@torch.no_grad()
def test_the_adapter_that_peft_merges_is_the_best_of_its_rank(made, tmp_path):
    """Of every linear layer, also of models whose files have other names; everything else is reported."""
    base, tuned, model = saved_pair(tmp_path, made())
    found, name = extract_lora(base, tuned, tmp_path / "adapter", rank=3), type(model).__name__
    merged = with_adapter(load(name, base), tmp_path / "adapter").merge_and_unload()
    expected, before = dict(model.named_parameters()), dict(load(name, base).named_parameters())
    layers = {f"{layer.name}.weight": layer for layer in found.layers}
    assert len(layers) > 5
    for own, parameter in merged.named_parameters():
        if own in layers:
            values = torch.linalg.svdvals((expected[own] - before[own]).double())
            np.testing.assert_allclose(layers[own].values, values, rtol=1e-6, atol=1e-7)
            error = float((parameter.double() - expected[own]).norm() / values.norm())
            assert error == pytest.approx(float(values[3:].norm() / values.norm()), rel=1e-5, abs=1e-6)
        else:
            assert torch.equal(parameter, before[own])
            assert own in found.left_out


def test_patterns_ranks_and_types(tmp_path):
    base, tuned, _ = saved_pair(tmp_path, llama())
    out = tmp_path / "adapter"
    made = extract_lora(base, tuned, out, energy=0.99, max_rank=2, exclude=["*down_proj", "model.layers.0.*"])
    assert {layer.rank for layer in made.layers} == {2}
    assert all(".layers.1." in layer.name and "down_proj" not in layer.name for layer in made.layers)
    assert {"model.layers.0.mlp.down_proj.weight", "model.norm.weight", "model.embed_tokens.weight"} <= set(
        made.left_out
    )
    exact = load_file(out / "adapter_model.safetensors")
    exclude = ["*down_proj", "model.layers.0.*"]
    out = tmp_path / "short"  # the tensors of the first one are mapped, which Windows does not replace
    extract_lora(base, tuned, out, energy=0.99, max_rank=2, exclude=exclude, dtype="bfloat16", modules_to_save="*norm")
    short = load_file(out / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in short.values()} == {torch.bfloat16}
    for name, tensor in exact.items():
        assert torch.equal(short[name], tensor.bfloat16())
    assert logits_error(base, tuned, out).tokens > 0  # PEFT has loaded every number
