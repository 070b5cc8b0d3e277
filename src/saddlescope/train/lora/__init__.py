"""Low-rank adapters (LoRA) from spectra: ranks of each matrix, and the adapter between two checkpoints."""

from saddlescope.train.lora.extract import ExtractedLayer, Extraction, extract_lora
from saddlescope.train.lora.logits import LogitsError, logits_error
from saddlescope.train.lora.ranks import allocate_ranks, matrix_spectra, ranks_for_energy
from saddlescope.train.lora.trainable import with_adapters

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
