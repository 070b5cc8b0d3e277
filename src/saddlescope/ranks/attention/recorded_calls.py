"""Check of attention modules by the calls that a model makes of them on a user's inputs.

The model runs once, unchanged; the arguments of each attention module are remembered. Then each module's random copy
(see `probe`) is called with the same arguments, but for random inputs in place of the model's own.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.attention_trace import AttentionTrace
from saddlescope.ranks.attention.module_copy import random_copy
from saddlescope.ranks.attention.passed_values import differ
from saddlescope.ranks.attention.probe import (
    NOT_FINITE,
    Probe,
    brief,
    failed,
    finite,
    quiet,
    returned_outputs,
)
from saddlescope.ranks.attention.self_check import Heads, heads_of, only_changed

_SAMPLES = 4
_CACHES = ("past_key_value", "layer_past", "cache", "past_kv", "past_")


class Call(NamedTuple):
    """Arguments with which a model called a module."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@torch.no_grad()
def record_calls(model: nn.Module, modules: Mapping[str, nn.Module], inputs: Any) -> dict[str, Call]:
    """Run a model, in evaluation mode and without any effect on it, and return the first call of each module.

    Args:
        model: the model.
        modules: modules by any name.
        inputs: a tensor, a tuple of arguments, or a mapping of keyword arguments.

    Raises:
        InputError: the model fails on the inputs.
    """
    calls: dict[str, Call] = {}

    def remember(name: str) -> Any:
        return lambda module, args, kwargs: calls.setdefault(name, _without_caches(args, kwargs)) and None

    run_model(
        model,
        inputs,
        [module.register_forward_pre_hook(remember(name), with_kwargs=True) for name, module in modules.items()],
    )
    return calls


def run_model(model: nn.Module, inputs: Any, hooks: Sequence[RemovableHandle]) -> None:
    """Run a model in evaluation mode, then remove the hooks and restore modes and random states.

    Args:
        model: the model.
        inputs: a tensor, a tuple of arguments, or a mapping of keyword arguments.
        hooks: hooks of this run.

    Raises:
        InputError: the model fails on the inputs.
    """
    modes = [(module, module.training) for module in model.modules()]
    devices = {one.device for one in model.parameters() if one.device.type == "cuda"}
    try:
        model.eval()
        with torch.random.fork_rng(devices=sorted(device.index or 0 for device in devices)):
            if isinstance(inputs, Mapping):
                model(**inputs)
            else:
                model(*(inputs if isinstance(inputs, tuple) else (inputs,)))
    except Exception as error:
        raise InputError(
            f"inputs must be arguments of the model: a tensor, a tuple, or a dict of keyword arguments; got "
            f"{type(inputs).__name__}, and the model raised {brief(error)}."
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes:
            module.training = mode


def _without_caches(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """Return a call without caches of keys and values, which each call would extend."""
    kept = {name: value for name, value in kwargs.items() if name == "cache_position" or not name.startswith(_CACHES)}
    return Call(tuple(None if "Cache" in type(value).__name__ else value for value in args), kept)


def probe_call(module: nn.Module, call: Call, *, inputs: int, key_inputs: int) -> Iterator[Probe]:
    """Call a random copy of a module as its model did, on random inputs; first with one input, then with two.

    Args:
        module: the attention module; it is not changed.
        call: recorded call of it.
        inputs: width of the inputs of queries.
        key_inputs: width of the inputs of keys and values.
    """
    originals, form = pytree.tree_flatten((call.args, call.kwargs))
    leaves = [_on_host(leaf) for leaf in originals]
    at = next((k for k, leaf in enumerate(leaves) if _is_input(leaf, inputs)), None)
    if at is None:
        yield failed(f"the model calls it without an input of width {inputs}")
        return
    same = [k for k in range(len(leaves)) if originals[k] is originals[at]]
    others = [k for k, leaf in enumerate(leaves) if k > at and k not in same and _is_input(leaf, key_inputs)]
    others = [k for k in others if leaves[k].ndim <= leaves[at].ndim]  # values of former layers have heads, too
    try:
        twin = random_copy(module)
        for of_keys in [[], others] if others else [[]]:
            again = functools.partial(_run, twin, form=form, same=same, of_keys=of_keys)
            one = _together([again(leaves, seed=seed) for seed in range(_SAMPLES)])
            lengths = {part.shape[1] for part in (one.queries, one.keys)}
            if any({met.query.shape[2]} != lengths for met in one.heads):
                yield failed("its queries or keys are those of other tokens than the inputs of its call")
            else:
                mixing = functools.partial(_mixing, twin, leaves, form, same, of_keys)
                single = functools.partial(_of_single_tokens, again, leaves)
                repeat = functools.partial(_heads, again, leaves)
                seen = one._replace(mixing=mixing, of_single_tokens=single, again=repeat)
                yield seen if finite(one) else failed(NOT_FINITE)
    except Exception as error:
        yield failed(f"a copy of it could not be called ({brief(error)})")


def _on_host(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.detach().to("cpu", torch.float32 if leaf.is_floating_point() else leaf.dtype)


def _is_input(leaf: Any, width: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.ndim >= 2 and leaf.shape[-1] == width


def _run(
    twin: nn.Module,
    leaves: list[Any],
    form: Any,
    same: list[int],
    of_keys: list[int],
    seed: int,
    added: Tensor | float = 0.0,
    moved: bool = False,
) -> Probe:
    """Call with random inputs, and return the part of the first sample.

    `added` is added to the inputs of keys and values, and 1 to the first token if `moved`.
    """
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(leaves[same[0]].shape, generator=draw) + (0.0 if of_keys else added)
    y = torch.randn(leaves[of_keys[0]].shape, generator=draw) + added if of_keys else x
    for part in (x, y)[: 2 if of_keys else 1] if moved else ():
        part.view(-1, part.shape[-1])[0] += 1
    given = list(leaves)
    for k in same:
        given[k] = x
    for k in of_keys:
        given[k] = y if given[k].shape == y.shape else given[k]
    args, kwargs = pytree.tree_unflatten(given, form)
    trace = AttentionTrace()
    with quiet(), trace:
        returned = twin(*args, **kwargs)
    batch, tokens = (1, len(x)) if x.ndim == 2 else (len(x), x[0, ..., 0].numel())
    met = (one for meeting in trace.meetings for one in heads_of(meeting, batch, tokens))
    first = tuple(one.first_sample for one in met)
    outputs = [output[:1] for output in returned_outputs(returned, batch, tokens)]
    flat_x, flat_y = (part.reshape(batch, -1, part.shape[-1])[:1, -tokens:] for part in (x, y))  # as `heads_of`
    return Probe(twin, flat_x, flat_y, first, outputs, trace, passed=True)


def _heads(call: Callable[..., Probe], leaves: list[Any]) -> tuple[Heads, ...]:
    return call(leaves, seed=0).heads


def _of_single_tokens(call: Callable[..., Probe], leaves: list[Any]) -> bool:
    """Return True if a change of one token of the inputs changes queries, keys and values of that token alone."""
    before, after = (call(leaves, seed=0, moved=moved).heads for moved in (False, True))
    return only_changed(before, after, sample=0, token=0)


def _mixing(
    twin: nn.Module, leaves: list[Any], form: Any, same: list[int], of_keys: list[int], _: int
) -> tuple[str, ...]:
    """Return the arguments that the model has passed, and by which values are mixed with others.

    Each tensor of the size of the values is replaced by a random one. Values may change as if it were added to the
    inputs, as positions are.
    """
    args, kwargs = pytree.tree_unflatten(leaves, form)
    bound = inspect.signature(type(twin).forward).bind_partial(twin, *args, **kwargs).arguments
    call = functools.partial(_run, twin, form=form, same=same, of_keys=of_keys, seed=0)
    before = call(leaves)
    sizes = {one.value.numel() for one in before.heads if one.value is not None}
    names = []
    for name, given in bound.items():
        at = next((k for k, leaf in enumerate(leaves) if leaf is given), None)
        if at is None or at in (*same, *of_keys) or not isinstance(given, Tensor) or not given.is_floating_point():
            continue
        if given.ndim < 3 or not given.numel() or not any(size % given[:1].numel() == 0 for size in sizes):
            continue
        other = torch.randn(given.shape, generator=torch.Generator().manual_seed(2))
        after = call([*leaves[:at], other, *leaves[at + 1 :]])
        if not _other_values(before, after):
            continue
        if given.shape == leaves[(of_keys or same)[0]].shape and not _other_values(
            call(leaves, added=other - given), after
        ):
            continue
        names.append(name)
    return tuple(names)


def _other_values(one: Probe, other: Probe) -> bool:
    pairs = ((a.value, b.value) for a, b in zip(one.heads, other.heads, strict=True))
    return any(a is not None and b is not None and differ(a, b) for a, b in pairs)


def _together(runs: Sequence[Probe]) -> Probe:
    """Join runs along the samples."""

    def together(parts: Sequence[Tensor | None]) -> Tensor | None:
        held = [part for part in parts if part is not None]
        return torch.cat(held) if len(held) == len(parts) else None

    joined = []
    for same in zip(*(run.heads for run in runs), strict=True):
        query, key, value, *softmax = (
            together([getattr(one, name) for one in same]) for name in Heads._fields if name != "read"
        )
        assert query is not None
        assert key is not None
        read = tuple(torch.cat(parts) for parts in zip(*(one.read for one in same), strict=True))
        joined.append(Heads(query, key, value, read, *softmax))
    return runs[0]._replace(
        queries=torch.cat([run.queries for run in runs]),
        keys=torch.cat([run.keys for run in runs]),
        heads=tuple(joined),
        outputs=[torch.cat(parts) for parts in zip(*(run.outputs for run in runs), strict=True)],
    )
