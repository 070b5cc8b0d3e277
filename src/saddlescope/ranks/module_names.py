"""Names of modules and parameters: without the parts that wrappers add, and the first few of many."""

from collections.abc import Iterable

from torch import nn

# Attributes under which wrappers hold the module that they wrap.
_WRAPPED = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


def canonical_name(name: str) -> str:
    """Return the name of a module or parameter without the parts that wrappers add."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPED)


def first_few(names: Iterable[str], most: int = 3) -> str:
    """Return the first few of many names, for a message."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def around(name: str) -> list[str]:
    """Return the names of a module and of all modules around it, from "", the model, on."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(len(parts) + 1)]


def unwrap_model(model: nn.Module) -> nn.Module:
    """Return the model inside `torch.compile` and DistributedDataParallel."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner
