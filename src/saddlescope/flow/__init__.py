"""Gradient flow and gradient descent: any loss on any parameters, at any initial scale. Knows no model.

Each public name of `__init__.pyi` is resolved when it is first used: one kind of flow loads no solver of another.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
