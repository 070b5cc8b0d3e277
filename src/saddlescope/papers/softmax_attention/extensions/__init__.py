"""Entries that ask what the paper does not."""
