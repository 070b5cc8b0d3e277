"""Forward pass of one attention module alone, on random inputs and with random weights, traced.

The module is copied with new random weights of the same shapes, so zeros at initialization hide nothing, and nothing of
the model is used up or changed: not its weights, devices, hooks, or random state. Norms become the identity, and so do
rotary embeddings that the module takes as arguments. See `probe_arguments` for the arguments of its forward pass.
"""

import contextlib
import functools
import itertools
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules import module as _module
from torch.utils import _pytree as pytree

from saddlescope.ranks.attention.attention_trace import AttentionTrace
from saddlescope.ranks.attention.module_copy import random_copy
from saddlescope.ranks.attention.passed_values import left_out
from saddlescope.ranks.attention.probe_arguments import ProbeCall, probe_calls, supplied_calls
from saddlescope.ranks.attention.self_check import (
    Heads,
    differ,
    heads_of,
    of_tokens,
    only_changed,
    shapes_of_values,
    values_differ,
)

_WAYS = 3  # calls that show queries and keys, at most
_EMPTY = 12  # calls that show none, at most
_WITHOUT_SOFTMAX = 4  # calls without any softmax, at most: other numbers of tokens show none either
_SMALL = 2**21  # parameters of a module that may be called often
_LARGEST = 2**28  # parameters of a module beyond which it is not copied


class ReplacementError(Exception):
    """Reason why it cannot be said whether an argument that the model gave is mixed with the values."""


class Probe(NamedTuple):
    """One traced forward pass of a module's copy.

    Attributes:
        module: the copy, with its random weights; None if no call succeeded.
        queries, keys: inputs that queries, and keys and values, are computed from: (batch, tokens, inputs).
        heads: queries, keys and values of each softmax.
        outputs: what the forward pass returned, shaped (batch, tokens, outputs).
        trace: the trace.
        failure: reason why no call succeeded; "" otherwise.
        repeat: function that calls the copy again. Its options: `added`, an addition to the inputs of keys and values;
            `moved`, to add 1 to the first token of the last sample; `others`, arguments by name, in place of its own.
        replacements: function of the heads of a call, and the number of heads of values by the weights, before any
            repetition. It yields arguments that may reach the values: name, another tensor for it, and its change if it
            has the form of the inputs.
        passed: True if the arguments are those that the model gave, False if they were found by their names.
    """

    module: nn.Module | None
    queries: Float[Tensor, "batch tokens inputs"]
    keys: Float[Tensor, "batch tokens inputs"]
    heads: tuple[Heads, ...]
    outputs: list[Tensor]
    trace: AttentionTrace
    failure: str = ""
    repeat: "Callable[..., Probe]" = lambda **_: failed("it was not called")
    replacements: Callable[[Sequence[Heads], int], Iterable[tuple[str, Tensor, Tensor | None]]] = lambda *_: ()
    passed: bool = False

    @property
    def met(self) -> list[Tensor]:
        """Queries of all softmaxes whose argument is a product of queries and keys."""
        return [query for meeting in self.trace.meetings for query, _ in meeting.pairs]

    @property
    def meets_tokens(self) -> bool:
        """True if queries and keys of tokens meet in some softmax."""
        return any(self.passed or of_tokens(query, self.queries.shape[1]) for query in self.met)

    @property
    def meets_channels(self) -> bool:
        """True if queries and keys meet in sums over tokens in some softmax."""
        return any(not self.passed and not of_tokens(query, self.queries.shape[1]) for query in self.met)

    def again(self) -> tuple[Heads, ...]:
        """Return the heads of the first sample with the present weights of the copy."""
        return tuple(heads.first_sample for heads in self.repeat().heads)

    def of_single_tokens(self) -> bool:
        """Return True if a change of one token of the inputs changes queries, keys and values of that token alone.

        Otherwise the module mixes tokens first, or the call meant other axes than the module does.
        """
        return only_changed(self.repeat().heads, self.repeat(moved=True).heads)

    def mixing(self, key_heads: int) -> tuple[str, ...]:
        """Return the arguments by which the values are mixed with others: of `replacements`.

        Values change with such an argument, and still depend on the inputs. They may also change as if it were added to
        the inputs, as positions are: then it is not mixed with the values.

        Raises:
            ReplacementError: the module cannot be called with another tensor in place of one that the model gave, or
                its values then have other shapes.
        """
        before = self.repeat().heads
        found: list[str] = []
        for name, other, change in self.replacements(before, key_heads):
            try:
                after = before if name in found else self.repeat(others={name: other}).heads
            except Exception as error:  # of a form that the argument does not take
                if self.passed:
                    raise ReplacementError(f"it cannot be called with another {name} ({brief(error)})") from error
                continue
            if self.passed and shapes_of_values(before) != shapes_of_values(after):
                raise ReplacementError(f"its values have other shapes with another {name}")
            if not values_differ(before, after):
                continue
            value = after[0].value
            replaced = value is not None and len(value) > 1 and not differ(value[1:], value[:1])  # the inputs
            if not replaced and (change is None or values_differ(self.repeat(added=change).heads, after)):
                found.append(name)
        return tuple(found)


def probes(module: nn.Module, *, inputs: int, key_inputs: int, width: int) -> Iterator[Probe]:
    """Call a copy of an attention module on random inputs, in each way that its arguments allow.

    A module may accept tokens in the place of samples, so more than one way can succeed; those that show no softmax of
    queries and keys come last. If no way succeeds, there is one probe, with the reason.

    Args:
        module: the attention module; it is not changed.
        inputs: width of the inputs of queries.
        key_inputs: width of the inputs of keys and values.
        width: columns of one head's queries, for rotary embeddings.
    """
    size = sum(parameter.numel() for parameter in module.parameters())
    if size > _LARGEST:
        yield failed("it is too large to be copied")
        return
    try:
        twin = random_copy(module)
        if hasattr(twin, "set_attention_type"):  # BigBird, which attends to all tokens of short sequences
            twin.set_attention_type("original_full")  # pyright: ignore[reportCallIssue]
    except Exception as error:
        yield failed(f"it cannot be copied ({brief(error)})")
        return
    empty: list[Probe] = []
    failure, found = "", 0
    sizes = (inputs, key_inputs, width)
    first, second = (1000, 200) if size < _SMALL else (100, 60)
    calls = itertools.chain(
        itertools.islice(probe_calls(twin, *sizes), first),
        itertools.takewhile(lambda _: not (found or empty), itertools.islice(supplied_calls(twin, *sizes), second)),
    )
    for call in calls:
        try:
            one = _called(twin, call)
        except Exception as error:
            failure = failure or f"its forward pass could not be called alone ({brief(error)})"
            continue
        if not finite(one):
            failure = NOT_FINITE
        elif one.heads and not any(bool(read.any()) for heads in one.heads for read in heads.read[:1] or (heads.key,)):
            failure = failure or "its forward pass reads no token with the masks that the check knows"
        elif one.heads:
            found += 1
            yield one
            if found == _WAYS:
                return
        else:
            empty.append(one)
            none = all(not one.trace.softmaxes for one in empty)
            if len(empty) == (_WITHOUT_SOFTMAX if none else _EMPTY) and not found and failure != NOT_FINITE:
                break
    if found:
        return
    if empty and failure != NOT_FINITE:
        yield empty[0]
    else:
        yield failed(failure or "its forward pass has arguments that the check does not know")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Compute on the processor in float32, without gradients, warnings or hooks, and leave no trace.

    Random states, default type and device, and autocast stay as they were, and global hooks are not called. Compiled
    functions run as they are written, so that a trace sees into them (and `flex_attention`, which compiles).
    """
    before = torch.get_default_dtype()
    states = random.getstate(), np.random.get_state()  # noqa: NPY002  (that of code that uses it)
    hooks = [(held, dict(held)) for name, held in vars(_module).items() if name.startswith("_global_")
             and name.endswith("_hooks")]  # fmt: skip
    loaded = "torch._dynamo" in sys.modules  # loading it takes seconds, and nothing is compiled without it
    eager = torch.compiler.set_stance("force_eager") if loaded else contextlib.nullcontext()
    with (
        warnings.catch_warnings(action="ignore"),
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
        torch.device("cpu"),
        torch.autocast("cpu", enabled=False),
        eager,
    ):
        torch.set_default_dtype(torch.float32)
        for held, _ in hooks:
            held.clear()
        try:
            yield
        finally:
            torch.set_default_dtype(before)
            for held, content in hooks:
                held.update(content)
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002


def _called(
    module: nn.Module,
    call: ProbeCall,
    *,
    added: Tensor | float = 0.0,
    moved: bool = False,
    others: Mapping[str, Tensor] = MappingProxyType({}),
) -> Probe:
    """Call a copy alone; what it does to its inputs in place, such as adding a residual, is undone."""
    queries, keys = call.queries, call.keys
    inputs = (queries,) if keys is queries else (queries, keys)  # of which the call has views
    originals = [part.clone() for part in inputs]
    trace = AttentionTrace()
    try:
        keys.add_(added)
        for part in inputs if moved else ():
            part[-1, 0] += 1
        with quiet(), trace:
            returned = call.run(**others)
        returned = pytree.tree_map_only(Tensor, Tensor.clone, returned)
    finally:
        for part, original in zip(inputs, originals, strict=True):
            part.copy_(original)
    batch, tokens = queries.shape[:2]
    heads = tuple(one for meeting in trace.meetings for one in heads_of(meeting, batch, tokens))
    repeat, others_of = functools.partial(_called, module, call), functools.partial(_left_out, module, call)
    outputs = returned_outputs(returned, batch, tokens)
    return Probe(module, queries, keys, heads, outputs, trace, repeat=repeat, replacements=others_of)


def _left_out(
    module: nn.Module, call: ProbeCall, before: Sequence[Heads], key_heads: int
) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    """Yield the arguments that a call has left out, in the forms of the values."""
    if len(before) != 1 or before[0].value is None:
        return
    draw = torch.Generator().manual_seed(2)
    batch, heads, tokens, width = before[0].value.shape
    forms: list[Tensor] = []
    for count in dict.fromkeys((key_heads, heads)):
        other = torch.randn(1, count, tokens, width, generator=draw).expand(batch, -1, -1, -1)
        forms += [other, other.transpose(1, 2), other.transpose(1, 2).flatten(2)]
    for name in left_out(module, call.run.keywords):
        yield from ((name, form, form if form.shape == call.keys.shape else None) for form in forms)


def failed(reason: str) -> Probe:
    """Return a probe without a forward pass."""
    return Probe(None, torch.empty(0), torch.empty(0), (), [], AttentionTrace(), reason)


def brief(error: Exception) -> str:
    """Return an error's kind and the start of its message."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:100]}{'…' if len(text) > 100 else ''}"


NOT_FINITE = "its forward pass gave NaN or infinity on random inputs"


def finite(probe: Probe) -> bool:
    """Return True if all queries, keys, values and what is read are finite."""
    parts = (part for one in probe.heads for part in (one.query, one.key, one.value, *one.read))
    return all(bool(part.isfinite().all()) for part in parts if part is not None)


def returned_outputs(returned: object, batch: int, tokens: int) -> list[Float[Tensor, "batch tokens outputs"]]:
    """Return the tensors that a forward pass has returned for its tokens."""
    outputs = []
    for leaf in pytree.tree_leaves(returned):
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or leaf.numel() % (batch * tokens):
            continue
        leaf = leaf.float()
        if leaf.ndim > 4 and len(leaf) == batch and leaf[0, ..., 0].numel() == tokens:  # windows of an image
            leaf = leaf.flatten(1, -2)
        if leaf.ndim == 4 and len(leaf) == batch and leaf.shape[1] * leaf.shape[2] == tokens:
            outputs.append(leaf.flatten(1, 2))
        elif leaf.ndim == 4 and len(leaf) == batch and leaf.shape[2] * leaf.shape[3] == tokens:  # channels first
            outputs.append(leaf.flatten(2).transpose(1, 2))
        elif leaf.ndim == 3 and tuple(leaf.shape[:2]) == (batch, tokens):
            outputs.append(leaf)
        elif leaf.ndim == 3 and tuple(leaf.shape[:2]) == (tokens, batch):
            outputs.append(leaf.transpose(0, 1))
        elif leaf.ndim in (2, 3) and leaf.shape[-2] == batch * tokens:
            outputs.append(leaf.reshape(batch, tokens, -1))
    return outputs
