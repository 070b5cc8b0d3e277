"""Saddle-to-saddle dynamics in deep ReLU networks (Bantzis, Simon, Jacot 2025)."""

CITATION = (
    "Bantzis, Simon, Jacot: Saddle-to-saddle dynamics in deep ReLU networks: low-rank bias in the first saddle escape, "
    "NeurIPS 2025, arXiv:2505.21722"
)
