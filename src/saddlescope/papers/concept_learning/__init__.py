"""Dynamics of concept learning and compositional generalization (Yang, Park, Lubana, Okawa, Hu, Tanaka 2024)."""

CITATION = (
    "Yang, Park, Lubana, Okawa, Hu, Tanaka: Dynamics of concept learning and compositional generalization, 2024, "
    "arXiv:2410.08309"
)
