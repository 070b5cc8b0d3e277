"""What every part of the package may import: errors, argument validation, files, progress and reprs."""
