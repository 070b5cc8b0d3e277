"""Layout of attention whose heads are modules of their own, as in lectures: a list of heads, and one output layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.head_factors import HeadFactors
from saddlescope.ranks.attention.layouts import AttentionLayout
from saddlescope.ranks.attention.linear_weights import is_linear
from saddlescope.ranks.attention.stated_numbers import resolve


@dataclass(frozen=True)
class HeadModules(AttentionLayout):
    """A list of modules, each one head with its key, query and value layer, and an output layer beside the list.

    The output layer reads the heads one after the other.

    Attributes:
        key, query, value: attribute paths from a head.
        output: attribute path from the attention module.
        heads: attribute path from the attention module to the list.
    """

    key: str
    query: str
    value: str
    output: str
    heads: str = "heads"

    def _cut(self, module: nn.Module, matrices: Sequence[Tensor]) -> HeadFactors:
        *parts, output = matrices
        keys, queries, values = parts[::3], parts[1::3], parts[2::3]
        shapes = {
            (key.shape, query.shape, value.shape) for key, query, value in zip(keys, queries, values, strict=True)
        }
        width = values[0].shape[1]
        if len(shapes) > 1 or output.shape[0] != width * len(values) or keys[0].shape[1] != queries[0].shape[1]:
            raise InputError(
                f"{self.heads} must hold heads of one shape, which {self.output} reads one after the other; got "
                f"{len(values)} heads with values of width {width}, and an output of {output.shape[0]}."
            )
        return HeadFactors(
            torch.stack(keys), torch.stack(queries), torch.stack(values), output.unflatten(0, (-1, width)).mT
        )

    def projections(self, module: nn.Module) -> tuple[nn.Module, ...]:
        """See `AttentionLayout`."""
        listed, output = resolve(module, self.heads), resolve(module, self.output)
        heads = list(listed.children()) if isinstance(listed, nn.Module) else []
        found = [resolve(head, path) for head in heads for path in (self.key, self.query, self.value)]
        numbered = isinstance(listed, nn.Module) and all(name.isdecimal() for name, _ in listed.named_children())
        return (*found, output) if found and numbered and all(map(is_linear, (*found, output))) else ()

    def __str__(self) -> str:
        return f"{self.heads}.*.({self.key}, {self.query}, {self.value}), {self.output}"
