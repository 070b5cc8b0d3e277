"""Attention heads and transformers with diagonal or full weights, and their teacher tasks."""
