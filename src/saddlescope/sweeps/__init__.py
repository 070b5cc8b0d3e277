"""Sweeps: one entry at many points of its parameters, over processes or machines, with one labelled data set."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
