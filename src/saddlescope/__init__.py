"""saddlescope: in which stages does a neural network learn?

Networks trained from small weights learn in a staircase: long plateaus near saddles, short drops between them.
The package predicts that staircase (`theory`), simulates it (`flow`), measures it in real networks (`measure`,
`ranks`), and compares the three (`papers`, and `studies` on your data).

Importing this package loads nothing heavy: each public name of `__init__.pyi` is resolved when it is first used.
"""

from typing import Any

import lazy_loader

from saddlescope._shared.compiled_code import keep_compiled_code as _keep_compiled_code

_keep_compiled_code()

_public_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("saddlescope")
    from saddlescope._shared.errors import MissingExtraError

    with MissingExtraError.named(f"saddlescope.{name}"):
        return _public_name(name)
