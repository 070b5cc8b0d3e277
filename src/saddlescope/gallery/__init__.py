"""The gallery: static pages of stored runs and spectra, with pictures, claims and verdicts. Nothing is run for it."""

from saddlescope.gallery.site import build
from saddlescope.gallery.spectra_page import build_spectra

__all__ = ["build", "build_spectra"]
