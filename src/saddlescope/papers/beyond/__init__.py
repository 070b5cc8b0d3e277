"""Stages across architectures: networks that are sums of units, and escape from the origin in deep networks.

Kunin et al. (2025, arXiv 2506.06489); Zhang, Saxe and Latham (2026, arXiv 2512.20607); Rawal and DeWeese (2026, arXiv
2605.01288).
"""

CITATION = (
    "Kunin, Marchetti, Chen, Karkada, Simon, DeWeese, Ganguli, Miolane: Alternating gradient flows: a theory of "
    "feature learning in two-layer neural networks, NeurIPS 2025, arXiv:2506.06489; "
    "Zhang, Saxe, Latham: Saddle-to-saddle dynamics explains a simplicity bias across neural network architectures, "
    "ICLR 2026, arXiv:2512.20607; "
    "Rawal, DeWeese: A theory of saddle escape in deep nonlinear networks, 2026, arXiv:2605.01288"
)
