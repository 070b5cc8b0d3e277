"""Entries that ask what the papers do not."""
