"""Trace of one forward pass of an attention module: the queries, keys, values and outputs that meet in its softmax.

Every function of PyTorch that the module calls passes through `AttentionTrace`. Products of two matrices are
remembered by their result, and this memory follows the result through elementwise functions and changes of shape, but
not through what mixes heads or tokens. A softmax whose argument comes from a product of queries and keys is a
`Meeting`; the product of its result with a third tensor gives the values, and what each head has read.

Norms called as functions return their argument, so that queries and keys stay linear in the inputs.
"""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakTensorKeyDictionary


@dataclass(eq=False)
class Meeting:
    """Queries, keys and values of one softmax, with the heads along an axis of their own or in that of the batch.

    Attributes:
        pairs: operands of the products whose sum is the scores, each (..., tokens, width).
        value: operand of the product with the softmax, (..., tokens, value_width); None if there was none.
        read: results of that product, and of what multiplied them afterwards: the first is without a gate.
        scores: argument of the softmax.
        weights: its result; None out of sight.
        used: weights as they meet the values.
    """

    pairs: tuple[tuple[Float[Tensor, "..."], Float[Tensor, "..."]], ...]
    value: Float[Tensor, "..."] | None = None
    read: list[Tensor] = field(default_factory=list)
    scores: Tensor | None = None
    weights: Tensor | None = None
    used: Tensor | None = None


class _Product(NamedTuple):
    """Operands of a batched product, and views of them and of its result with rows and columns last."""

    operands: tuple[Tensor, Tensor]
    left: Tensor
    right: Tensor
    result: Tensor


_PRODUCTS = frozenset({
    torch.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, Tensor.__matmul__, Tensor.__rmatmul__, torch.baddbmm,
    Tensor.baddbmm,
})  # fmt: skip
_NORMS = frozenset({functional.normalize, functional.layer_norm, functional.rms_norm, functional.group_norm})
_GATES = frozenset({torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, Tensor.__imul__, Tensor.mul_})
_MIXING = ("conv", "linear", "addmm", "mm", "cumsum", "flip", "roll", "mean", "sum")
_PRODUCT_NAMES = ("einsum", "matmul", "bmm", "baddbmm", "tensordot", "mm", "rmatmul")
_MIXES = ("conv", "linear", "addmm", "cumsum", "flip", "roll", *_PRODUCT_NAMES)  # heads or tokens, of scores


class AttentionTrace(TorchFunctionMode):
    """Record of the meetings of queries, keys and values while it is entered.

    Attributes:
        meetings: one per softmax of scores, in order.
        softmaxes: number of all softmax calls.
        opaque: name of a function that computes attention out of sight; "" for none.
        rounded: name of a type of 16 bits in which something was computed; "" for none.
        mixed: name of a function that mixes scores, or attention weights, of several heads or tokens, and whose result
            comes between them and the values; "" for none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.meetings: list[Meeting] = []
        self.softmaxes = 0
        self.opaque = ""
        self.rounded = ""
        self.mixed = ""
        # By tensor, as long as it lives: recurrent layers make thousands, each of the size of their state.
        self._mixtures: MutableMapping[Tensor, str] = WeakTensorKeyDictionary()  # of scores or attention weights
        self._scores: MutableMapping[Tensor, tuple[tuple[Tensor, Tensor], ...]] = WeakTensorKeyDictionary()
        self._weights: MutableMapping[Tensor, Meeting] = WeakTensorKeyDictionary()  # results of a softmax
        self._read: MutableMapping[Tensor, Meeting] = WeakTensorKeyDictionary()

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call a function and remember what its result is made of."""
        kwargs = kwargs or {}
        if func in _NORMS and isinstance(args[0], Tensor):
            return args[0] + 0
        name = getattr(func, "__name__", "")
        if func is functional.scaled_dot_product_attention or (name == "flex_attention" and bool(args[2:])):
            return self._fused(func, args, kwargs)
        out = func(*args, **kwargs)
        if "attention" in name:
            self.opaque = name
        for part in out if isinstance(out, tuple | list) else (out,):
            if not isinstance(part, Tensor) or not part.is_floating_point():
                continue
            self.rounded = str(part.dtype) if part.dtype.itemsize < 4 else self.rounded
            product = _product(func, args, kwargs, part)
            if product is not None:
                self._multiplied(product, part)
            elif name in ("softmax", "_softmax"):
                self._softmax(args[0], part)
            elif name.lstrip("_").startswith(_MIXES) and len(_tensors(args, kwargs)) > (name == "einsum"):
                if any(one in known for one in _tensors(args, kwargs) for known in (self._scores, self._weights)):
                    self._mixtures[part] = name
            elif not name.lstrip("_").startswith(_MIXING):
                self._follow(func, args, kwargs, part)
        return out

    def _fused(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        names = ("query", "key", "value")
        query, key, value = (kwargs[name] if name in kwargs else args[at] for at, name in enumerate(names))
        out: Any = func(*args, **kwargs)
        self.softmaxes += 1
        read = next(iter(out)) if isinstance(out, tuple) else out  # flex_attention also returns log-sum-exps
        meeting = Meeting(((query, key),), value, [read])
        self.meetings.append(meeting)
        self._read[read] = meeting
        return out

    def _multiplied(self, product: _Product, out: Tensor) -> None:
        first, second = (self._weights.get(one) for one in product.operands)
        self.mixed = self.mixed or next((self._mixtures[one] for one in product.operands
                                         if one in self._mixtures), "")  # fmt: skip
        if first is None and second is None:
            self._scores[out] = ((product.left, product.right.transpose(-1, -2)),)
            return
        meeting = first or second
        assert meeting is not None
        if meeting.value is None:
            meeting.value = product.right if first else product.left.transpose(-1, -2)
            meeting.read.append(product.result if first else product.result.transpose(-1, -2))
            meeting.used = product.operands[0 if first else 1]
        self._read[out] = meeting

    def _softmax(self, scores: Tensor, out: Tensor) -> None:
        self.softmaxes += 1
        self.mixed = self.mixed or self._mixtures.get(scores, "")
        pairs = self._scores.get(scores)
        if pairs is not None:
            self.meetings.append(Meeting(pairs, scores=scores, weights=out))
            self._weights[out] = self.meetings[-1]

    def _follow(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Tensor) -> None:
        """Carry the memory of arguments over to a result of elementwise functions and changes of shape."""
        tensors = _tensors(args, kwargs)
        mixture = next((self._mixtures[one] for one in tensors if one in self._mixtures), "")
        if mixture:  # also where it is added to, or multiplies, what it was made of
            self._mixtures[out] = mixture
            return
        pairs: list[tuple[Tensor, Tensor]] = []
        for tensor in tensors:
            for pair in self._scores.get(tensor, ()):
                if tensor.numel() <= out.numel() and not any(pair[0] is other[0] for other in pairs):
                    pairs.append(pair)
            if tensor in self._weights:
                self._weights[out] = self._weights[tensor]
            meeting = self._read.get(tensor)
            if meeting is not None and tensor.numel() == out.numel():
                self._read[out] = meeting
                if func in _GATES and len(tensors) == 2:
                    meeting.read.append(out)
        if pairs:
            self._scores[out] = tuple(pairs)


def _tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves((args, dict(kwargs))) if isinstance(leaf, Tensor)]


def _product(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Tensor
) -> _Product | None:
    """Return the product that a function has computed, or None for other functions."""
    if func is torch.einsum or getattr(func, "__name__", "") == "einsum":
        return _einsum(args, out)
    if func not in _PRODUCTS:
        return None
    if func in (torch.baddbmm, Tensor.baddbmm):
        given = (*args[1:], *(kwargs[name] for name in ("batch1", "batch2") if name in kwargs))
        args = given[:2]
    elif kwargs:
        args = (*args, *kwargs.values())
    left, right = (args[1], args[0]) if func is Tensor.__rmatmul__ else (args[0], args[1])
    if left.ndim < 3 or right.ndim < 3:  # a matrix without a batch is a weight
        return None
    return _Product((left, right), left, right, out)


def _einsum(args: tuple[Any, ...], out: Tensor) -> _Product | None:
    """Return an einsum of two tensors that sums over one index as a batched product.

    Heads that only one of them has, before its rows or columns, share the other: queries of several heads, one key.
    """
    if not isinstance(args[0], str):
        return None
    operands = list(args[1]) if len(args) == 2 and isinstance(args[1], list | tuple) else list(args[1:])
    inputs, _, result = args[0].replace(" ", "").replace("...", "").partition("->")
    names = inputs.split(",")
    dots = "..." in args[0]
    if len(operands) != 2 or len(names) != 2 or not result:
        return None
    if dots:  # leading axes that both share
        extra = "".join(chr(ord("A") + at) for at in range(out.ndim - len(result)))
        names, result = [extra + name for name in names], extra + result
    left, right = names
    if len(left) != operands[0].ndim or len(right) != operands[1].ndim:
        return None
    rows = [name for name in result if name in left and name not in right]
    columns = [name for name in result if name in right and name not in left]
    batch = [name for name in result if name in left and name in right]
    summed = [name for name in left if name in right and name not in result]
    shared = [*rows[:-1], *columns[:-1]]
    rows, columns = rows[-1:], columns[-1:]
    if [len(summed), len(rows), len(columns)] != [1, 1, 1] or len(shared) > 1:
        return None
    if sorted(left + right) != sorted([*2 * batch, *shared, *rows, *columns, *2 * summed]):
        return None
    sizes = dict(zip(result, out.shape, strict=True))

    def view(operand: Tensor, names: str, order: list[str]) -> Tensor:
        absent = [name for name in order if name not in names]
        whole = operand[(None,) * len(absent)].expand(*(sizes[name] for name in absent), *operand.shape)
        return whole.permute([(*absent, *names).index(name) for name in order])

    return _Product(
        (operands[0], operands[1]),
        view(operands[0], left, [*batch, *shared, *rows, *summed]),
        view(operands[1], right, [*batch, *shared, *summed, *columns]),
        out.permute([result.index(name) for name in (*batch, *shared, *rows, *columns)]),
    )
