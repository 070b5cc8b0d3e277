"""Code that several entries of this paper share."""
