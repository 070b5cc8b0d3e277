"""Spectra between checkpoints on disk, with bounded memory."""

from saddlescope.ranks.checkpoints.files import Checkpoint
from saddlescope.ranks.checkpoints.spectra import checkpoint_spectra
from saddlescope.ranks.tracker.recorders import Angles as Angles
from saddlescope.ranks.tracker.recorders import Values as Values

__all__ = ["Checkpoint", "checkpoint_spectra"]
