"""The statements of the three abstracts, and the claims about them; no errata are known."""

from saddlescope.reproduction.paper import Erratum, Statement

KUNIN = "Kunin et al."
ZHANG = "Zhang et al."
RAWAL = "Rawal, DeWeese"

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        place=KUNIN,
        asserts="AGF quantifies the order, timing, and magnitude of the drops of the loss",
        claims=(
            "linear-networks/slope",
            "linear-networks/levels",
            "linear-attention/times",
            "linear-attention/levels",
            "modular-addition/features",
        ),
    ),
    Statement(
        place=KUNIN,
        asserts="In fully connected linear networks the learned features are singular modes",
        claims=("linear-networks/modes",),
    ),
    Statement(
        place=KUNIN,
        asserts="In attention-only linear transformers the learned features are principal components",
        claims=("linear-attention/components",),
    ),
    Statement(
        place=KUNIN,
        asserts="In diagonal linear networks AGF converges to gradient flow in the limit of vanishing initialization",
        claims=("diagonal-networks/slope", "diagonal-networks/levels"),
    ),
    Statement(
        place=KUNIN,
        asserts="Quadratic networks learn Fourier features in decreasing order of coefficient magnitude",
        claims=("modular-addition/order",),
    ),
    Statement(
        place=ZHANG,
        asserts="Linear networks learn solutions of increasing rank",
        claims=("linear-networks/rank",),
    ),
    Statement(
        place=ZHANG,
        asserts="ReLU networks learn solutions with an increasing number of kinks",
        claims=("relu-kinks/kinks",),
    ),
    Statement(
        place=ZHANG,
        asserts="Convolutional networks learn solutions with an increasing number of convolutional kernels",
        claims=("convolution/kernels",),
    ),
    Statement(
        place=ZHANG,
        asserts="Self-attention models learn solutions with an increasing number of attention heads",
        claims=("linear-attention/heads",),
    ),
    Statement(
        place=ZHANG,
        asserts="The dynamics evolves near an invariant manifold to a saddle, then switches to another manifold",
        uncovered="Levels and times are compared, distances to manifolds are not.",
    ),
    Statement(
        place=RAWAL,
        asserts="The escape time is of order ε^-(r-2), governed by the number r of layers at the bottleneck scale "
        "rather than the total depth",
        claims=("escape-time/exponent",),
    ),
    Statement(
        place=RAWAL,
        asserts="An exact identity for the imbalance of norms of layers sorts activations into four classes",
        uncovered="The abstract does not print the identity or the classes.",
    ),
)

ERRATA: tuple[Erratum, ...] = ()
