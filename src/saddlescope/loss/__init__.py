"""Losses as models, theory and flows take them: bare functions wrapped once, batches, minibatches, limits of stability.

Each public name of `__init__.pyi` is resolved when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
