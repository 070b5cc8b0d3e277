"""Make the helper modules of this folder importable in its subfolders."""
