"""Options of extract-lora, with adapters loaded by PEFT itself: its logits are those of the fine-tuned model."""

import json
import warnings
from fnmatch import fnmatch

import pytest
import torch
from safetensors.torch import load_file
from saved_models import build, save
from stored_models import moved
from test_lora_extract import gpt2, llama

from saddlescope.train.lora import extract_lora

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

TOKENS = torch.randint(3, 40, (2, 7), generator=torch.Generator().manual_seed(0))


def bert():
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            hidden_size=24,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            vocab_size=50,
            num_labels=3,
        )
    )


def folders(tmp_path, model, *, seed=1, kept="-"):
    """Save a model before and after a change of every parameter but those kept; return the folders and the model."""
    base = save(model.eval(), tmp_path / "base")
    parameters = {name: one for name, one in model.named_parameters() if not fnmatch(name, kept)}
    model.load_state_dict(moved(parameters, seed, 0.05), strict=False)
    return base, save(model, tmp_path / "tuned"), model


def adapted(kind, base, adapter, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(transformers, kind).from_pretrained(base)
        return peft.PeftModel.from_pretrained(model, adapter, **options).eval()


@torch.no_grad()
def logits(model, **inputs):
    return model(input_ids=TOKENS, **inputs).logits.double()


def relative(found, expected, before):
    return float((found - expected).norm() / (before - expected).norm())


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
    base, tuned, model = folders(tmp_path, made(), kept=kept)
    extraction = extract_lora(base, tuned, tmp_path / "adapter", energy=1.0, embeddings=True, modules_to_save=whole)
    assert json.loads((tmp_path / "adapter/adapter_config.json").read_text())["task_type"] == task
    kind = type(model).__name__
    assert extraction.left_out == ()
    found = adapted(kind, base, tmp_path / "adapter")
    before = getattr(transformers, kind).from_pretrained(base).eval()
    extra = {"decoder_input_ids": TOKENS} if task == "SEQ_2_SEQ_LM" else {}
    assert relative(logits(found, **extra), logits(model, **extra), logits(before, **extra)) < 1e-4
    written = load_file(tmp_path / "adapter/adapter_model.safetensors")
    assert extraction.parameters == sum(tensor.numel() for tensor in written.values())
