"""Spectra between checkpoints on disk, with bounded memory."""

from saddlescope.ranks.checkpoints.files import Checkpoint
from saddlescope.ranks.checkpoints.spectra import checkpoint_spectra

__all__ = ["Checkpoint", "checkpoint_spectra"]
