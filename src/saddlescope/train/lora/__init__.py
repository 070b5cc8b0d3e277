"""Low-rank adapters (LoRA) from spectra: which rank each matrix needs, and the adapter between two checkpoints."""

from saddlescope.train.lora.extract import CutLayer, Extraction, extract_lora
from saddlescope.train.lora.logits import LogitsError, logits_error
from saddlescope.train.lora.ranks import allocate_ranks, matrix_spectra, ranks_for_energy
from saddlescope.train.lora.trainable import with_adapters

__all__ = [
    "CutLayer",
    "Extraction",
    "LogitsError",
    "allocate_ranks",
    "extract_lora",
    "logits_error",
    "matrix_spectra",
    "ranks_for_energy",
    "with_adapters",
]
