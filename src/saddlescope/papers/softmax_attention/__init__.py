"""Implicit regularization of gradient flow on one-layer softmax attention (Sheen, Chen, Wang, Zhou 2024)."""

CITATION = (
    "Sheen, Chen, Wang, Zhou: Implicit regularization of gradient flow on one-layer softmax attention, arXiv 2024"
)
