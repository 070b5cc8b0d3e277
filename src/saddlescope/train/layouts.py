"""Where attention keeps its weights: from a module to the factors W_K, W_Q, W_V, W_O of each head.

A layout looks at one module and says which factors it holds, or that it is none of its kind. It goes by structure
(attribute names and shapes), so no model library is imported. The conventions, all of them easy to get wrong:

- `nn.Linear` stores (out, in), GPT-2's `Conv1D` (in, out); the factors are cut from the (in, out) form;
- heads are contiguous along the out dimension of keys, queries and values, and along the in dimension of the output;
- fused projections hold Q, K, V in this order;
- with fewer key-value heads than heads (grouped queries), head h uses key-value head h // (heads / key-value heads).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from saddlescope.errors import InputError
from saddlescope.train.shards import whole

# Names under which attention modules and their configurations keep the number of heads.
_HEADS = ("num_heads", "n_heads", "n_head", "heads", "num_attention_heads")


class Factors(NamedTuple):
    """The factors of all heads of one attention block: views of its weights, so that X W_K are the keys, and so on."""

    key: Float[Tensor, "heads key_inputs width"]
    query: Float[Tensor, "heads query_inputs width"]
    value: Float[Tensor, "heads key_inputs value_width"]
    output: Float[Tensor, "heads outputs value_width"]


class Layout(ABC):
    """A way to keep the weights of attention."""

    @abstractmethod
    def factors(self, module: nn.Module) -> Factors | None:
        """The factors that `module` holds, or None where it is not of this layout.

        Raises:
            InputError: it has the layout's names, but not its shapes.
        """

    @abstractmethod
    def __str__(self) -> str:
        """The attribute names it looks for, for messages."""


@dataclass(frozen=True)
class Separate(Layout):
    """Four linear layers, named by dotted attribute paths from the attention module.

    Attributes:
        key, query, value, output: the paths, such as "k_proj" or "output.dense".
        heads: the number of heads, or the path to it; None looks under the usual names.
    """

    key: str
    query: str
    value: str
    output: str
    heads: int | str | None = None

    def factors(self, module: nn.Module) -> Factors | None:
        """See `Layout`."""
        paths = (self.key, self.query, self.value, self.output)
        matrices = [_matrix(module, path) for path in paths]
        key, query, value, output = matrices
        if key is None or query is None or value is None or output is None:
            return None
        return _cut(key, query, value, output, _heads(module, self.key, self.heads), str(self))

    def __str__(self) -> str:
        return f"{self.key}, {self.query}, {self.value}, {self.output}"


@dataclass(frozen=True)
class Fused(Layout):
    """One linear layer for queries, keys and values in this order, and one for the output.

    Attributes:
        qkv, output: dotted attribute paths from the attention module.
        heads: the number of heads, or the path to it; None looks under the usual names.
    """

    qkv: str
    output: str
    heads: int | str | None = None

    def factors(self, module: nn.Module) -> Factors | None:
        """See `Layout`."""
        fused, output = _matrix(module, self.qkv), _matrix(module, self.output)
        if fused is None or output is None:
            return None
        if fused.shape[1] != 3 * output.shape[0]:
            raise InputError(
                f"{self.qkv} must have queries, keys and values of the width {output.shape[0]} that {self.output} "
                f"takes; got {fused.shape[1]} outputs. Name its parts by a layout of your own."
            )
        query, key, value = fused.chunk(3, dim=1)
        return _cut(key, query, value, output, _heads(module, self.qkv, self.heads), str(self))

    def __str__(self) -> str:
        return f"{self.qkv}, {self.output}"


@dataclass(frozen=True)
class TorchMultihead(Layout):
    """`torch.nn.MultiheadAttention`, with one `in_proj_weight` or, where inputs differ in width, three."""

    def factors(self, module: nn.Module) -> Factors | None:
        """See `Layout`."""
        if not isinstance(module, nn.MultiheadAttention):
            return None
        if module.in_proj_weight is not None:
            query, key, value = whole(module.in_proj_weight).chunk(3)
        else:
            query, key, value = (
                whole(getattr(module, name)) for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight")
            )
        output = whole(module.out_proj.weight)
        return _cut(key.T, query.T, value.T, output.T, module.num_heads, str(self))

    def __str__(self) -> str:
        return "torch.nn.MultiheadAttention"


LAYOUTS: tuple[Layout, ...] = (
    TorchMultihead(),
    Separate("key", "query", "value", "output"),  # saddlescope's ViT
    Separate("self.key", "self.query", "self.value", "output.dense"),  # BERT and its kin
    Separate("attention.key", "attention.query", "attention.value", "output.dense"),  # Hugging Face's ViT
    Separate("k_proj", "q_proj", "v_proj", "o_proj"),  # Llama, Mistral, Qwen
    Separate("k_proj", "q_proj", "v_proj", "out_proj"),  # OPT, BART, CLIP, GPT-Neo
    Separate("k_lin", "q_lin", "v_lin", "out_lin"),  # DistilBERT
    Separate("k", "q", "v", "o"),  # T5
    Separate("to_k", "to_q", "to_v", "to_out"),
    Separate("to_k", "to_q", "to_v", "to_out.0"),  # Diffusers
    Fused("c_attn", "c_proj"),  # GPT-2, nanoGPT
    Fused("qkv", "proj"),  # timm
    Fused("to_qkv", "to_out"),
    Fused("to_qkv", "to_out.0"),  # vit-pytorch
)


def _resolve(root: object, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part, None)
    return root


def _matrix(module: nn.Module, path: str) -> Float[Tensor, "inputs outputs"] | None:
    """The weight of the linear layer at `path` as (in, out), or None where there is no linear layer."""
    layer = _resolve(module, path)
    weight = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    if isinstance(layer, nn.Linear):
        return whole(weight).T
    if type(layer).__name__ == "Conv1D" and getattr(layer, "nf", None) == weight.shape[1]:
        return whole(weight)  # transformers.pytorch_utils.Conv1D
    return None


def _heads(module: nn.Module, path: str, given: int | str | None) -> int:
    """The number of heads, from where the layout says or the usual names beside the key or in the module."""

    def candidates() -> Iterator[Any]:
        if isinstance(given, int):
            yield given
        elif given is not None:
            yield _resolve(module, given)
        else:
            holder, _, _ = path.rpartition(".")
            for owner in (_resolve(module, holder) if holder else module, module):
                for name in _HEADS:
                    yield getattr(owner, name, None)
                    yield _resolve(owner, f"config.{name}")

    for value in candidates():
        if isinstance(value, int) and value > 0:
            return value
    raise InputError(
        f"{type(module).__name__} must keep its number of heads as an integer under {given or ' or '.join(_HEADS)}; "
        "got none. Name it by a layout of your own: Separate(..., heads='path.to.it')."
    )


def _cut(key: Tensor, query: Tensor, value: Tensor, output: Tensor, heads: int, names: str) -> Factors:
    """Cuts (in, out) matrices into heads."""
    width, unfit = divmod(query.shape[1], heads)
    value_width, unfit_output = divmod(output.shape[0], heads)
    if unfit or unfit_output or key.shape[1] % width or value.shape[1] % value_width:
        shapes = ", ".join(str(tuple(matrix.shape)) for matrix in (key, query, value, output))
        raise InputError(f"{names} must split into {heads} heads; got (in, out) shapes {shapes}.")

    def part(matrix: Tensor, width: int) -> Tensor:
        present = matrix.unflatten(1, (-1, width)).permute(1, 0, 2)
        if heads % present.shape[0]:
            raise InputError(f"{names} must have a divisor of its {heads} heads for keys; got {present.shape[0]}.")
        return present.repeat_interleave(heads // present.shape[0], dim=0) if present.shape[0] < heads else present

    return Factors(
        key=part(key, width),
        query=part(query, width),
        value=part(value, value_width),
        output=output.unflatten(0, (heads, value_width)).permute(0, 2, 1),
    )
