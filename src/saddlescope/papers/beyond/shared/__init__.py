"""Code of several entries of this folder."""
