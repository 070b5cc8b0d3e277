"""The rank of what any PyTorch model learned: tracker, checkpoints, LoRA, units. Needs the extra `torch`."""

from saddlescope._shared.errors import MissingExtraError

with MissingExtraError.named("saddlescope.ranks"):
    import torch as _torch  # noqa: F401

from saddlescope.ranks.attention.coverage import AttentionCoverage
from saddlescope.ranks.attention.head_modules import HeadModules
from saddlescope.ranks.attention.layouts import (
    AttentionLayout,
    Fused,
    HeadTensors,
    Interleaved,
    KeyValue,
    Latent,
    Separate,
    TorchMultihead,
)
from saddlescope.ranks.checkpoints import checkpoint_spectra
from saddlescope.ranks.lora import allocate_ranks, extract_lora, ranks_for_energy
from saddlescope.ranks.tracker.initial_weights import InMemory, OnDisk
from saddlescope.ranks.tracker.loggers import RankScalars, to_tensorboard, to_wandb
from saddlescope.ranks.tracker.rank_tracker import RankTracker
from saddlescope.ranks.tracker.recorders import Angles, Increments, Orders, Recorder, Values, Vectors
from saddlescope.ranks.tracker.records import RankRecords, Spectra, Updates, spectra_dataset
from saddlescope.ranks.tracker.schedules import AtSteps, Every, Geometric, Schedule
from saddlescope.ranks.units.active_units import ActiveUnits, active_units
from saddlescope.ranks.units.unit_groups import UnitGroup, units_of
from saddlescope.ranks.units.unit_tracker import UnitTracker

__all__ = [
    "ActiveUnits",
    "Angles",
    "AtSteps",
    "AttentionCoverage",
    "AttentionLayout",
    "Every",
    "Fused",
    "Geometric",
    "HeadModules",
    "HeadTensors",
    "InMemory",
    "Increments",
    "Interleaved",
    "KeyValue",
    "Latent",
    "OnDisk",
    "Orders",
    "RankRecords",
    "RankScalars",
    "RankTracker",
    "Recorder",
    "Schedule",
    "Separate",
    "Spectra",
    "TorchMultihead",
    "UnitGroup",
    "UnitTracker",
    "Updates",
    "Values",
    "Vectors",
    "active_units",
    "allocate_ranks",
    "checkpoint_spectra",
    "extract_lora",
    "ranks_for_energy",
    "spectra_dataset",
    "to_tensorboard",
    "to_wandb",
    "units_of",
]
