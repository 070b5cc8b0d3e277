"""Models of Transformers, tiny and with random weights, shared by the tests of layouts and of checkpoints."""

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers")
COMMON = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 16,
    "vocab_size": 50,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "attn_implementation": "eager",
}
GROUPED = COMMON | {"num_key_value_heads": 2, "head_dim": 8}
FALCON = {name: value for name, value in COMMON.items() if name != "intermediate_size"}
GPT = {"n_embd": 24, "n_layer": 2, "n_head": 4} | {k: v for k, v in COMMON.items() if k[0] in "abev" or k[:3] == "pad"}
IMAGES = {k: v for k, v in COMMON.items() if "token" not in k and k != "vocab_size"} | {
    "image_size": 8,
    "patch_size": 4,
}
MODELS = {
    "GPT2": GPT,
    "GPTBigCode": GPT,  # one key for all heads
    "Bert": COMMON,
    "ViT": IMAGES,
    "Llama": GROUPED,
    "Mistral": GROUPED,
    "Qwen2": GROUPED,
    "Qwen3": GROUPED,
    "Phi3": GROUPED,
    "GPTNeoX": COMMON,
    "Bloom": FALCON | {"n_layer": 2, "n_head": 4},
    "Falcon": FALCON | {"multi_query": True, "new_decoder_architecture": False},
    "Falcon-grouped": FALCON | {"num_kv_heads": 2, "new_decoder_architecture": True},
    "Falcon-separate": FALCON | {"multi_query": False, "new_decoder_architecture": False},
    "DistilBert": {k: v for k, v in COMMON.items() if k[:3] != "num"} | {"dim": 24, "n_heads": 4, "n_layers": 2},
    "ModernBert": COMMON,
}


def built(name):
    """Build a random model in double precision and evaluation mode, without the parts outside of the products."""
    kind = name.partition("-")[0]
    torch.manual_seed(0)
    config = getattr(transformers, kind + "Config")(**MODELS[name])
    model = getattr(transformers, kind + "Model")(config).double().eval()
    for own, parameter in model.named_parameters():
        nn.init.zeros_(parameter) if own.endswith("bias") else None
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.3)
    for module in model.modules():
        for norm in ("q_norm", "k_norm"):
            if hasattr(module, norm):
                setattr(module, norm, nn.Identity())
    return model
