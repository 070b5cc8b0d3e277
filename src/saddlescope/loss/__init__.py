"""Losses as the flows call them: compiled, batched, stacked, in minibatches, with a limit of stability."""
