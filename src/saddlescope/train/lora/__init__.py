"""Low-rank adapters from spectra: which rank each matrix needs."""

from saddlescope.train.lora.ranks import allocate_ranks, matrix_spectra, ranks_for_energy

__all__ = ["allocate_ranks", "matrix_spectra", "ranks_for_energy"]
