"""The gallery: a static site of all stored runs, with their pictures, claims and verdicts. Nothing is run for it."""

from saddlescope.gallery.site import build

__all__ = ["build"]
