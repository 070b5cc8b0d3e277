"""Check of attention modules by the calls that a model makes of them on a user's inputs.

The model runs once, unchanged; the arguments of each attention module are remembered. Then each module's random copy
(see `probe`) is called with the same arguments, but for random inputs in place of the model's own.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.attention_trace import AttentionTrace
from saddlescope.ranks.attention.module_copy import random_copy
from saddlescope.ranks.attention.probe import NOT_FINITE, Probe, brief, failed, finite, quiet, returned_outputs
from saddlescope.ranks.attention.self_check import Heads, heads_of, joined_heads

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
    """Run a model in evaluation mode, then remove the hooks and restore modes, buffers and random states.

    Args:
        model: the model.
        inputs: a tensor, a tuple of arguments, or a mapping of keyword arguments.
        hooks: hooks of this run.

    Raises:
        InputError: the model fails on the inputs, or they are empty.
    """
    modes = [(module, module.training) for module in model.modules()]
    buffers = [
        (module._buffers, name, one, one.clone())
        for module in model.modules()
        for name, one in module._buffers.items()
        if one is not None
    ]
    devices = {one.device for one in model.parameters() if one.device.type == "cuda"}
    try:
        if any(isinstance(leaf, Tensor) and not leaf.numel() for leaf in pytree.tree_leaves(inputs)):
            raise InputError("inputs must hold one sample or more; got an empty tensor.")
        model.eval()
        with torch.random.fork_rng(devices=sorted(device.index or 0 for device in devices)):
            if isinstance(inputs, Mapping):
                model(**inputs)
            else:
                model(*(inputs if isinstance(inputs, tuple) else (inputs,)))
    except InputError:
        raise
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
        for held, name, one, then in buffers:
            held[name] = one.copy_(then)


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
            recorded = _Recorded(twin, leaves, form, same, of_keys)
            one = _together([recorded.called(seed=seed) for seed in range(_SAMPLES)])
            lengths = {part.shape[1] for part in (one.queries, one.keys)}
            if any({met.query.shape[2]} != lengths for met in one.heads):
                yield failed("its queries or keys are those of other tokens than the inputs of its call")
            else:
                yield one if finite(one) else failed(NOT_FINITE)
    except Exception as error:
        yield failed(f"a copy of it could not be called ({brief(error)})")


def _on_host(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.detach().to("cpu", torch.float32 if leaf.is_floating_point() else leaf.dtype)


def _is_input(leaf: Any, width: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.ndim >= 2 and leaf.shape[-1] == width


class _Recorded(NamedTuple):
    """Call of a copy with the arguments that the model gave, but for random inputs.

    Attributes:
        module: the copy.
        leaves, form: the arguments, by `tree_flatten`.
        same: places of the inputs among the leaves.
        of_keys: places of the inputs of keys and values, if they are others.
    """

    module: nn.Module
    leaves: list[Any]
    form: Any
    same: list[int]
    of_keys: list[int]

    def called(
        self,
        *,
        added: Tensor | float = 0.0,
        moved: bool = False,
        others: Mapping[str, Tensor] = MappingProxyType({}),
        seed: int = 0,
    ) -> Probe:
        """Call it, and return the part of the first sample."""
        leaves, same, of_keys = self.leaves, self.same, self.of_keys
        draw = torch.Generator().manual_seed(seed)
        x = torch.randn(leaves[same[0]].shape, generator=draw) + (0.0 if of_keys else added)
        y = torch.randn(leaves[of_keys[0]].shape, generator=draw) + added if of_keys else x
        for part in (x, y)[: 2 if of_keys else 1] if moved else ():
            part.view(-1, part.shape[-1])[0] += 1
        given = dict(enumerate(leaves)) | {at: others[name] for name, at in self._places if name in others}
        own_x, own_y = x.clone(), y.clone()  # which the module may change in place
        own_y = own_y if of_keys else own_x
        given |= dict.fromkeys(same, own_x) | {k: own_y for k in of_keys if leaves[k].shape == y.shape}
        args, kwargs = pytree.tree_unflatten(given.values(), self.form)
        trace = AttentionTrace()
        with quiet(), trace:
            returned = self.module(*args, **kwargs)
        batch, tokens = (1, len(x)) if x.ndim == 2 else (len(x), x[0, ..., 0].numel())
        met = (one for meeting in trace.meetings for one in heads_of(meeting, batch, tokens))
        first = tuple(one.first_sample for one in met)
        outputs = [output[:1] for output in returned_outputs(returned, batch, tokens)]
        flat_x, flat_y = (part.reshape(batch, -1, part.shape[-1])[:1, -tokens:] for part in (x, y))  # as `heads_of`
        return Probe(self.module, flat_x, flat_y, first, outputs, trace, "", self.called, self.replacements, True)

    @property
    def _places(self) -> list[tuple[str, int]]:
        """Names of arguments with their places among the leaves."""
        args, kwargs = pytree.tree_unflatten(self.leaves, self.form)
        bound = inspect.signature(type(self.module).forward).bind_partial(self.module, *args, **kwargs).arguments
        numbers = {id(leaf): at for at, leaf in reversed([*enumerate(self.leaves)])}
        return [(name, numbers[id(given)]) for name, given in bound.items() if id(given) in numbers]

    def replacements(self, before: Sequence[Heads], _: int) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """Yield the tensors of the size of the values that the model has passed."""
        sizes = {one.value.numel() for one in before if one.value is not None}
        inputs = self.leaves[(self.of_keys or self.same)[0]]
        for name, at in self._places:
            given = self.leaves[at]
            if at in (*self.same, *self.of_keys) or not isinstance(given, Tensor) or not given.is_floating_point():
                continue
            if given.ndim < 3 or not given.numel() or not any(size % given[:1].numel() == 0 for size in sizes):
                continue
            other = torch.randn(given.shape, generator=torch.Generator().manual_seed(2))
            yield name, other, other - given if given.shape == inputs.shape else None


def _together(runs: Sequence[Probe]) -> Probe:
    """Join runs along the samples."""
    heads = [joined_heads(same, 0) for same in zip(*(run.heads for run in runs), strict=True)]
    joined = tuple(one for one in heads if one is not None)
    assert len(joined) == len(heads)
    return runs[0]._replace(
        queries=torch.cat([run.queries for run in runs]),
        keys=torch.cat([run.keys for run in runs]),
        heads=joined,
        outputs=[torch.cat(parts) for parts in zip(*(run.outputs for run in runs), strict=True)],
    )
