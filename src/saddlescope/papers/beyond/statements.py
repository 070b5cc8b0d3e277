"""The statements of the three abstracts, and the claims about them; no errata are known."""

from saddlescope.reproduction.paper import Erratum, Statement

KUNIN = "Kunin et al."
ZHANG = "Zhang et al."
RAWAL = "Rawal, DeWeese"

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        KUNIN,
        "AGF quantifies the order, timing, and magnitude of the drops of the loss",
        "linear-networks/slope",
        "linear-networks/levels",
        "linear-attention/times",
        "linear-attention/levels",
        "modular-addition/features",
    ),
    Statement(
        KUNIN, "In fully connected linear networks the learned features are singular modes", "linear-networks/modes"
    ),
    Statement(
        KUNIN,
        "In attention-only linear transformers the learned features are principal components",
        "linear-attention/components",
    ),
    Statement(
        KUNIN,
        "In diagonal linear networks AGF converges to gradient flow in the limit of vanishing initialization",
        "diagonal-networks/slope",
        "diagonal-networks/levels",
    ),
    Statement(
        KUNIN,
        "Quadratic networks learn Fourier features in decreasing order of coefficient magnitude",
        "modular-addition/order",
    ),
    Statement(ZHANG, "Linear networks learn solutions of increasing rank", "linear-networks/rank"),
    Statement(ZHANG, "ReLU networks learn solutions with an increasing number of kinks", "relu-kinks/kinks"),
    Statement(
        ZHANG,
        "Convolutional networks learn solutions with an increasing number of convolutional kernels",
        "convolution/kernels",
    ),
    Statement(
        ZHANG,
        "Self-attention models learn solutions with an increasing number of attention heads",
        uncovered="Heads are counted in the prediction (linear-attention/heads), not in networks.",
    ),
    Statement(
        ZHANG,
        "The dynamics evolves near an invariant manifold to a saddle, then switches to another manifold",
        uncovered="Levels and times are compared, distances to manifolds are not.",
    ),
    Statement(
        RAWAL,
        "The escape time is of order ε^-(r-2), governed by the number r of layers at the bottleneck scale "
        "rather than the total depth",
        "escape-time/exponent",
    ),
    Statement(
        RAWAL,
        "An exact identity for the imbalance of norms of layers sorts activations into four classes",
        uncovered="The abstract does not print the identity or the classes.",
    ),
)

ERRATA: tuple[Erratum, ...] = ()
