"""Selection of single weight matrices by name: those of the MLPs, of embeddings, or any other of a model.

A pattern is matched against the full name of a parameter, such as "blocks.0.expand.weight", and against the name of its
module, "blocks.0.expand"; `*` matches anything, dots included. Names are those of the model itself, without the parts
that `torch.compile`, DistributedDataParallel and checkpoint wrappers add.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.train.module_names import canonical_name, unwrap_model

MatrixSelection: TypeAlias = str | Sequence[str] | Callable[[str, nn.Parameter], bool]


def select_matrices(model: nn.Module, selection: MatrixSelection) -> dict[str, nn.Parameter]:
    """Return the selected matrices by name, in the model's own order; a shared matrix has its first name.

    Args:
        model: the model.
        selection: one pattern or several, or a function of name and parameter. Only parameters with two axes and
            floating-point entries are considered.

    Raises:
        InputError: a pattern, or the function, selects nothing, or the selection is of another kind.
    """
    if not callable(selection) and not (
        isinstance(selection, Iterable) and all(isinstance(one, str) for one in selection)
    ):
        raise InputError(
            f"matrices must be a pattern, several, or a function of name and parameter; got {selection!r}."
        )
    first: dict[int, str] = {}
    found: dict[str, nn.Parameter] = {}
    patterns = (selection,) if isinstance(selection, str) else () if callable(selection) else tuple(selection)
    used: set[str] = set()
    named = list(_named_matrices(unwrap_model(model)))
    for name, parameter in named:
        first_name = first.setdefault(id(parameter), name)
        if callable(selection):
            selected = selection(name, parameter)
        else:
            matching = {pattern for pattern in patterns if matches(name, pattern)}
            used |= matching
            selected = bool(matching)
        if selected:
            found[first_name] = parameter
    missing = [pattern for pattern in patterns if pattern not in used]
    if missing or not found:
        names = [name for name, _ in named]
        some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise InputError(
            f"matrices must select weight matrices of the model; got {missing[0] if missing else selection!r}, which "
            f"matches none. Names are {some or 'none: the model has no matrix'}; * matches any part of a name."
        )
    return dict(sorted(found.items(), key=lambda item: list(first.values()).index(item[0])))


def _named_matrices(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.ndim == 2 and parameter.is_floating_point():
            yield canonical_name(name), parameter


def matches(name: str, pattern: str) -> bool:
    """Return True if the pattern matches this parameter, or its module."""
    return fnmatchcase(name, pattern) or fnmatchcase(name.removesuffix(".weight"), pattern)
