"""Verdicts on attention modules: the layout that agrees with forward passes of a module, or why none does."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.coverage import Outcome
from saddlescope.ranks.attention.head_factors import HeadFactors
from saddlescope.ranks.attention.layouts import AttentionLayout
from saddlescope.ranks.attention.probe import Probe, ReplacementError
from saddlescope.ranks.attention.self_check import Heads, compare, joined_heads, mixes


class Verdict(NamedTuple):
    """Outcome of modules that differ only in their weights; see `CoverageRow`.

    `mixing` has the arguments by which the values are mixed with others, if the model passes them. `attends` is False
    for a refused module that may be no attention at all: no queries and keys of tokens meet in a softmax of it.
    """

    outcome: Outcome
    layout: AttentionLayout | None
    heads: int
    key_heads: int
    reason: str
    mixing: tuple[str, ...] = ()
    attends: bool = True


def _refused(reason: str, *, attends: bool = True) -> Verdict:
    return Verdict("refused", None, 0, 0, reason, attends=attends)


def _read(
    module: nn.Module, layouts: Iterable[AttentionLayout], errors: list[str]
) -> Iterator[tuple[AttentionLayout, HeadFactors]]:
    """Yield the layouts that can be read in a module, with its factors; add why others cannot to the errors."""
    for layout in layouts:
        try:
            factors = layout.factors(module)
        except InputError as refusal:
            errors.append(str(refusal))
            continue
        if factors is not None:
            yield layout, factors


def unchecked(module: nn.Module, fitting: Sequence[AttentionLayout], reason: str) -> Verdict:
    """Return the first layout that can be read, without a check."""
    errors: list[str] = []
    for layout, factors in _read(module, fitting, errors):
        return Verdict("unchecked", layout, factors.heads, factors.key_heads, reason)
    return _refused(next(iter(errors), ""), attends=False)


_MIXED_TOKENS = "its queries and keys are not those of single tokens of its input"
_ONE_QUERY = "one query meets all tokens, as in class attention or pooling: the check does not cover it"
_OF_CHANNELS = "its softmax compares channels, by sums over tokens: it is not attention of tokens"
_SEVERAL_VALUES = "each head reads several sets of values, as in differential attention, and W_V has one for each head"


def judge(
    seen: Iterable[Probe], module: nn.Module, fitting: Sequence[AttentionLayout], *, known: bool = True
) -> Verdict:
    """Return the first layout, or alternative of one, that agrees with a forward pass; or why none does.

    Args:
        seen: forward passes, in any of which a layout may agree.
        module: the module.
        fitting: layouts that its names allow.
        known: False if the layouts are a user's own, who knows that a module without a visible softmax is attention.
    """
    first: Verdict | None = None
    for one in seen:
        if one.failure:
            return unchecked(module, fitting, one.failure)
        trace = one.trace
        if not one.heads and one.meets_tokens:
            one_query = not one.passed and any(query.shape[-2] == 1 for query in one.met)
            return unchecked(module, fitting, _ONE_QUERY if one_query else _MIXED_TOKENS)
        if not one.heads and trace.opaque:
            return unchecked(
                module, fitting, f"its forward pass calls {trace.opaque}, into which the check cannot look"
            )
        if not one.heads and trace.mixed:
            return _refused(f"its scores or attention weights are mixed by {trace.mixed}, over heads or tokens")
        if not one.heads:
            what = (
                "has no softmax"
                if not trace.softmaxes
                else "has a softmax, but not of products of queries and keys of tokens that the check can follow"
            )
            if not known:
                return unchecked(module, fitting, f"its forward pass {what}")
            if one.meets_channels:
                return _refused(_OF_CHANNELS)
            hidden = ", or TorchScript hides it" if trace.softmaxes else ""
            return _refused(f"its forward pass {what}: it is not softmax attention on tokens{hidden}", attends=False)
        found = _agreeing(one, fitting)
        if found.outcome == "verified" and _mixes(one, found):
            found = _refused("its scores or attention weights are mixed, over heads or tokens")
        if found.outcome == "verified":
            try:
                mixing = one.mixing(found.key_heads)
            except ReplacementError as reason:
                return unchecked(module, fitting, str(reason))
            return _refused(mixed_values(mixing)) if mixing and one.passed else found._replace(mixing=mixing)
        if trace.mixed:
            found = _refused(f"its scores or attention weights are mixed by {trace.mixed}, over heads or tokens")
        elif not one.of_single_tokens():
            found = unchecked(module, fitting, _MIXED_TOKENS)
        elif trace.rounded:
            found = unchecked(module, fitting, f"it computes in {trace.rounded}, and the check needs float32")
        first = first if first is not None and first.outcome == "refused" else found
    return first or _refused("its forward pass was not called")


def _mixes(seen: Probe, found: Verdict) -> bool:
    assert seen.module is not None
    assert found.layout is not None
    factors = found.layout.factors(seen.module)
    assert factors is not None
    return mixes(factors, (seen.queries[0], seen.keys[0]), [one.first_sample for one in seen.heads], seen.again)


def mixed_values(arguments: Iterable[str]) -> str:
    """Return the reason to refuse a module that is given values of another one by these arguments."""
    return f"its values are mixed with others, which its model passes as {' and '.join(arguments)}"


def _agreeing(seen: Probe, fitting: Sequence[AttentionLayout]) -> Verdict:
    """Return the first layout, or alternative of one, that agrees with one forward pass; or why none does."""
    assert seen.module is not None
    errors: list[str] = []
    for meeting in (*seen.heads, *joined(seen.heads)):
        counts = (meeting.query.shape[1], meeting.key.shape[1])
        candidates = dict.fromkeys(one for layout in fitting for one in layout.alternatives(*counts))
        for candidate, factors in _read(seen.module, candidates, errors):
            # In joint attention (Flux) the second input has weights of its own, and is attended to besides.
            for keys in (seen.keys,) if seen.keys is seen.queries else (seen.keys, seen.queries):
                found = compare(factors, meeting, seen.queries, keys, seen.outputs)
                if not found.error:
                    return Verdict("verified", candidate, factors.heads, factors.key_heads, found.remark)
                errors.append(found.error)
    return _refused(_SEVERAL_VALUES if _reads_several_values(seen.heads) else next(iter(errors), ""))


def joined(heads: Sequence[Heads]) -> tuple[Heads, ...]:
    """Return the softmaxes of single heads as one with all heads: each head may be a module of its own."""
    single = all(one.query.shape[1] == one.key.shape[1] == 1 and one.value is not None and one.read for one in heads)
    found = joined_heads([one._replace(read=one.read[:1]) for one in heads], 1) if len(heads) > 1 and single else None
    return () if found is None or found.value is None else (found,)


def _reads_several_values(heads: Sequence[Heads]) -> bool:
    """Return True if the same queries meet the same keys more than once, each time with other values."""
    first, *others = heads
    return any(
        one.value is not None
        and first.value is not None
        and torch.equal(one.query, first.query)
        and torch.equal(one.key, first.key)
        and not torch.equal(one.value, first.value)
        for one in others
    )


def input_sizes(module: nn.Module, fitting: Sequence[AttentionLayout]) -> tuple[int, int, int] | None:
    """Return the widths of the inputs of queries and keys, and of a head, from the first layout that reads any."""
    candidates = (one for layout in fitting for heads in (None, 1) for one in layout.alternatives(heads))
    for _, factors in _read(module, candidates, []):
        return factors.query.shape[1], factors.key.shape[1], factors.query.shape[2]
    return None
