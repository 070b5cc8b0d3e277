"""Spectra between checkpoints on disk, with bounded memory."""

from saddlescope.train.checkpoints.files import Checkpoint
from saddlescope.train.checkpoints.spectra import checkpoint_spectra

__all__ = ["Checkpoint", "checkpoint_spectra"]
