"""Shared layer, which every part may import: errors, argument validation, atomic files, progress and reprs."""
