"""Single weight matrices chosen by name: those of the MLPs, of embeddings, or any other of a model.

A pattern is matched against the whole name of a parameter, such as "blocks.0.expand.weight", and against the name of
its module, "blocks.0.expand"; `*` stands for anything, dots included. Names are those of the model itself: what
`torch.compile`, DistributedDataParallel and checkpoint wrappers put into them is left out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from torch import nn

from saddlescope._shared.errors import InputError

Choice: TypeAlias = str | Sequence[str] | Callable[[str, nn.Parameter], bool]

# Modules that wrap another one, by the name under which they keep it.
_WRAPPED = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


def plain_name(name: str) -> str:
    """The name of a module or parameter without what wrappers put into it."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPED)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside of `torch.compile` and DistributedDataParallel."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def chosen_matrices(model: nn.Module, choice: Choice) -> dict[str, nn.Parameter]:
    """The matrices chosen, in the model's own order, by name; one that has several names under its first.

    Args:
        model: the model.
        choice: one pattern or several, or a function of name and parameter. Only parameters with two axes and
            floating-point entries are asked about.

    Raises:
        InputError: a pattern, or the function, chooses nothing, or the choice is of another kind.
    """
    if not callable(choice) and not (isinstance(choice, Iterable) and all(isinstance(one, str) for one in choice)):
        raise InputError(f"matrices must be a pattern, several, or a function of name and parameter; got {choice!r}.")
    first: dict[int, str] = {}
    found: dict[str, nn.Parameter] = {}
    patterns = (choice,) if isinstance(choice, str) else () if callable(choice) else tuple(choice)
    used: set[str] = set()
    named = list(_named_matrices(unwrapped(model)))
    for name, parameter in named:
        name_of_all = first.setdefault(id(parameter), name)
        if callable(choice):
            chosen = choice(name, parameter)
        else:
            matching = {pattern for pattern in patterns if matches(name, pattern)}
            used |= matching
            chosen = bool(matching)
        if chosen:
            found[name_of_all] = parameter
    missing = [pattern for pattern in patterns if pattern not in used]
    if missing or not found:
        names = [name for name, _ in named]
        some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise InputError(
            f"matrices must choose weight matrices of the model; got {missing[0] if missing else choice!r}, which "
            f"matches none. Names are {some or 'none: the model has no matrix'}; * stands for any part of a name."
        )
    return dict(sorted(found.items(), key=lambda item: list(first.values()).index(item[0])))


def _named_matrices(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.ndim == 2 and parameter.is_floating_point():
            yield plain_name(name), parameter


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern is one of this parameter, or of its module."""
    return fnmatchcase(name, pattern) or fnmatchcase(name.removesuffix(".weight"), pattern)
