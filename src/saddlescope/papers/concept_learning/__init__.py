"""Dynamics of concept learning and compositional generalization (Yang, Park, Lubana, Okawa, Hu, Tanaka 2024)."""

CITATION = (
    "Yang, Park, Lubana, Okawa, Hu, Tanaka: Swing-by dynamics in concept learning and compositional generalization, "
    "ICLR 2025"
)
