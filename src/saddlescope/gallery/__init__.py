"""The gallery: static pages of stored runs and spectra, with pictures, claims and verdicts. Nothing is simulated."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
