"""Numbers of heads, and other facts about the arrangement of weights, that an attention module states."""

from collections.abc import Sequence
from typing import Any

from torch import nn

# Attributes of attention modules and their configurations with the number of heads, and of key heads; first those of
# the process, of modules that hold a part of their heads in each.
HEADS = (
    "num_attention_heads_per_partition", "num_heads", "n_heads", "n_head", "heads", "num_attention_heads",
    "num_local_heads", "n_local_heads", "nhead", "attention_heads", "num_attn_heads", "n_attention_heads",
)  # fmt: skip
KEY_HEADS = (
    "num_query_groups_per_partition", "num_gqa_groups_per_partition", "num_key_value_heads", "num_kv_heads", "kv_heads",
    "n_kv_heads", "n_kv_head", "n_local_kv_heads", "n_query_groups", "num_query_groups", "num_gqa_groups",
)  # fmt: skip

HEAD_WIDTHS = ("head_dim", "attention_head_size", "dim_head", "d_head", "head_size")
"""Attributes with the columns of one head, for modules that state no number of heads (ESMFold2)."""

Count = int | str | None
"""A number of heads, the path to it, or None: look for the usual names."""


def resolve(root: object, path: str) -> Any:
    """Return the attribute at a dotted path, or None."""
    for part in path.split("."):
        try:
            root = getattr(root, part, None)
        except Exception:
            return None
    return root


def declared(module: nn.Module, path: str, names: Sequence[str]) -> Any:
    """Return the first integer under these names in the parent of the layer at `path`, the module, or their configs."""
    holder, _, _ = path.rpartition(".")
    for owner in (resolve(module, holder) if holder else module, module):
        for name in names:
            for value in (resolve(owner, name), resolve(owner, f"config.{name}")):
                if isinstance(value, int):
                    return value
    return None


def states_interleaving(module: nn.Module) -> bool:
    """Return True for a module of TransformerEngine whose fused weights are head by head."""
    return getattr(module, "qkv_weight_interleaved", False) is True


def count(module: nn.Module, path: str, given: Count, names: Sequence[str]) -> int | None:
    """Return a number as given by the layout, or under the usual names beside the key or in the module."""
    value = given
    if not isinstance(given, int):
        value = declared(module, path, names) if given is None else resolve(module, given)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
