"""Check that every public name is in the reference; the build warns otherwise, and fails, as warnings are errors.

Public is what the packages of saddlescope name in `__all__`, all but the entries of papers, which are content. A name
counts as documented if the reference has its object, under this or another name: `saddlescope.stable_rank` is
`saddlescope.measure.stable_rank`.
"""

import pkgutil
from collections.abc import Iterable
from importlib import import_module
from typing import Any


def public_packages() -> tuple[str, ...]:
    """Return saddlescope itself and every package below it that has an `__all__`, without the entries of papers."""
    import saddlescope

    below = pkgutil.walk_packages(saddlescope.__path__, "saddlescope.", onerror=_stop)
    return (
        "saddlescope",
        *(
            module.name
            for module in below
            if module.ispkg
            and not module.name.startswith("saddlescope.papers.")
            and hasattr(import_module(module.name), "__all__")
        ),
    )


def public_names() -> tuple[str, ...]:
    """Return every name of every `__all__`, with its package in front."""
    return tuple(f"{package}.{name}" for package in public_packages() for name in import_module(package).__all__)


def absent(documented: Iterable[str]) -> list[str]:
    """Return the public names that are not among the documented ones under any name."""
    objects = [_resolved(name) for name in documented if name.startswith("saddlescope.")]
    there = {id(found) for found in objects if found is not None}
    known = set(documented)
    return [name for name in public_names() if name not in known and id(_resolved(name)) not in there]


def _resolved(name: str) -> Any:
    """Return the object of a dotted name, or None where it is no attribute, such as a field of a dataclass."""
    words = name.split(".")
    found: Any = import_module(words[0])
    for k, word in enumerate(words[1:], start=2):
        try:
            found = getattr(found, word)
        except AttributeError:
            try:
                found = import_module(".".join(words[:k]))
            except ModuleNotFoundError:
                return None
    return found


def _stop(name: str) -> None:
    raise ImportError(f"{name} cannot be imported: the documentation needs all extras.")


def _check(app: Any, env: Any) -> None:
    from sphinx.util.logging import getLogger

    documented = env.get_domain("py").objects
    for name in absent(documented):
        getLogger(__name__).warning("%s is public and not in the reference", name)


def setup(app: Any) -> dict[str, bool]:
    """Register the check, for when all pages have been read."""
    app.connect("env-check-consistency", _check)
    return {"parallel_read_safe": True}
