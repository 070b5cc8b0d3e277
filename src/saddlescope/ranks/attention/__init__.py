"""Attention of any PyTorch model: layouts of its weights, and a check of each against the module's own forward pass."""
