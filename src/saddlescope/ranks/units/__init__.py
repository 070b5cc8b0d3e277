"""Units of PyTorch models, and how many distinct ones are active."""
