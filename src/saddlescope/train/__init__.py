"""Training in PyTorch, and a tracker for any PyTorch model. Needs the extra `train`."""

from saddlescope._shared.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise MissingExtraError("saddlescope.train", "PyTorch", "train") from error

from saddlescope.train.architectures.vit import ViT, ViTConfig
from saddlescope.train.attention.coverage import AttentionCoverage
from saddlescope.train.attention.layouts import (
    AttentionLayout,
    Fused,
    HeadTensors,
    Interleaved,
    KeyValue,
    Latent,
    Separate,
    TorchMultihead,
)
from saddlescope.train.checkpoints import checkpoint_spectra
from saddlescope.train.configuration import SGD, Adam, TrainConfig
from saddlescope.train.data import ImageData, load
from saddlescope.train.image_training import History, fit
from saddlescope.train.lora import allocate_ranks, extract_lora, ranks_for_energy
from saddlescope.train.tracker.initial_weights import InMemory, OnDisk
from saddlescope.train.tracker.rank_tracker import RankTracker
from saddlescope.train.tracker.records import RankRecords, Spectra, Updates, spectra_dataset
from saddlescope.train.tracker.scalars import RankScalars, to_tensorboard, to_wandb
from saddlescope.train.tracker.schedules import AtSteps, Every, Geometric, Schedule
from saddlescope.train.units.active_units import ActiveUnits, active_units
from saddlescope.train.units.unit_groups import UnitGroup, units_of
from saddlescope.train.units.unit_tracker import UnitTracker

__all__ = [
    "SGD",
    "ActiveUnits",
    "Adam",
    "AtSteps",
    "AttentionCoverage",
    "AttentionLayout",
    "Every",
    "Fused",
    "Geometric",
    "HeadTensors",
    "History",
    "ImageData",
    "InMemory",
    "Interleaved",
    "KeyValue",
    "Latent",
    "OnDisk",
    "RankRecords",
    "RankScalars",
    "RankTracker",
    "Schedule",
    "Separate",
    "Spectra",
    "TorchMultihead",
    "TrainConfig",
    "UnitGroup",
    "UnitTracker",
    "Updates",
    "ViT",
    "ViTConfig",
    "active_units",
    "allocate_ranks",
    "checkpoint_spectra",
    "extract_lora",
    "fit",
    "load",
    "ranks_for_energy",
    "spectra_dataset",
    "to_tensorboard",
    "to_wandb",
    "units_of",
]
