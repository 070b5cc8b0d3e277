"""Selection of single weight matrices by name: those of the MLPs, of embeddings, or any other of a model.

A pattern is matched against the full name of a parameter, such as "blocks.0.expand.weight", and against the name of its
module, "blocks.0.expand"; `*` matches anything, dots included. Names are those of the model itself, without the parts
that `torch.compile`, DistributedDataParallel and checkpoint wrappers add.

The experts of a mixture are matrices of one parameter with three axes, (experts, m, n), as in Transformers 5. Each is a
matrix of its own, "mlp.experts.down_proj[3]"; a pattern without an index matches all experts.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks.module_names import canonical_name, first_few, unwrap_model

MatrixSelection: TypeAlias = str | Sequence[str] | Callable[[str, nn.Parameter], bool]


_EXPERT = re.compile(r"(?P<parameter>.+)\[(?P<expert>\d+)\]")


def select_matrices(model: nn.Module, selection: MatrixSelection, *, experts: bool = True) -> dict[str, nn.Parameter]:
    """Return the parameters of the selected matrices by name, in the model's own order.

    A shared matrix has its first name. That of an expert is of the parameter of all experts, and ends in its index; see
    `parameter_name` and `matrix_of`.

    Args:
        model: the model.
        selection: one pattern or several, or a function of name and parameter. Only parameters with floating-point
            entries, some at least, and two axes are considered, or three if their name or module is called expert.
        experts: False leaves the experts of mixtures out.

    Raises:
        InputError: a pattern, or the function, selects nothing, or the selection is of another kind.
    """
    if not callable(selection) and not (
        isinstance(selection, Iterable) and all(isinstance(one, str) for one in selection)
    ):
        raise InputError(
            f"matrices must be a pattern, several, or a function of name and parameter; got {selection!r}."
        )
    first: dict[tuple[int, str], str] = {}
    found: dict[str, nn.Parameter] = {}
    patterns = (selection,) if isinstance(selection, str) else () if callable(selection) else tuple(selection)
    used: set[str] = set()
    named = [(name, one) for name, one in _named_matrices(unwrap_model(model)) if experts or one.ndim == 2]
    for name, parameter in named:
        first_name = first.setdefault((id(parameter), name.removeprefix(parameter_name(name))), name)
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
        some = first_few((name for name, _ in named), 5)
        raise InputError(
            f"matrices must select weight matrices of the model; got {missing[0] if missing else selection!r}, which "
            f"matches none. Names are {some or 'none: the model has no matrix'}; * matches any part of a name."
        )
    order = {name: at for at, name in enumerate(first.values())}
    return dict(sorted(found.items(), key=lambda item: order[item[0]]))


def parameter_name(name: str) -> str:
    """Return the name of the parameter that holds a selected matrix."""
    expert = _EXPERT.fullmatch(name)
    return name if expert is None else expert["parameter"]


def matrix_of(name: str, parameter: Tensor) -> Tensor:
    """Return the selected matrix of this name in its parameter: all of it, or one expert."""
    expert = _EXPERT.fullmatch(name)
    return parameter if expert is None or parameter.ndim == 2 else parameter[int(expert["expert"])]


def _named_matrices(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not (parameter.is_floating_point() and parameter.numel()):
            continue
        if parameter.ndim == 2:
            yield canonical_name(name), parameter
        elif parameter.ndim == 3 and _holds_experts(name, modules[name.rpartition(".")[0]]):
            yield from ((f"{canonical_name(name)}[{expert}]", parameter) for expert in range(len(parameter)))


def _holds_experts(name: str, module: nn.Module) -> bool:
    return "expert" in name.lower() or "expert" in type(module).__name__.lower()


def matches(name: str, pattern: str) -> bool:
    """Return True if the pattern matches this parameter, or its module; the index of an expert may be left out."""
    expert, wanted = _EXPERT.fullmatch(name), _EXPERT.fullmatch(pattern)
    if expert is not None:
        if wanted is not None and wanted["expert"] == expert["expert"]:
            pattern = wanted["parameter"]
        name = expert["parameter"]
    return fnmatchcase(name, pattern) or fnmatchcase(name.removesuffix(".weight"), pattern)
