"""Attention blocks of a model: the modules whose weights match a layout."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.func import functional_call

from saddlescope._shared.errors import InputError
from saddlescope.train.tracker.layouts import LAYOUTS, AttentionLayout, HeadFactors
from saddlescope.train.tracker.matrix_selection import canonical_name, unwrap_model

_CALLED_ATTENTION = {"attention", "attn", "self_attention", "self_attn", "selfattention"}


class AttentionBlock(NamedTuple):
    """Attention module of a model, with its name, the layout of its weights and its number of heads."""

    name: str
    module: nn.Module
    layout: AttentionLayout
    heads: int

    @property
    def label(self) -> str:
        """Name for messages; the class name if the block is the model itself."""
        return self.name or type(self.module).__name__

    @property
    def matrices(self) -> dict[str, nn.Parameter]:
        """Weight matrices by their names within the module."""
        return {name: parameter for name, parameter in self.module.named_parameters() if parameter.ndim == 2}

    def factors(self, weights: Mapping[str, Tensor] | None = None) -> HeadFactors:
        """Return the factors of all heads.

        Args:
            weights: weights by name within the module, in place of the present ones.
        """
        if weights is None:
            factors = self.layout.factors(self.module)
        else:
            call = _FactorsCall(self.module, self.layout)
            factors = functional_call(call, {f"module.{name}": weight for name, weight in weights.items()}, ())
        assert factors is not None
        return factors


class _FactorsCall(nn.Module):
    """Factors of a layout as a forward pass, so that `functional_call` can substitute other weights."""

    def __init__(self, module: nn.Module, layout: AttentionLayout) -> None:
        super().__init__()
        self.module, self.layout = module, layout

    def forward(self) -> HeadFactors | None:
        return self.layout.factors(self.module)


def attention_blocks(
    model: nn.Module, layouts: Sequence[AttentionLayout] = LAYOUTS, *, required: bool = True
) -> tuple[AttentionBlock, ...]:
    """Return all attention blocks of a model, in the model's own order, each set of weights once.

    Args:
        model: the model; `torch.compile` and DistributedDataParallel may wrap it.
        layouts: layouts to try, in this order.
        required: raise for a model without attention blocks.

    Raises:
        InputError: no module matches a layout, or a module has the names of a layout, but other shapes.
    """
    found: list[AttentionBlock] = []
    seen: set[frozenset[int]] = set()
    model = unwrap_model(model)
    for name, module in model.named_modules():
        for layout in layouts:
            factors = layout.factors(module)
            if factors is None:
                continue
            block = AttentionBlock(canonical_name(name), module, layout, heads=factors.key.shape[0])
            weights = frozenset(id(parameter) for parameter in block.matrices.values())
            if weights not in seen:
                seen.add(weights)
                found.append(block)
            break
    if not found and required:
        known = "; ".join(str(layout) for layout in layouts)
        raise InputError(
            f"model must have attention blocks with weights under known names; got {type(model).__name__}, which has "
            f"none. Looked for: {known}. Name yours by layouts=(Separate('key', 'query', 'value', 'output', "
            "heads='num_heads'),) or (Fused('qkv', 'output'),), with attribute paths from the attention module, or "
            "choose single matrices by matrices='*'."
        )
    return tuple(found)


def unrecognized_attention(model: nn.Module) -> tuple[str, ...]:
    """Return the modules whose class or name says attention: for a model without recognized blocks."""
    return tuple(
        canonical_name(name) or type(module).__name__
        for name, module in unwrap_model(model).named_modules()
        if "attention" in type(module).__name__.lower() or name.rpartition(".")[2].lower() in _CALLED_ATTENTION
    )
