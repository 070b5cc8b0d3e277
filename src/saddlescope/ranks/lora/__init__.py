"""Low-rank adapters (LoRA): ranks from spectra, adapters between two checkpoints, and merges of adapters."""

from saddlescope.ranks.lora.applied import WeightsError, weights_error
from saddlescope.ranks.lora.extract import ExtractedLayer, Extraction, extract_lora
from saddlescope.ranks.lora.logits import LogitsError, logits_error
from saddlescope.ranks.lora.merge import merge_lora
from saddlescope.ranks.lora.merged_base import MergedBase, merge_into_base
from saddlescope.ranks.lora.ranks import allocate_ranks, matrix_spectra, ranks_for_energy
from saddlescope.ranks.lora.trainable import with_adapters

__all__ = [
    "ExtractedLayer",
    "Extraction",
    "LogitsError",
    "MergedBase",
    "WeightsError",
    "allocate_ranks",
    "extract_lora",
    "logits_error",
    "matrix_spectra",
    "merge_into_base",
    "merge_lora",
    "ranks_for_energy",
    "weights_error",
    "with_adapters",
]
