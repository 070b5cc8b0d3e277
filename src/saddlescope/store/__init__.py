"""Stored runs: one labelled netCDF file a run, written whole or not at all, with its provenance."""

from saddlescope.store.netcdf import COPIES, SWEEPS, find, read, write, write_bytes
from saddlescope.store.provenance import Provenance, stopwatch
from saddlescope.store.run_folder import RunFolder

__all__ = ["COPIES", "SWEEPS", "Provenance", "RunFolder", "find", "read", "stopwatch", "write", "write_bytes"]
