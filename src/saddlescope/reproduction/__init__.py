"""The frame of reproductions: entries, claims and verdicts, the context of a run, stored reproductions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
