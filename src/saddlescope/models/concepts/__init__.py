"""The structured identity mapping task and the networks that learn it."""
