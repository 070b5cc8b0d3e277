"""Layouts of attention weights: from a module to the factors W_K, W_Q, W_V, W_O of each head.

A layout returns the factors in a module, or None for a module of another kind. It goes by structure (attribute names
and shapes), so no model library is imported. Names leave open how heads are arranged in a matrix; `alternatives` lists
the arrangements that the names allow, and `find_attention` takes the one that agrees with the module's forward pass.

- `nn.Linear` stores (out, in), GPT-2's `Conv1D` (in, out); the factors are cut from the (in, out) form;
- heads are contiguous along the out dimension of keys, queries and values, and along the in dimension of the output;
- fused projections hold Q, K, V one after the other (`Fused`), or head by head (`Interleaved`);
- with fewer key heads than heads (grouped queries), head h uses key head h // (heads / key heads), or h mod key heads
  where `strided`: each query head has one product, with the key head that it shares.

**From the products to the scores.** Biases are ignored. Rotary embeddings rotate queries and keys by their positions:
the score of a query at position m and a key at position n is q^T R k, R a rotation that depends on n - m. W_K W_Q^T is
the product at offset 0, where R is the identity. At another offset it is W_K R^T W_Q^T, of no higher rank, but with
other singular values. Norms of queries and keys (Qwen3, OLMo 2, Gemma 3) divide queries and keys by their lengths: the
product then determines in which directions a head looks, no longer how sharply. W_V W_O^T is free of both. A gate that
multiplies what a head has read (Qwen3-Next) comes between W_V and W_O, and is left out of the product.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.head_factors import HeadFactors, cut_into_heads
from saddlescope.ranks.attention.linear_weights import is_linear, matrix_of
from saddlescope.ranks.attention.stated_numbers import (
    HEAD_WIDTHS,
    HEADS,
    KEY_HEADS,
    Count,
    count,
    declared,
    resolve,
    states_interleaving,
)
from saddlescope.ranks.shards import full_tensor


class AttentionLayout(ABC):
    """Layout of the weights of an attention module."""

    @abstractmethod
    def projections(self, module: nn.Module) -> tuple[nn.Module, ...]:
        """Return the modules whose parameters the factors are made of, that of the output last; () of other layouts."""

    def factors(self, module: nn.Module) -> HeadFactors | None:
        """Return the factors in `module`, or None if it has another layout.

        Raises:
            InputError: the module has the attribute names of the layout, but other shapes.
        """
        layers = self.projections(module)
        return self._cut(module, [matrix_of(layer) for layer in layers]) if layers else None

    def _cut(self, module: nn.Module, matrices: Sequence[Tensor]) -> HeadFactors:
        """Return the factors in the matrices (inputs, outputs) of the projections."""
        raise NotImplementedError

    def matches(self, module: nn.Module) -> bool:
        """Return True if `module` has the attribute names of the layout."""
        return bool(self.projections(module))

    def query_biases(self, module: nn.Module) -> Float[Tensor, "heads width"] | None:
        """Return the biases of each head's queries, which change where it attends; None if it has none."""
        layers = self.projections(module)
        biases = [getattr(layer, "bias", None) for layer in layers[:-1]]
        if not any(isinstance(bias, Tensor) for bias in biases):
            return None
        matrices = [matrix_of(layer) for layer in layers]
        rows = [  # of an input that is always 1
            matrix.new_zeros(1, matrix.shape[1]) if bias is None else full_tensor(bias)[None]
            for matrix, bias in zip(matrices, biases, strict=False)
        ]
        within = [torch.cat([matrix, row]) for matrix, row in zip(matrices, rows, strict=False)]
        return self._cut(module, [*within, matrices[-1]]).query[:, -1]

    def alternatives(self, heads: int | None = None, key_heads: int | None = None) -> Iterator["AttentionLayout"]:
        """Yield this layout and others that the same names allow, the likeliest first.

        Args:
            heads: number of query heads that the module was seen to have; None if it was not called.
            key_heads: number of key heads that it was seen to have.
        """
        del heads, key_heads
        yield self

    @abstractmethod
    def __str__(self) -> str:
        """Return the attribute names of the layout, for messages."""


_Parts: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]


def _layers_at(module: nn.Module, paths: Iterable[str]) -> tuple[nn.Module, ...]:
    """Return the linear layers at attribute paths of a module; () unless all are."""
    layers = []
    for path in paths:
        if not is_linear(layer := resolve(module, path)):
            return ()  # at once: most modules have another layout
        layers.append(layer)
    return tuple(layers)


@dataclass(frozen=True)
class _LinearLayers(AttentionLayout):
    """Base of layouts of linear layers; fields of a subclass that `_PATHS` names are their attribute paths."""

    def __post_init__(self) -> None:
        if (order := self._value("order")) is not None and sorted(order) != sorted("qkv"):
            raise InputError(f"order must have q, k and v once each; got {order!r}.")

    def projections(self, module: nn.Module) -> tuple[nn.Module, ...]:
        """See `AttentionLayout`."""
        return _layers_at(module, self._paths)

    def _cut(self, module: nn.Module, matrices: Sequence[Tensor]) -> HeadFactors:
        heads = count(module, self._paths[0], self._value("heads"), HEADS)
        if heads is None and self._value("heads") is None:
            width = declared(module, self._paths[0], HEAD_WIDTHS)
            heads = matrices[-1].shape[0] // width if width and matrices[-1].shape[0] % width == 0 else None
        if heads is None:
            names = self._value("heads") or f"{', '.join(HEADS[1:6])} or the like"
            raise InputError(
                f"{type(module).__name__} must have its number of heads as an integer under {names}; got none. Name it "
                "by your own layout: Separate(..., heads='path.to.it')."
            )
        key_heads = count(module, self._paths[0], self._value("key_heads"), KEY_HEADS)
        parts = self._split(module, heads, key_heads, *matrices)
        return cut_into_heads(
            *parts, heads=heads, key_heads=None if self._value("key_heads") is None else key_heads,
            strided=bool(self._value("strided")), names=str(self),
        )  # fmt: skip

    def _value(self, name: str) -> Any:
        return getattr(self, name, None)

    def _with_counts(self, heads: int | None, key_heads: int | None) -> Any:
        """Return this layout with numbers that the module was seen to have, where none are given."""
        new: dict[str, Any] = {}
        if heads is not None and self._value("heads") is None:
            new["heads"] = heads
        if key_heads is not None and key_heads != heads and getattr(self, "key_heads", 0) is None:
            new["key_heads"] = key_heads
        return replace(self, **new)

    def alternatives(self, heads: int | None = None, key_heads: int | None = None) -> Iterator[AttentionLayout]:
        """See `AttentionLayout`."""
        yield self
        yield from self._arranged(self._with_counts(heads, key_heads), heads, key_heads)

    def _arranged(self, seen: Any, heads: int | None, key_heads: int | None) -> Iterator[AttentionLayout]:
        """Yield all arrangements of a layout with the numbers that were seen."""
        flags = [name for name in ("gated", "interleaved", "strided") if hasattr(self, name)]
        for values in product((False, True), repeat=len(flags)):
            yield replace(seen, **dict(zip(flags, values, strict=True)))

    @cached_property
    def _paths(self) -> tuple[str, ...]:
        return tuple(getattr(self, field.name) for field in fields(self) if field.name in _PATHS)

    @abstractmethod
    def _split(self, module: nn.Module, heads: int, key_heads: int | None, *found: Tensor) -> _Parts:
        """Return keys, queries and values, (inputs, heads * width), and the output, (heads * width, outputs)."""

    def __str__(self) -> str:
        extra = [f"{field.name}={value!r}" for field in fields(self)
                 if field.name not in _PATHS and (value := getattr(self, field.name)) != field.default]  # fmt: skip
        return ", ".join((*self._paths, *extra))


_PATHS = frozenset({"key", "query", "value", "output", "kv", "qkv"})


@dataclass(frozen=True)
class Separate(_LinearLayers):
    """Four linear layers, named by dotted attribute paths from the attention module.

    Attributes:
        key, query, value, output: the paths, such as "k_proj" or "output.dense".
        heads: the number of heads, or the path to it; None looks for the usual names.
        key_heads: the number of key heads, or the path to it; None takes it from the shapes.
        strided: query head h uses key head h mod key_heads, not h // (heads / key_heads).
        gated: the query layer has, for each head, its query and then a gate of the same width.
    """

    key: str
    query: str
    value: str
    output: str
    heads: Count = None
    key_heads: Count = None
    strided: bool = False
    gated: bool = False

    def _split(self, module: nn.Module, heads: int, key_heads: int | None, *found: Tensor) -> _Parts:
        key, query, value, output = found
        if self.gated:
            if query.shape[1] % (2 * heads):
                raise InputError(f"{self.query} must hold a query and a gate of {heads} heads; got {query.shape[1]}.")
            query = query.unflatten(1, (heads, 2, -1))[:, :, 0].flatten(1)
        return key, query, value, output


@dataclass(frozen=True)
class KeyValue(_LinearLayers):
    """One linear layer for keys and values in this order, one for the queries, one for the output: cross-attention.

    Attributes:
        kv, query, output: dotted attribute paths from the attention module.
        heads: the number of heads, or the path to it; None looks for the usual names.
        key_heads: the number of key heads, or the path to it; None takes it from the shapes.
        interleaved: the layer has, for each head, its key and then its value.
        strided: query head h uses key head h mod key_heads.
    """

    kv: str
    query: str
    output: str
    heads: Count = None
    key_heads: Count = None
    interleaved: bool = False
    strided: bool = False

    def _split(self, module: nn.Module, heads: int, key_heads: int | None, *found: Tensor) -> _Parts:
        fused, query, output = found
        if fused.shape[1] % 2:
            raise InputError(f"{self.kv} must have as many keys as values; got {fused.shape[1]} outputs.")
        if self.interleaved or states_interleaving(module):
            width = max(1, query.shape[1] // heads)
            if fused.shape[1] % (2 * width):
                raise InputError(f"{self.kv} must hold keys and values of width {width}; got {fused.shape[1]} outputs.")
            key, value = fused.unflatten(1, (-1, 2, width)).unbind(2)
            return key.flatten(1), query, value.flatten(1), output
        key, value = fused.chunk(2, dim=1)
        return key, query, value, output


@dataclass(frozen=True)
class Fused(_LinearLayers):
    """One linear layer for queries, keys and values, one after the other, and one for the output.

    There may be fewer key heads than heads if the module or its configuration states their number.

    Attributes:
        qkv, output: dotted attribute paths from the attention module.
        heads: the number of heads, or the path to it; None looks for the usual names.
        key_heads: the number of key heads, or the path to it; None looks for the usual names.
        order: of queries, keys and values: "qkv", "qvk", "kqv", ...
        pieces: number of parts of the layer, each with the queries, keys and values of as many heads (CodeGen).
        strided: query head h uses key head h mod key_heads.
    """

    qkv: str
    output: str
    heads: Count = None
    key_heads: Count = None
    order: str = "qkv"
    pieces: int = 1
    strided: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pieces < 1:
            raise InputError(f"pieces must be at least 1; got {self.pieces!r}.")

    def _split(self, module: nn.Module, heads: int, key_heads: int | None, *found: Tensor) -> _Parts:
        if states_interleaving(module):
            return Interleaved(self.qkv, self.output)._split(module, heads, key_heads, *found)
        fused, output = found
        columns, queries = fused.shape[1], output.shape[0]
        multi_query = declared(module, self.qkv, ("multi_query",))
        if multi_query is False:
            raise InputError(
                f"{self.qkv} must hold queries, keys and values one after the other; got "
                f"multi_query=False, which orders them head by head. Pass layouts=(Interleaved({self.qkv!r}, "
                f"{self.output!r}),)."
            )
        keys = queries
        if columns != 3 * queries:
            number = 1 if multi_query and self.key_heads is None else key_heads
            keys = queries * (number or 0) // heads
        if columns != queries + 2 * keys or not keys or columns % self.pieces:
            raise InputError(
                f"{self.qkv} must have queries, keys and values of the width {queries} of {self.output}, or fewer keys "
                f"and values as the module states; got {columns} outputs. Name fewer keys by Fused({self.qkv!r}, "
                f"{self.output!r}, key_heads=...), as layouts= or --layout."
            )
        sizes = {"q": queries // self.pieces, "k": keys // self.pieces, "v": keys // self.pieces}
        split = fused.unflatten(1, (self.pieces, -1)).split([sizes[name] for name in self.order], dim=2)
        part = {name: matrix.flatten(1) for name, matrix in zip(self.order, split, strict=True)}
        return part["k"], part["q"], part["v"], output

    def _arranged(self, seen: Any, heads: int | None, key_heads: int | None) -> Iterator[AttentionLayout]:
        yield seen
        yield Interleaved(self.qkv, self.output, seen.heads)
        yield Interleaved(self.qkv, self.output, seen.heads, whole=False)
        for order in ("kqv", "kvq", "vkq", "qvk", "vqk"):
            yield replace(seen, order=order)
        yield replace(seen, order="qvk", pieces=4)
        if key_heads is not None and key_heads != heads:
            yield replace(seen, strided=True)


@dataclass(frozen=True)
class Interleaved(_LinearLayers):
    """One linear layer that holds, for one key head after the other, its queries, its key and its value.

    GPT-NeoX, Bloom and Persimmon have one query head for each; Falcon has several, or all of them on a single key.

    Attributes:
        qkv, output: dotted attribute paths from the attention module.
        heads: the number of query heads, or the path to it; None looks for the usual names.
        order: of the queries, the key and the value of a key head.
        whole: True if the columns of a head are contiguous; False if queries, keys and values alternate column by
            column, as after a reshape to (width, 3, heads) or (heads, width, 3).
    """

    qkv: str
    output: str
    heads: Count = None
    order: str = "qkv"
    whole: bool = True

    def _split(self, module: nn.Module, heads: int, key_heads: int | None, *found: Tensor) -> _Parts:
        fused, output = found
        width = max(1, output.shape[0] // heads)
        groups = (fused.shape[1] // width - heads) // 2
        if groups < 1 or heads % groups or fused.shape[1] != (heads + 2 * groups) * width:
            raise InputError(
                f"{self.qkv} must have {heads} queries and fewer or as many keys and values, all of width {width}; got "
                f"{fused.shape[1]} outputs."
            )
        if key_heads is not None and groups != key_heads:  # such as where a gate of each head is among its outputs
            raise InputError(
                f"{self.qkv} must have {key_heads} keys and values, as the module states; got {fused.shape[1]} "
                f"outputs, which are those of {groups}."
            )
        if not self.whole:
            if groups != heads:
                raise InputError(f"{self.qkv} must have as many keys as queries; got {groups} and {heads}.")
            part = dict(zip(self.order, fused.unflatten(1, (heads, width, 3)).unbind(3), strict=True))
            return part["k"].flatten(1), part["q"].flatten(1), part["v"].flatten(1), output
        sizes = {"q": heads // groups, "k": 1, "v": 1}
        split = fused.unflatten(1, (groups, -1, width)).split([sizes[name] for name in self.order], dim=2)
        part = {name: matrix.flatten(1) for name, matrix in zip(self.order, split, strict=True)}
        return part["k"], part["q"], part["v"], output

    def _arranged(self, seen: Any, heads: int | None, key_heads: int | None) -> Iterator[AttentionLayout]:
        for order in ("qkv", "kqv", "kvq", "vkq", "qvk", "vqk"):
            yield replace(seen, order=order)
        yield replace(seen, whole=False)
        yield Fused(self.qkv, self.output, seen.heads, key_heads if key_heads != heads else None)

    def __str__(self) -> str:
        return f"{super().__str__()} (head by head)"


@dataclass(frozen=True)
class Latent(AttentionLayout):
    """Multi-head latent attention (DeepSeek-V2): keys and values of all heads come from one narrow projection.

    The key of a head has a part from the latent vector and a part for the rotary embedding that all heads share. Norms
    of the latent vectors are left out. Attribute paths from the attention module:

    Attributes:
        query: the layers of the queries, one or two in a row.
        latent: the layer of the latent vector, and behind it of the shared key of the rotary embedding.
        key_value: the layer from the latent vector to the key and the value of each head.
        output: the layer of the output.
        heads: the number of heads, or the path to it; None looks for the usual names.
    """

    query: tuple[str, ...] = ("q_a_proj", "q_b_proj")
    latent: str = "kv_a_proj_with_mqa"
    key_value: str = "kv_b_proj"
    output: str = "o_proj"
    heads: Count = None

    def projections(self, module: nn.Module) -> tuple[nn.Module, ...]:
        """See `AttentionLayout`."""
        return _layers_at(module, (*self.query, self.latent, self.key_value, self.output))

    def _cut(self, module: nn.Module, matrices: Sequence[Tensor]) -> HeadFactors:
        heads = count(module, self.output, self.heads, HEADS)
        if heads is None:
            raise InputError(f"{type(module).__name__} must have its number of heads; got none.")
        *queries, down, up, output = matrices
        query = queries[0] if len(queries) == 1 else queries[0] @ queries[1]
        rank, value_width = up.shape[0], output.shape[0] // heads
        rotary = down.shape[1] - rank
        width = up.shape[1] // heads - value_width + rotary
        if rotary < 0 or up.shape[1] % heads or query.shape[1] != heads * width or output.shape[0] % heads:
            raise InputError(
                f"{self} must split into {heads} heads with queries of width {width}; got (in, out) shapes "
                f"{', '.join(str(tuple(part.shape)) for part in (query, down, up, output))}."
            )
        parts = (down[:, :rank] @ up).unflatten(1, (heads, -1)).permute(1, 0, 2)
        shared = down[:, rank:].expand(heads, -1, -1)
        return HeadFactors(
            key=torch.cat([parts[..., : width - rotary], shared], dim=2),
            query=query.unflatten(1, (heads, width)).permute(1, 0, 2),
            value=parts[..., width - rotary :],
            output=output.unflatten(0, (heads, value_width)).permute(0, 2, 1),
        )

    def query_biases(self, module: nn.Module) -> None:
        """Return None: biases of latent vectors are no biases of queries."""

    def __str__(self) -> str:
        return ", ".join((*self.query, self.latent, self.key_value, self.output))


@dataclass(frozen=True)
class HeadTensors(AttentionLayout):
    """Four parameters with an axis of heads, (inputs, heads, width), the output's (outputs, heads, width): XLNet.

    It has no biases of queries: XLNet adds biases of its own to scores.

    Attributes:
        key, query, value, output: names of the parameters.
    """

    key: str = "k"
    query: str = "q"
    value: str = "v"
    output: str = "o"

    def projections(self, module: nn.Module) -> tuple[nn.Module, ...]:
        """See `AttentionLayout`."""
        return () if self.factors(module) is None else (module,)

    def factors(self, module: nn.Module) -> HeadFactors | None:
        """See `AttentionLayout`."""
        found = [getattr(module, name, None) for name in (self.key, self.query, self.value, self.output)]
        if not all(isinstance(part, Tensor) and part.ndim == 3 for part in found):
            return None
        return HeadFactors(*(full_tensor(part).permute(1, 0, 2) for part in found))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.key}, {self.query}, {self.value}, {self.output} (parameters with an axis of heads)"


@dataclass(frozen=True)
class TorchMultihead(AttentionLayout):
    """`torch.nn.MultiheadAttention`, with one `in_proj_weight` or, for inputs of different widths, three."""

    def projections(self, module: nn.Module) -> tuple[nn.Module, ...]:
        """See `AttentionLayout`."""
        return (module,) if isinstance(module, nn.MultiheadAttention) else ()

    def factors(self, module: nn.Module) -> HeadFactors | None:
        """See `AttentionLayout`."""
        if not isinstance(module, nn.MultiheadAttention):
            return None
        if module.in_proj_weight is not None:
            query, key, value = full_tensor(module.in_proj_weight).chunk(3)
        else:
            query, key, value = (
                full_tensor(getattr(module, name)) for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight")
            )
        output = matrix_of(module.out_proj)
        return cut_into_heads(
            key.T, query.T, value.T, output, heads=module.num_heads, key_heads=None, strided=False, names=str(self)
        )

    def query_biases(self, module: nn.Module) -> Float[Tensor, "heads width"] | None:
        """See `AttentionLayout`."""
        bias = getattr(module, "in_proj_bias", None)
        return None if bias is None else full_tensor(bias).chunk(3)[0].unflatten(0, (module.num_heads, -1))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return "torch.nn.MultiheadAttention"
