"""Layouts of attention weights: from a module to the factors W_K, W_Q, W_V, W_O of each head.

A layout returns the factors in a module, or None for a module of another kind. It goes by structure (attribute names
and shapes), so no model library is imported. The conventions, all of them easy to get wrong:

- `nn.Linear` stores (out, in), GPT-2's `Conv1D` (in, out); the factors are cut from the (in, out) form;
- heads are contiguous along the out dimension of keys, queries and values, and along the in dimension of the output;
- fused projections hold Q, K, V one after the other (`Fused`), or head by head (`Interleaved`);
- with fewer key-value heads than heads (grouped queries), head h uses key-value head h // (heads / key-value heads):
  each query head has one product, with the key head that it shares.

**From the products to the scores.** Biases are ignored. Rotary embeddings rotate queries and keys by their positions:
the score of a query at position m and a key at position n is q^T R k, R a rotation that depends on n - m. W_K W_Q^T is
the product at offset 0, where R is the identity. At another offset it is W_K R^T W_Q^T, of no higher rank, but with
other singular values. Norms of queries and keys (Qwen3, OLMo 2, Gemma 3) divide queries and keys by their lengths: the
product then determines in which directions a head looks, no longer how sharply. W_V W_O^T is free of both.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import in_line
from saddlescope.train.tracker.shards import full_tensor

# Attributes of attention modules and their configurations with the number of heads, and of key-value heads.
_HEADS = ("num_heads", "n_heads", "n_head", "heads", "num_attention_heads")
_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "kv_heads", "n_kv_heads", "n_kv_head")


class HeadFactors(NamedTuple):
    """Factors of all heads of one attention block: X W_K are the keys, and so on. Views where possible."""

    key: Float[Tensor, "heads key_inputs width"]
    query: Float[Tensor, "heads query_inputs width"]
    value: Float[Tensor, "heads key_inputs value_width"]
    output: Float[Tensor, "heads outputs value_width"]

    def product(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the factors of W_K W_Q^T (index 0) or W_V W_O^T (index 1)."""
        return (self.key, self.query) if index == 0 else (self.value, self.output)

    def __repr__(self) -> str:
        return in_line("HeadFactors", self._asdict().items())


class AttentionLayout(ABC):
    """Layout of the weights of an attention module."""

    @abstractmethod
    def factors(self, module: nn.Module) -> HeadFactors | None:
        """Return the factors in `module`, or None if it has another layout.

        Raises:
            InputError: the module has the attribute names of the layout, but other shapes.
        """

    @abstractmethod
    def __str__(self) -> str:
        """Return the attribute names of the layout, for messages."""


@dataclass(frozen=True)
class _LinearLayers(AttentionLayout):
    """Base of layouts of linear layers; all fields of a subclass but `heads` are their attribute paths."""

    def factors(self, module: nn.Module) -> HeadFactors | None:
        """See `AttentionLayout`."""
        found = _matrices(module, *self._paths)
        if found is None:
            return None
        heads = _heads(module, self._paths[0], getattr(self, "heads"))  # noqa: B009  (a field of every subclass)
        return _cut(*self._split(module, heads, *found), heads, str(self))

    @property
    def _paths(self) -> tuple[str, ...]:
        return tuple(getattr(self, field.name) for field in fields(self) if field.name != "heads")

    @abstractmethod
    def _split(self, module: nn.Module, heads: int, *found: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return keys, queries and values, (inputs, heads * width), and the output, (heads * width, outputs)."""

    def __str__(self) -> str:
        return ", ".join(self._paths)


@dataclass(frozen=True)
class Separate(_LinearLayers):
    """Four linear layers, named by dotted attribute paths from the attention module.

    Attributes:
        key, query, value, output: the paths, such as "k_proj" or "output.dense".
        heads: the number of heads, or the path to it; None looks for the usual names.
    """

    key: str
    query: str
    value: str
    output: str
    heads: int | str | None = None

    def _split(self, module: nn.Module, heads: int, *found: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        key, query, value, output = found
        return key, query, value, output


@dataclass(frozen=True)
class KeyValue(_LinearLayers):
    """One linear layer for keys and values in this order, one for the queries, one for the output: cross-attention.

    Attributes:
        kv, query, output: dotted attribute paths from the attention module.
        heads: the number of heads, or the path to it; None looks for the usual names.
    """

    kv: str
    query: str
    output: str
    heads: int | str | None = None

    def _split(self, module: nn.Module, heads: int, *found: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        fused, query, output = found
        if fused.shape[1] % 2:
            raise InputError(f"{self.kv} must have as many keys as values; got {fused.shape[1]} outputs.")
        key, value = fused.chunk(2, dim=1)
        return key, query, value, output


@dataclass(frozen=True)
class Fused(_LinearLayers):
    """One linear layer for queries, keys and values, one after the other in this order, and one for the output.

    There may be fewer key-value heads than heads if the module or its configuration states their number.

    Attributes:
        qkv, output: dotted attribute paths from the attention module.
        heads: the number of heads, or the path to it; None looks for the usual names.
    """

    qkv: str
    output: str
    heads: int | str | None = None

    def _split(self, module: nn.Module, heads: int, *found: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        fused, output = found
        columns, queries = fused.shape[1], output.shape[0]
        multi_query = _declared(module, self.qkv, ("multi_query",))
        if multi_query is False:
            raise InputError(
                f"{self.qkv} must hold queries, keys and values one after the other; got {type(module).__name__} with "
                f"multi_query=False, which orders them head by head. Pass layouts=(Interleaved({self.qkv!r}, "
                f"{self.output!r}),)."
            )
        keys = queries
        if columns != 3 * queries:
            key_heads = 1 if multi_query else _declared(module, self.qkv, _KEY_HEADS)
            keys = queries * (key_heads or 0) // heads
        if columns != queries + 2 * keys or not keys:
            raise InputError(
                f"{self.qkv} must have queries, keys and values of the width {queries} of {self.output}, or fewer keys "
                f"and values as the module states; got {columns} outputs. Define your own AttentionLayout."
            )
        query, key, value = fused.split([queries, keys, keys], dim=1)
        return key, query, value, output


@dataclass(frozen=True)
class Interleaved(_LinearLayers):
    """One linear layer that holds, for one key-value head after the other, its queries, its key and its value.

    GPT-NeoX, Bloom and Persimmon have one query head for each; Falcon has several, or all of them on a single key.

    Attributes:
        qkv, output: dotted attribute paths from the attention module.
        heads: the number of query heads, or the path to it; None looks for the usual names.
    """

    qkv: str
    output: str
    heads: int | str | None = None

    def _split(self, module: nn.Module, heads: int, *found: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        fused, output = found
        width = max(1, output.shape[0] // heads)
        groups = (fused.shape[1] // width - heads) // 2
        if groups < 1 or heads % groups or fused.shape[1] != (heads + 2 * groups) * width:
            raise InputError(
                f"{self.qkv} must have {heads} queries and fewer or as many keys and values, all of width {width}; got "
                f"{fused.shape[1]} outputs."
            )
        parts = fused.unflatten(1, (groups, -1, width))
        return parts[:, :, -2].flatten(1), parts[:, :, :-2].flatten(1), parts[:, :, -1].flatten(1), output

    def __str__(self) -> str:
        return f"{super().__str__()} (head by head)"


@dataclass(frozen=True)
class TorchMultihead(AttentionLayout):
    """`torch.nn.MultiheadAttention`, with one `in_proj_weight` or, for inputs of different widths, three."""

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
        output = full_tensor(module.out_proj.weight)
        return _cut(key.T, query.T, value.T, output.T, module.num_heads, str(self))

    def __str__(self) -> str:
        return "torch.nn.MultiheadAttention"


LAYOUTS: tuple[AttentionLayout, ...] = (
    TorchMultihead(),
    Separate("key", "query", "value", "output"),  # saddlescope's ViT
    Separate("self.key", "self.query", "self.value", "output.dense"),  # BERT and its relatives
    Separate("self.key_proj", "self.query_proj", "self.value_proj", "output.dense"),  # DeBERTa
    Separate("attention.key", "attention.query", "attention.value", "output.dense"),  # Transformers' ViT until 4
    Separate("key", "query", "value", "dense"),  # ALBERT
    Separate("k_proj", "q_proj", "v_proj", "o_proj"),  # Llama, Mistral, Qwen, Gemma, Transformers' ViT from 5
    Separate("k_proj", "q_proj", "v_proj", "out_proj"),  # OPT, BART, CLIP, GPT-Neo, GPT-J, Whisper
    Separate("k_proj", "q_proj", "v_proj", "output_proj"),  # torchtune
    Separate("k_proj", "q_proj", "v_proj", "proj"),  # timm's EVA
    Separate("k_lin", "q_lin", "v_lin", "out_lin"),  # DistilBERT
    Separate("k", "q", "v", "o"),  # T5
    Separate("k", "q", "v", "proj"),  # timm's CaiT
    Separate("to_k", "to_q", "to_v", "to_out"),
    Separate("to_k", "to_q", "to_v", "to_out.0"),  # Diffusers
    KeyValue("c_attn", "q_attn", "c_proj"),  # cross-attention of GPT-2; before Fused, which has two of its names
    KeyValue("kv", "q", "proj"),  # timm's pyramid transformers
    Fused("c_attn", "c_proj"),  # GPT-2, nanoGPT
    Fused("qkv", "proj"),  # timm, SAM, Qwen-VL's images
    Fused("qkv", "projection"),  # BLIP
    Fused("qkv_proj", "o_proj"),  # Phi-3
    Fused("Wqkv", "Wo"),  # ModernBERT
    Fused("Wqkv", "out_proj"),  # MPT, DBRX, flash-attn
    Fused("to_qkv", "to_out"),
    Fused("to_qkv", "to_out.0"),  # vit-pytorch
    Interleaved("query_key_value", "dense"),  # GPT-NeoX, Pythia, Bloom, Falcon, Persimmon
)


def _resolve(root: object, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part, None)
    return root


def _matrices(module: nn.Module, *paths: str) -> list[Float[Tensor, "inputs outputs"]] | None:
    """Return the weights of the linear layers at these paths, or None if one of them is missing."""
    layers = [_resolve(module, path) for path in paths]
    return [_matrix(layer) for layer in layers] if all(_is_linear(layer) for layer in layers) else None


def _is_linear(layer: object) -> bool:
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return False
    return isinstance(layer, nn.Linear) or _is_conv1d(layer) or _is_adapted(layer)


def _is_conv1d(layer: object) -> bool:
    """Return True for transformers.pytorch_utils.Conv1D, which stores (in, out)."""
    return type(layer).__name__ == "Conv1D" and isinstance(getattr(layer, "nf", None), int)


def _is_adapted(layer: object) -> bool:
    """Return True for a linear layer of PEFT with low-rank adapters around one that `_is_linear` accepts."""
    return callable(getattr(layer, "get_delta_weight", None)) and _is_linear(getattr(layer, "base_layer", None))


def _matrix(layer: Any) -> Float[Tensor, "inputs outputs"]:
    """Return the weight of a linear layer as (in, out), including its active adapters."""
    if _is_adapted(layer):
        weight = _matrix(layer.base_layer)
        active = [] if layer.merged or layer.disable_adapters else layer.active_adapters
        for name in active:
            if name in layer.lora_A:
                delta = layer.get_delta_weight(name).detach()
                weight = weight + (delta if _is_conv1d(layer.base_layer) else delta.T)
        return weight
    return full_tensor(layer.weight) if _is_conv1d(layer) else full_tensor(layer.weight).T


def _declared(module: nn.Module, path: str, names: tuple[str, ...]) -> Any:
    """Return the first integer under these names in the parent of the layer at `path`, the module, or their configs."""
    holder, _, _ = path.rpartition(".")
    for owner in (_resolve(module, holder) if holder else module, module):
        for name in names:
            for value in (getattr(owner, name, None), _resolve(owner, f"config.{name}")):
                if isinstance(value, int):
                    return value
    return None


def _heads(module: nn.Module, path: str, given: int | str | None) -> int:
    """Return the number of heads, as given by the layout, or under the usual names beside the key or in the module."""
    if isinstance(given, int):
        value = given
    else:
        value = _declared(module, path, _HEADS) if given is None else _resolve(module, given)
    if isinstance(value, int) and value > 0:
        return value
    raise InputError(
        f"{type(module).__name__} must have its number of heads as an integer under {given or ' or '.join(_HEADS)}; "
        "got none. Name it by your own layout: Separate(..., heads='path.to.it')."
    )


def _cut(key: Tensor, query: Tensor, value: Tensor, output: Tensor, heads: int, names: str) -> HeadFactors:
    """Cut (in, out) matrices into heads."""
    width, unfit = divmod(query.shape[1], heads)
    value_width, unfit_output = divmod(output.shape[0], heads)
    if unfit or unfit_output or key.shape[1] % width or value.shape[1] % value_width:
        shapes = ", ".join(str(tuple(matrix.shape)) for matrix in (key, query, value, output))
        raise InputError(f"{names} must split into {heads} heads; got (in, out) shapes {shapes}.")
    key_heads, value_heads = key.shape[1] // width, value.shape[1] // value_width
    if heads % key_heads or key_heads != value_heads:
        raise InputError(
            f"{names} must have a divisor of its {heads} heads for keys, and as many for values; got {key_heads} and "
            f"{value_heads}."
        )

    def part(matrix: Tensor, width: int) -> Tensor:
        present = matrix.unflatten(1, (-1, width)).permute(1, 0, 2)
        return present.repeat_interleave(heads // present.shape[0], dim=0) if present.shape[0] < heads else present

    return HeadFactors(
        key=part(key, width),
        query=part(query, width),
        value=part(value, value_width),
        output=output.unflatten(0, (heads, value_width)).permute(0, 2, 1),
    )
