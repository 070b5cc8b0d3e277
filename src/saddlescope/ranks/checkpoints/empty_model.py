"""Empty models: modules that the layouts recognize, from names and shapes in a checkpoint, without the model's code.

An empty model has the modules that hold weight matrices, with placeholders that take no memory. The number of heads,
which names do not determine, comes from `HeadCounts`. GPT-2's own files and nanoGPT's have the same names; they are
distinguished by the shape of `c_attn`: GPT-2's `Conv1D` stores (in, 3 in), a linear layer (3 in, in).
"""

import re
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.attention_blocks import FoundAttention, find_attention
from saddlescope.ranks.attention.coverage import CoverageRow
from saddlescope.ranks.attention.known_layouts import LAYOUTS
from saddlescope.ranks.attention.layouts import AttentionLayout
from saddlescope.ranks.checkpoints.head_counts import HeadCounts

_DEEPEST = 64  # parts of a name: no model has as many, and a malicious file could exceed Python's stack
_OF_WEIGHTS = re.compile(r".*(scales?|scale_inv|zeros|absmax|quant_map)")  # what quantised weights need
_CURE = "Pass --heads, or heads=: a number, or a pattern that matches this name."
_TRANSPOSED = ("c_attn", "c_proj", "c_fc", "q_attn")  # the layers of GPT-2 that are Conv1D


class Conv1D(nn.Module):
    """Linear layer that stores its weight as (in, out); layouts recognize its class name and `nf`."""

    def __init__(self, nf: int) -> None:
        super().__init__()
        self.nf = nf


def transposed_layers(shapes: Mapping[str, tuple[int, ...]]) -> frozenset[str]:
    """Return the names of the modules that store their weights as (in, out)."""
    fused = [shape for name, shape in shapes.items() if name.endswith("c_attn.weight") and len(shape) == 2]
    if not any(3 * rows == columns for rows, columns in fused):  # that of cross-attention is twice as wide
        return frozenset()
    modules = (name.removesuffix(".weight") for name in shapes if name.endswith(".weight"))
    return frozenset(name for name in modules if name.rpartition(".")[2] in _TRANSPOSED)


def empty_model(shapes: Mapping[str, tuple[int, ...]], counts: HeadCounts) -> nn.Module:
    """Build a model of placeholders.

    Args:
        shapes: shapes of the floating-point tensors of a checkpoint, by name.
        counts: the numbers of heads.
    """
    transposed = transposed_layers(shapes)
    root = nn.Module()
    root.config = counts.settings("")  # type: ignore[assignment]
    for name, shape in shapes.items():
        path, _, own = name.rpartition(".")
        module = _module_at(root, path, shapes, transposed, counts)
        free = module is not None and (own in module._parameters or not hasattr(module, own))
        if module is not None and free and own and len(shape) == 2 and _OF_WEIGHTS.fullmatch(own) is None:
            module.register_parameter(own, _placeholder(shape))
    return root


def _module_at(
    root: nn.Module, path: str, shapes: Mapping[str, tuple[int, ...]], transposed: frozenset[str], counts: HeadCounts
) -> nn.Module | None:
    """Return the module at a path, created if absent; None for paths that no module can have."""
    module, parts = root, path.split(".") if path else []
    if len(parts) > _DEEPEST:
        return None
    for depth, part in enumerate(parts, 1):
        if part not in module._modules:
            if not part or hasattr(module, part):
                return None
            child = _module(".".join(parts[:depth]), shapes, transposed, counts)
            child.config = counts.settings(".".join(parts[:depth]))  # type: ignore[assignment]
            module.add_module(part, child)
        found = module._modules[part]
        assert found is not None
        module = found
    return module


def attention_in(
    model: nn.Module, source: str, *, required: bool, layouts: Sequence[AttentionLayout] = LAYOUTS
) -> FoundAttention:
    """Return the attention of an empty model.

    Args:
        model: the empty model.
        source: the checkpoint, for messages.
        required: raise for a checkpoint without attention blocks.
        layouts: layouts to try.

    Raises:
        InputError: blocks are required and missing, the number of heads is unknown, or it does not divide the width.
    """
    found = find_attention(model, layouts, check=False)
    if found.blocks or not required:
        return found
    for row in found.coverage:
        if row.outcome == "refused":
            raise InputError(refusal(row, source))
    raise InputError(
        f"{source} must hold attention weights under known names; got none. Name them by --layout, or layouts=, or "
        "select single matrices: --no-attention --matrices '*', or attention=False, matrices='*'."
    )


def refusal(row: CoverageRow, source: str) -> str:
    """Return the sentence on attention that cannot be read in a checkpoint."""
    if "number of heads" in row.reason:
        name = row.name or row.kind
        return f"{name} of {source} must have its number of heads in config.json; got none. {_CURE}"
    return f"{source}: {row.name or row.kind} cannot be measured: {row.reason}"


def _placeholder(shape: tuple[int, ...]) -> nn.Parameter:
    """Return one number expanded to a shape, without memory."""
    return nn.Parameter(torch.zeros(()).expand(shape), requires_grad=False)


def _module(
    name: str, shapes: Mapping[str, tuple[int, ...]], transposed: frozenset[str], counts: HeadCounts
) -> nn.Module:
    """Return an empty module of the kind that the tensors below a name imply."""
    if f"{name}.out_proj.weight" in shapes and {f"{name}.in_proj_weight", f"{name}.q_proj_weight"} & shapes.keys():
        return _multihead(name, shapes, counts)
    shape = shapes.get(f"{name}.weight", ())
    if len(shape) != 2:
        return nn.Module()
    if name in transposed:
        return Conv1D(shape[1])
    return nn.Linear(shape[1], shape[0], bias=False, device="meta")  # or an embedding: no layout asks for one


def _multihead(name: str, shapes: Mapping[str, tuple[int, ...]], counts: HeadCounts) -> nn.MultiheadAttention:
    heads = getattr(counts.settings(name), "num_attention_heads", None)
    width = shapes[f"{name}.out_proj.weight"][-1]
    if not isinstance(heads, int) or heads < 1:
        raise InputError(f"{name} must have its number of heads in config.json; got none. {_CURE}")
    if width % heads:
        raise InputError(f"{name} must split into {heads} heads; got width {width}.")
    module = nn.MultiheadAttention(width, heads, bias=False, device="meta")
    for own in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
        module.register_parameter(own, None)
    return module
