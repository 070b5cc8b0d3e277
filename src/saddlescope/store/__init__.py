"""Stored runs: one labelled netCDF file per run, written atomically, with its provenance."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
