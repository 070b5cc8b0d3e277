"""The attention blocks of a model: each module whose weights a layout knows."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.func import functional_call

from saddlescope._shared.errors import InputError
from saddlescope.train.tracker.layouts import LAYOUTS, AttentionLayout, HeadFactors
from saddlescope.train.tracker.weight_matrices import plain_name, unwrapped

_CALLED_ATTENTION = {"attention", "attn", "self_attention", "self_attn", "selfattention"}


class AttentionBlock(NamedTuple):
    """An attention module of a model: its name there, itself, how it keeps its weights, and how many heads it has."""

    name: str
    module: nn.Module
    layout: AttentionLayout
    heads: int

    @property
    def label(self) -> str:
        """How messages call it: by its name, or where it is the whole model, by its class."""
        return self.name or type(self.module).__name__

    @property
    def matrices(self) -> dict[str, nn.Parameter]:
        """Its weight matrices, by their names within the module."""
        return {name: parameter for name, parameter in self.module.named_parameters() if parameter.ndim == 2}

    def factors(self, weights: Mapping[str, Tensor] | None = None) -> HeadFactors:
        """Its factors.

        Args:
            weights: to cut them from, in place of the present ones: by name within the module.
        """
        if weights is None:
            factors = self.layout.factors(self.module)
        else:
            reading = _Reading(self.module, self.layout)
            factors = functional_call(reading, {f"module.{name}": weight for name, weight in weights.items()}, ())
        assert factors is not None
        return factors


class _Reading(nn.Module):
    """What a layout sees in a module, as a call: so that `functional_call` can put other weights in place meanwhile."""

    def __init__(self, module: nn.Module, layout: AttentionLayout) -> None:
        super().__init__()
        self.module, self.layout = module, layout

    def forward(self) -> HeadFactors | None:
        return self.layout.factors(self.module)


def attention_blocks(
    model: nn.Module, layouts: Sequence[AttentionLayout] = LAYOUTS, *, required: bool = True
) -> tuple[AttentionBlock, ...]:
    """All attention blocks of a model, in the model's own order; each set of weights once.

    Args:
        model: the model; `torch.compile` and DistributedDataParallel may be around it.
        layouts: the ways to keep attention weights, tried in this order.
        required: whether to refuse a model without any.

    Raises:
        InputError: there are none that any layout knows, or a layout's names are there, but not its shapes.
    """
    found: list[AttentionBlock] = []
    seen: set[frozenset[int]] = set()
    model = unwrapped(model)
    for name, module in model.named_modules():
        for layout in layouts:
            factors = layout.factors(module)
            if factors is None:
                continue
            block = AttentionBlock(plain_name(name), module, layout, heads=factors.key.shape[0])
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


def unread_attention(model: nn.Module) -> tuple[str, ...]:
    """The modules of a model that call themselves attention, by class or name: for a model without known blocks."""
    return tuple(
        plain_name(name) or type(module).__name__
        for name, module in unwrapped(model).named_modules()
        if "attention" in type(module).__name__.lower() or name.rpartition(".")[2].lower() in _CALLED_ATTENTION
    )
