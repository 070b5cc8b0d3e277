"""Arguments by which a module's values are mixed with others, and whether its model passes them.

Some models mix the values of a layer with those of another one (value residuals, as in ResFormer and modded-nanogpt):
its attention has an argument for them, which a call of the module alone leaves out. So each argument that was left out
is given the form of the values. Where the values then change and still depend on the inputs, the argument mixes them,
and what a head reads is no longer its inputs times W_V. A run of the model, without memory for its weights, shows which
modules get the argument.
"""

import contextlib
import functools
import inspect
import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from saddlescope.ranks.attention.module_copy import copy_without_values

_NOT_VALUES = ("mask", "cache", "past", "bias", "position", "pos_emb", "rotary", "output_", "use_", "return_")
"""Parts of names of arguments that do not reach the values."""


def left_out(module: nn.Module, given: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a module's forward pass that a call has left out, or given as None."""
    parameters = list(inspect.signature(type(module).forward).parameters.values())[1:]
    return [
        one.name
        for one in parameters
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        and given.get(one.name, one.default) is None
        and not any(part in one.name for part in _NOT_VALUES)
    ]


def given_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of a call's arguments other than None."""
    bound = inspect.signature(type(module).forward).bind_partial(module, *args, **kwargs).arguments
    return frozenset(name for name, value in bound.items() if value is not None)


def passed_arguments(
    model: nn.Module, names: Collection[str], inputs: Collection[int]
) -> dict[str, frozenset[str]] | None:
    """Return the arguments, other than None, that a model passes to modules; None if it cannot be run.

    A copy without memory for weights is called with a few tokens: the model, or else the largest part of it that
    contains all the modules and can be called with one argument.

    Args:
        model: the model.
        names: of the modules, as in `named_modules`.
        inputs: widths to try for a model that does not take the numbers of tokens.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with torch.random.fork_rng(devices=[]), fake, torch.no_grad(), torch.device("cpu"), _silent():
        try:
            twin = copy_without_values(model)
        except Exception:
            return None
        calls: dict[str, frozenset[str]] = {}
        for name in names:
            hook = functools.partial(_remember, calls, name)
            twin.get_submodule(name).register_forward_pre_hook(hook, with_kwargs=True)
        for part in _around(twin, names):
            for given in _inputs(inputs):
                calls.clear()
                with contextlib.suppress(Exception):
                    part(given)
                    if calls.keys() == set(names):
                        return calls
    return None


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep PyTorch from logging each call that fails, with its traceback."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _remember(
    calls: dict[str, frozenset[str]], name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    calls[name] = calls.get(name, frozenset()) | given_arguments(module, args, kwargs)


def _around(model: nn.Module, names: Collection[str]) -> Iterator[nn.Module]:
    """Yield the modules with a forward pass that contain all the named ones, the outermost first."""
    paths = [name.split(".") for name in names]
    for depth in range(min(map(len, paths))):
        if len({tuple(path[:depth]) for path in paths}) > 1:
            return
        part = model.get_submodule(".".join(paths[0][:depth]))
        if type(part).forward is not nn.Module.forward:
            yield part


def _inputs(widths: Collection[int]) -> Iterator[Tensor]:
    yield torch.zeros(2, 6, dtype=torch.int64)
    for width in dict.fromkeys(widths):
        yield torch.zeros(2, 6, width)
