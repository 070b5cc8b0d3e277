"""Stored runs: one labelled netCDF file a run, written whole or not at all, with its provenance."""

from saddlescope.store.file import COPIES, SWEEPS, find, read, write, write_bytes
from saddlescope.store.place import Place
from saddlescope.store.provenance import Provenance, stopwatch

__all__ = ["COPIES", "SWEEPS", "Place", "Provenance", "find", "read", "stopwatch", "write", "write_bytes"]
