"""Check of a layout: the products read from the weights, against the queries, keys and values of a forward pass.

Samples share their positions and differ in their inputs. At one position, the difference of two samples' queries is
the difference of their inputs times W_Q: biases cancel. A rotary embedding turns queries and keys of one position
alike, so it cancels in their inner product. So for differences x, y of the inputs at a position, and each head h,

    (query of x) . (key of y)  =  c  x^T W_Q W_K^T y        with one number c for all heads
    (value of y)^T W_O^T       =     y^T W_V W_O^T
    module's output            =     sum over heads of (what head h has read) W_O^T  (+ its input, where it adds it)

and a layout that satisfies all three has the products of every head right.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from saddlescope.ranks.attention.attention_trace import Meeting
from saddlescope.ranks.attention.head_factors import HeadFactors

TOLERANCE = 2e-3  # of float32 sums, relative to the largest entry; factors of other heads differ by more than .1


_ROUNDING = 1e-5  # of float32 vectors, relative to their length
_SMALLEST = 1e-3  # change of values or scores, relative to the largest
_MASKED = 1e4  # size of scores beyond which they are those of a mask
_NOT_POSITIVE = "a head multiplies its {} by 0 or by a negative number. Pass matrices='*'"
_GATE = "a gate comes between W_V and W_O"


class Comparison(NamedTuple):
    """Result of a check.

    Attributes:
        error: sentence about the first difference; "" if the layout agrees.
        remark: what comes between the factors of a product, such as a gate; "" for nothing.
    """

    error: str
    remark: str = ""


class Heads(NamedTuple):
    """A meeting with batch and heads on axes of their own."""

    query: Float[Tensor, "batch heads tokens width"]
    key: Float[Tensor, "batch key_heads tokens width"]
    value: Float[Tensor, "batch key_heads tokens value_width"] | None
    read: tuple[Float[Tensor, "batch heads tokens value_width"], ...]
    scores: Float[Tensor, "batch heads tokens key_tokens"] | None = None
    weights: Float[Tensor, "batch heads tokens key_tokens"] | None = None
    used: Float[Tensor, "batch heads tokens key_tokens"] | None = None

    @property
    def first_sample(self) -> "Heads":
        """The part of the first sample."""
        value, *softmax = (None if one is None else one[:1] for one in (self.value, *self[4:]))
        return Heads(self.query[:1], self.key[:1], value, tuple(one[:1] for one in self.read), *softmax)


def heads_of(meeting: Meeting, batch: int, tokens: int) -> tuple[Heads, ...]:
    """Return the meeting's tensors with a batch axis and a head axis, for each product that adds to its scores."""
    found = []
    for query, key in meeting.pairs:
        if not of_tokens(query, tokens):
            continue
        parts = [_with_heads(part.float(), batch, tokens) for part in (query, key)]
        if any(part is None for part in parts):
            continue
        query4, key4 = parts
        assert query4 is not None
        assert key4 is not None
        value = None if meeting.value is None else _with_heads(meeting.value.float(), batch, tokens)
        read = []
        for part in map(Tensor.float, meeting.read):
            like = None if not read else read[0]
            shaped = _with_heads(part, batch, tokens) if like is None else _like(part, like)
            if shaped is not None:
                read.append(shaped)
        softmax = [_scores_of(part, query4) for part in (meeting.scores, meeting.weights, meeting.used)]
        found.append(Heads(query4, key4, value, tuple(read), *softmax))
    return tuple(found)


def joined_heads(heads: Sequence[Heads], dim: int) -> Heads | None:
    """Join heads along an axis, without parts that some lack or have in other shapes; None if those are needed."""

    def together(parts: Sequence[Tensor | None]) -> Tensor | None:
        held = [part for part in parts if part is not None]
        return torch.cat(held, dim) if len(held) == len(heads) and len({one.shape for one in held}) == 1 else None

    query, key, value, *softmax = (
        together([getattr(one, name) for one in heads]) for name in Heads._fields if name != "read"
    )
    read = [together(parts) for parts in zip(*(one.read for one in heads), strict=True)]
    complete = [part for part in read if part is not None]
    if query is None or key is None or len(complete) < len(read):
        return None
    return Heads(query, key, value, tuple(complete), *softmax)


def of_tokens(query: Tensor, tokens: int) -> bool:
    """Return False if a product with these queries sums over tokens: it compares channels, as in XCiT."""
    return query.shape[-2] == tokens or query.shape[-1] != tokens


def only_changed(before: Sequence[Heads], after: Sequence[Heads]) -> bool:
    """Return True if queries, keys and values of two calls differ at the first token of the last sample alone."""
    for one, other in zip(before, after, strict=True):
        for name in ("query", "key", "value"):
            then, now = getattr(one, name), getattr(other, name)
            if then is not None and (then != now).any(dim=-1).any(dim=1).nonzero().tolist() != [[len(then) - 1, 0]]:
                return False
    return True


def differ(one: Tensor, other: Tensor) -> bool:
    """Return True if values differ by more than rounding."""
    return float((one - other).abs().max()) > _SMALLEST * float(one.abs().max())


def shapes_of_values(heads: Sequence[Heads]) -> list[torch.Size | None]:
    """Return the shape of the values of each softmax."""
    return [None if one.value is None else one.value.shape for one in heads]


def values_differ(before: Sequence[Heads], after: Sequence[Heads]) -> bool:
    """Return True if the values of two calls have the same shapes and differ."""
    if len(before) != len(after):
        return False
    pairs = ((one.value, other.value) for one, other in zip(before, after, strict=True))
    return any(a is not None and b is not None and a.shape == b.shape and differ(a, b) for a, b in pairs)


def _with_heads(part: Tensor, batch: int, tokens: int) -> Tensor | None:
    if part.ndim == 3 and part.shape[1] == batch * tokens:
        part = part[None]
    elif part.ndim == 3 and len(part) % batch == 0:
        part = part.unflatten(0, (batch, -1))
    if part.ndim == 5 and part.shape[:1] == (batch,):  # grouped queries: (batch, key heads, group, tokens, width)
        part = part.flatten(1, 2)
    if part.ndim == 4 and len(part) == 1 and part.shape[2] == batch * tokens:  # all samples in one sequence
        part = part[0].unflatten(1, (batch, tokens)).transpose(0, 1)
    if part.ndim != 4 or part.shape[0] != batch or part.shape[2] < tokens:
        return None
    return part if part.shape[2] == tokens else part[:, :, -tokens:]


def _scores_of(part: Tensor | None, query: Tensor) -> Tensor | None:
    """Return scores, or weights, with batch and heads on axes of their own; None for other shapes."""
    if part is None or part.shape[-2] != query.shape[2]:
        return None
    return (
        part.float().reshape(*query.shape[:2], *part.shape[-2:])
        if part.numel() == query[..., 0].numel() * part.shape[-1]
        else None
    )


def factors_of_heads(heads: Heads) -> tuple[str, str]:
    """Return why the products are not what heads use, and what else multiplies them; "" for nothing.

    A head may multiply its scores by a factor of its own before the softmax, or its weights after it. The differences
    of two samples' scores show it, whatever is added to the scores of both. A factor that is not above 0 makes a head
    that attends elsewhere, or nowhere, than W_K W_Q^T says.
    """
    keys = heads.key.shape[1]
    product = heads.query @ heads.key.repeat_interleave(heads.query.shape[1] // keys, dim=1).mT
    pairs = []
    if heads.scores is not None and heads.scores.shape == product.shape:
        if _turns_rows(heads.scores, product):
            return _NOT_POSITIVE.format("scores"), ""
        pairs.append((heads.scores[1:] - heads.scores[:1], product[1:] - product[:1], "scores"))
    if heads.used is not None and heads.weights is not None and heads.used.shape == heads.weights.shape:
        pairs.append((heads.used, heads.weights, "attention weights"))
    remark = ""
    for seen, expected, what in pairs:
        found = []
        for one, other in zip(seen.unbind(1), expected.unbind(1), strict=True):
            held = (one.abs() < _MASKED) & other.isfinite() & (other != 0)
            if not bool(held.any()):
                return "", remark
            ratio = float((one[held] * other[held]).sum() / (other[held] ** 2).sum())
            if float((one[held] - ratio * other[held]).abs().max()) > TOLERANCE * float(other[held].abs().max()):
                break  # not in proportion: a cap on scores, or a mask of samples
            found.append(ratio)
        else:
            largest = max(map(abs, found))
            if min(found) <= _ROUNDING * largest:
                return _NOT_POSITIVE.format(what), ""
            if max(found) - min(found) > TOLERANCE * largest:
                remark = f"heads multiply their {what} by numbers of their own"
    return "", remark


def _turns_rows(scores: Tensor, product: Tensor) -> bool:
    """Return True if the scores of a query are those of the products times a number that is not above 0.

    A softmax does not see what is added to a row. Four keys or more show that two rows are in proportion.
    """
    held = (scores.abs() < _MASKED) & product.isfinite()
    count = held.sum(-1, keepdim=True)
    rows = [one.double().where(held, 0.0) for one in (scores, product)]
    seen, expected = [(one - one.sum(-1, keepdim=True) / count.clamp_min(1)).where(held, 0.0) for one in rows]
    size = expected.abs().amax(-1)
    ratio = (seen * expected).sum(-1) / (expected**2).sum(-1).clamp_min(1e-300)
    rest = (seen - ratio[..., None] * expected).abs().amax(-1)
    whole = (count[..., 0] > 3) & (size > 0) & (rest <= TOLERANCE * size * ratio.abs().amax())
    return bool((whole & (ratio <= _ROUNDING * ratio.abs().amax())).any())


def mixes(
    factors: HeadFactors,
    inputs: tuple[Float[Tensor, "tokens query_inputs"], Float[Tensor, "tokens key_inputs"]],
    before: Sequence[Heads],
    again: Callable[[], Sequence[Heads]],
) -> bool:
    """Return True if scores or attention weights of a head or token depend on the queries or keys of others.

    Queries, then keys, of one head are changed at one token of the first sample, along a direction of the weights that
    is orthogonal to the inputs of its other tokens. It shows nothing where factors are no views of weights.

    Args:
        factors: views of the weights of the module's copy; they are the same afterwards.
        inputs: those of queries, and of keys, of the first sample.
        before: of the first sample.
        again: function that calls the module again.
    """
    for factor, x in zip((factors.query[0], factors.key[0]), inputs, strict=True):
        own = factor.clone()
        draw = torch.Generator().manual_seed(3)
        factor += torch.outer(torch.linalg.pinv(x)[:, len(x) // 2], torch.randn(own.shape[1], generator=draw))
        after = again()
        factor.copy_(own)
        if len(after) == len(before) and any(
            _others_changed(one, two, factors) for one, two in zip(before, after, strict=True)
        ):
            return True
    return False


def _others_changed(before: Heads, after: Heads, factors: HeadFactors) -> bool:
    """Return True if scores or weights have changed at heads or tokens of which neither query nor key has."""
    query, key = _moved(before.query, after.query), _moved(before.key, after.key)
    keys = factors.of_queries(key, 1) if key.shape[1] == factors.key_heads else _each(key, query.shape[1])
    if keys.shape[1] != query.shape[1]:
        return False
    own = query | keys.mT
    for name, held in (("scores", own), ("used", own.any(dim=-1, keepdim=True).expand(own.shape))):
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and new is not None and old.shape == new.shape == held.shape:
            seen = (old.abs() < _MASKED) & (new.abs() < _MASKED)
            change = (new - old).where(seen, torch.nan)
            if name == "scores":  # a softmax does not see what is added to a row, such as minus its maximum
                change = change - change.where(~held, torch.nan).nanmedian(dim=-1, keepdim=True).values.nan_to_num(0.0)
            change = change.abs().nan_to_num(0.0)
            size = torch.maximum(change.max(), TOLERANCE * old.abs().where(seen, 0.0).max())  # above rounding
            if bool((change[~held] > _SMALLEST * size).any()):
                return True
    return False


def _moved(old: Tensor, new: Tensor) -> Tensor:
    """Return where vectors along the last axis have changed by more than rounding."""
    return (new - old).norm(dim=-1, keepdim=True) > _ROUNDING * float(old.norm(dim=-1).max())


def _like(part: Tensor, first: Tensor) -> Tensor | None:
    """Return a later form of what heads have read in the axes of the first: (batch, heads, tokens, value_width)."""
    batch, heads, tokens, width = first.shape
    if part.shape == first.shape:
        return part
    if part.shape == (batch * heads, tokens, width):
        return part.reshape(first.shape)
    joined = part.numel() == first.numel() and part.shape[-1] == heads * width
    if joined or part.shape == (batch, tokens, heads, width):
        return part.reshape(batch, tokens, heads, width).transpose(1, 2)
    return None


def compare(
    factors: HeadFactors,
    heads: Heads,
    queries: Float[Tensor, "batch tokens query_inputs"],
    keys: Float[Tensor, "batch tokens key_inputs"],
    outputs: list[Float[Tensor, "batch tokens outputs"]],
) -> Comparison:
    """Compare the factors of a layout with a forward pass.

    Args:
        factors: read from the weights.
        heads: of the forward pass.
        queries: inputs from which the module computes queries.
        keys: inputs from which it computes keys and values.
        outputs: tensors that the module returned, of the shape of its output.
    """
    count, width = heads.query.shape[1], heads.query.shape[3]
    if count != factors.heads:
        return Comparison(f"its softmax has {count} heads, and the layout {factors.heads}")
    for name, given, factor in (("queries", queries, factors.query), ("keys", keys, factors.key)):
        if given.shape[-1] != factor.shape[1]:
            return Comparison(f"its {name} come from {factor.shape[1]} inputs; the check gave {given.shape[-1]}")
    x, y, query, key = (part[1:] - part[:1] for part in (queries, keys, heads.query, heads.key))
    if heads.key.shape[1] not in (count, factors.key_heads):
        return Comparison(f"its softmax has {heads.key.shape[1]} key heads, and the layout {factors.key_heads}")
    own_query, own_key = _project(x, factors.query), factors.of_queries(_project(y, factors.key), 1)
    expected = torch.einsum("ahtw,bhtw->htab", own_query, own_key)
    seen = torch.einsum("ahtw,bhtw->htab", query, _each(key, count))
    scale = float((seen * expected).sum() / (expected * expected).sum().clamp_min(1e-300))
    if not _close(seen, scale * expected) or not scale > 0:
        lengths = [part.norm(dim=-1) for part in heads[:2]]
        normed = any(bool(one.aminmax().min > (1 - TOLERANCE) * one.max()) for one in lengths)
        norm = ": queries or keys have one length, as by a norm. Pass them to torch.nn.functional.rms_norm"
        read = f"its scores are not those of W_K W_Q^T as read by {width} columns a head"
        return Comparison(f"{read}{norm if normed else ''}")
    refusal, remark = factors_of_heads(heads)
    if refusal:
        return Comparison(refusal)
    if heads.value is None or not heads.read:
        return Comparison("its softmax is not multiplied by values")
    if heads.value.shape[1] not in (count, factors.key_heads):
        return Comparison(f"it has {heads.value.shape[1]} heads of values, and the layout {factors.key_heads}")
    if heads.value.shape[3] != factors.value.shape[2] or heads.read[0].shape[1] != count:
        return Comparison(f"its values have width {heads.value.shape[3]}, and those of the layout "
                          f"{factors.value.shape[2]}")  # fmt: skip
    value = _each(heads.value[1:] - heads.value[:1], count)
    # Along a few random directions of the output: two products that differ, differ there.
    drawn = torch.randn(factors.output.shape[1], 4, generator=torch.Generator().manual_seed(1))
    written = torch.einsum("how,or->hwr", factors.output, drawn)
    seen = value @ written
    expected = factors.of_queries(_project(y, factors.value), 1) @ written
    if not _close(seen, expected):
        return Comparison("its values are not those of W_V as read")
    for gated, read in enumerate(heads.read):
        columns = factors.output.permute(0, 2, 1).flatten(0, 1)
        expected = (read[1:] - read[:1]).transpose(1, 2).flatten(2) @ columns
        for output in outputs:
            seen = output[1:] - output[:1]
            if seen.shape == expected.shape and (
                _close(seen, expected) or (seen.shape == x.shape and _close(seen - x, expected))
            ):
                return Comparison("", "; ".join(filter(None, (remark, _GATE if gated else ""))))
    return Comparison("its output is not what the heads have read times W_O as read")


def _project(x: Tensor, factor: Tensor) -> Tensor:
    """Return (batch, heads, tokens, width) of inputs (batch, tokens, inputs) times (heads, inputs, width)."""
    columns = factor.permute(1, 0, 2).reshape(factor.shape[1], -1)
    return (x @ columns).unflatten(2, (len(factor), -1)).transpose(1, 2)


def _each(part: Tensor, heads: int) -> Tensor:
    """Repeat shared keys as `scaled_dot_product_attention` does."""
    return part if part.shape[1] == heads else part.repeat_interleave(heads // part.shape[1], dim=1)


def _close(one: Tensor, other: Tensor) -> bool:
    size = float(other.abs().max())
    return size > 0 and float((one - other).abs().max()) <= TOLERANCE * size
