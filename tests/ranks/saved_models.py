"""Tiny models of Transformers whose files differ from the models in memory, or whose parts differ in heads."""

import warnings
from contextlib import contextmanager

import pytest
import torch
from stored_models import moved

transformers = pytest.importorskip("transformers")

TEXT = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 40,
    "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = TEXT | {"num_key_value_heads": 2, "head_dim": 4}
IMAGES = {
    "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 8,
    "patch_size": 4,
}  # fmt: skip
SEQUENCES = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20,
    "encoder_attention_heads": 4, "decoder_attention_heads": 2, "vocab_size": 40, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip


def _llava():
    return transformers.LlavaConfig(
        text_config=GROUPED | {"model_type": "llama"},
        vision_config=IMAGES | {"model_type": "clip_vision_model", "projection_dim": 8},
        image_token_id=3,
    )


BUILT = {
    "ViTForImageClassification": lambda: transformers.ViTConfig(**IMAGES),
    "SwinForImageClassification": lambda: transformers.SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 4], window_size=4
    ),
    "MixtralForCausalLM": lambda: transformers.MixtralConfig(**GROUPED, num_local_experts=3),
    "Qwen3MoeForCausalLM": lambda: transformers.Qwen3MoeConfig(
        **GROUPED, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=12, decoder_sparse_step=1
    ),
    "LlavaForConditionalGeneration": _llava,
    "BartForConditionalGeneration": lambda: transformers.BartConfig(**SEQUENCES, max_position_embeddings=32),
    "WhisperForConditionalGeneration": lambda: transformers.WhisperConfig(
        **SEQUENCES, num_mel_bins=4, max_source_positions=8, max_target_positions=8
    ),
    "CLIPModel": lambda: transformers.CLIPConfig(
        text_config=TEXT, vision_config=IMAGES | {"num_attention_heads": 6}, projection_dim=8
    ),
    "Qwen2VLForConditionalGeneration": lambda: transformers.Qwen2VLConfig(
        text_config=GROUPED | {"rope_scaling": {"type": "mrope", "mrope_section": [1, 1]}},
        vision_config={"depth": 2, "embed_dim": 24, "num_heads": 3, "hidden_size": 16, "patch_size": 4},
    ),
}


@contextmanager
def quietly():
    """Silence the libraries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def build(name, seed=0):
    """Build a random model."""
    torch.manual_seed(seed)
    with quietly():
        return getattr(transformers, name)(BUILT[name]()).eval()


def text_model(seed=0, **settings):
    """Build a random model of language."""
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT, **settings)).eval()


def llama():
    """Build one with fewer keys than queries."""
    return text_model(num_key_value_heads=2)


def gpt2():
    """Build one whose layers store their weights as (inputs, outputs)."""
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 24, "vocab_size": 50, "n_positions": 16}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def save(model, folder):
    """Save a model as Transformers does."""
    with quietly():
        model.save_pretrained(folder)
    return folder


def load(name, folder):
    """Load a model as Transformers does."""
    with quietly():
        return getattr(transformers, name).from_pretrained(folder).eval()


def saved_pair(tmp_path, model, changed=lambda name, parameter: True, seed=1, size=0.05):
    """Save a model before and after a change of some of its parameters; return the folders and the changed model."""
    base = save(model.eval(), tmp_path / "base")
    chosen = {name: one for name, one in model.named_parameters() if changed(name, one)}
    model.load_state_dict(moved(chosen, seed, size), strict=False)
    return base, save(model, tmp_path / "tuned"), model


def with_adapter(model, folder):
    """Return a model with an adapter, as PEFT loads it."""
    import peft

    with quietly():
        return peft.PeftModel.from_pretrained(model, folder).eval()
