"""Low-rank adapters (LoRA) from spectra: ranks of each matrix, and the adapter between two checkpoints."""

from saddlescope.ranks.lora.extract import ExtractedLayer, Extraction, extract_lora
from saddlescope.ranks.lora.logits import LogitsError, logits_error
from saddlescope.ranks.lora.ranks import allocate_ranks, matrix_spectra, ranks_for_energy
from saddlescope.ranks.lora.trainable import with_adapters

__all__ = [
    "ExtractedLayer",
    "Extraction",
    "LogitsError",
    "allocate_ranks",
    "extract_lora",
    "logits_error",
    "matrix_spectra",
    "ranks_for_energy",
    "with_adapters",
]
