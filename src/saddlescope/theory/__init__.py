"""Predictions of the stages in which networks learn; never sees a simulation.

Each public name of `__init__.pyi` is resolved when it is first used: one theorem loads no solver of another.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
