"""Models in JAX: networks with their losses, and the data laws of the papers' toy tasks.

Each public name of `__init__.pyi` is resolved when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
