"""Gradient flow of any loss of parameters or of products u * v, one at a time or batched, at any initial scale."""
