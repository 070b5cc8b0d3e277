"""Implicit regularization of gradient flow on one-layer softmax attention (Sheen, Chen, Wang, Zhou 2024)."""

CITATION = (
    "Sheen, Chen, Wang, Zhou: Implicit regularization of gradient flow on one-layer softmax attention, 2024, "
    "arXiv:2403.08699"
)
