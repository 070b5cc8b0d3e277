"""Attention as other libraries write it: the same attribute names, weight layouts and head splitting, nothing more.

Each class computes its forward pass the way its library does, so a test can hold the factors that saddlescope cuts out
against what the module really computes. Biases are left at zero, so that the factors are all there is.
"""

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

from saddlescope.ranks.attention.attention_blocks import find_attention, require_attention
from saddlescope.ranks.attention.known_layouts import LAYOUTS


def attend(q, k, v):
    return functional.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1) @ v


def heads(x, count=4):
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def joined(read):
    return read.transpose(1, 2).flatten(2)


class Layers(nn.Module):
    """Module with the parts that its class names: numbers, (inputs, outputs) of linear layers, and makers of others."""

    made_of: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **parts):
        cls.made_of = cls.made_of | parts

    def __init__(self):
        super().__init__()
        for name, part in self.made_of.items():
            made = nn.Linear(*part) if isinstance(part, tuple) else part
            setattr(self, name, made() if callable(part) else made)


def kind(split, read=attend, **parts):
    """Return a class of attention: its numbers and layers by name, the last one for the output.

    Args:
        split: function of the module and its inputs that returns queries, keys and values.
        read: function of these that returns what the heads read.
        parts: as of `Layers`.
    """
    *_, output = parts

    class Kind(Layers, **parts):
        def forward(self, x):
            return getattr(self, output)(joined(read(*split(self, x))))

    return Kind


def attention_blocks(model, layouts=LAYOUTS, **options):
    """Return the attention blocks of a model, or raise for one without."""
    found = find_attention(model, layouts, **options)
    require_attention(found, model)
    return found.blocks


def zero_biases(module):
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return module


class Conv1D(nn.Module):
    """transformers.pytorch_utils.Conv1D: a linear layer that stores (in, out)."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight = nn.Parameter(torch.randn(nx, nf) * 0.2)
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)


class GPT2Attention(nn.Module):
    """transformers' GPT2Attention, without its causal mask."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.embed_dim = self.split_size = embed_dim
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.c_attn = Conv1D(3 * embed_dim, embed_dim)
        self.c_proj = Conv1D(embed_dim, embed_dim)

    def forward(self, x):
        query, key, value = self.c_attn(x).split(self.split_size, dim=2)
        shape = (*x.shape[:-1], -1, self.head_dim)
        q, k, v = (part.view(shape).transpose(1, 2) for part in (query, key, value))
        return self.c_proj(attend(q, k, v).transpose(1, 2).reshape(*x.shape[:-1], -1))


class TimmAttention(nn.Module):
    """timm.layers.Attention."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        return self.proj(attend(q, k, v).transpose(1, 2).reshape(B, N, C))


class BertAttention(nn.Module):
    """transformers' BertAttention: Q, K, V in `self`, the output projection in `output.dense`."""

    def __init__(self, hidden_size, heads):
        super().__init__()
        self.self = nn.Module()
        self.self.num_attention_heads = heads
        for name in ("query", "key", "value"):
            setattr(self.self, name, nn.Linear(hidden_size, hidden_size))
        self.output = nn.Module()
        self.output.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, x):
        heads = self.self.num_attention_heads
        q, k, v = (
            part(x).view(*x.shape[:2], heads, -1).transpose(1, 2)
            for part in (self.self.query, self.self.key, self.self.value)
        )
        return self.output.dense(attend(q, k, v).permute(0, 2, 1, 3).flatten(2))


class LlamaAttention(nn.Module):
    """transformers' LlamaAttention with grouped queries, without its rotation: head counts in `config` only."""

    def __init__(self, hidden_size, heads, key_value_heads, head_dim):
        super().__init__()
        self.config = type("LlamaConfig", (), {"num_attention_heads": heads, "num_key_value_heads": key_value_heads})()
        self.head_dim = head_dim
        self.num_key_value_groups = heads // key_value_heads
        self.q_proj = nn.Linear(hidden_size, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden_size, key_value_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(hidden_size, key_value_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, hidden_size, bias=False)

    def forward(self, x):
        shape = (*x.shape[:-1], -1, self.head_dim)
        q, k, v = (part(x).view(shape).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        k, v = (self.repeat_kv(part) for part in (k, v))
        return self.o_proj(attend(q, k, v).transpose(1, 2).reshape(*x.shape[:-1], -1))

    def repeat_kv(self, states):
        batch, heads, length, width = states.shape
        states = states[:, :, None].expand(batch, heads, self.num_key_value_groups, length, width)
        return states.reshape(batch, -1, length, width)


class TorchSelfAttention(nn.Module):
    """torch.nn.MultiheadAttention, attending to its own input."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


# GPT-2's names with ordinary linear layers
nano_gpt = kind(lambda m, x: map(heads, m.c_attn(x).split(12, dim=2)), n_head=4, c_attn=(12, 36), c_proj=(12, 12))
# head width independent of the embedding, the output in a Sequential
vit_pytorch = kind(
    lambda m, x: map(heads, m.to_qkv(x).chunk(3, dim=-1)),
    heads=4,
    to_qkv=(12, 60, False),
    to_out=lambda: nn.Sequential(nn.Linear(20, 12), nn.Dropout(0.0)),
)
# transformers' T5Attention in names and shapes, with the usual scaling
t5 = kind(
    lambda m, x: (heads(part(x)) for part in (m.q, m.k, m.v)),
    n_heads=4,
    **dict.fromkeys("qkv", (12, 20, False)),
    o=(20, 12, False),
)


def all_kinds() -> dict[str, nn.Module]:
    """Return one of each on inputs of width 12, with 4 heads."""
    from saddlescope.training import ViT, ViTConfig

    torch.manual_seed(1)
    vit = ViT(ViTConfig(image_size=8, channels=1, patch=4, embedding=12, depth=1, heads=4, head_width=5, mlp_width=7))
    kinds = {
        "vit": vit.blocks[0].attention,
        "torch": TorchSelfAttention(12, 4),
        "gpt2": GPT2Attention(12, 4),
        "nanogpt": nano_gpt(),
        "timm": TimmAttention(12, 4),
        "vit-pytorch": vit_pytorch(),
        "bert": BertAttention(12, 4),
        "llama": LlamaAttention(12, 4, 2, 5),
        "t5": t5(),
    }
    return {name: zero_biases(module).double() for name, module in kinds.items()}
