"""The statements of the three abstracts, and the claims about them; no errata are known."""

from saddlescope.reproduction.paper import Erratum, Statement


def _statement(place: str, asserts: str, *claims: str, uncovered: str = "") -> Statement:
    return Statement(place=place, asserts=asserts, claims=claims, uncovered=uncovered)


KUNIN = "Kunin et al."
ZHANG = "Zhang et al."
RAWAL = "Rawal, DeWeese"

STATEMENTS: tuple[Statement, ...] = (
    _statement(
        KUNIN,
        "AGF quantifies the order, timing, and magnitude of the drops of the loss",
        "linear-networks/slope",
        "linear-networks/levels",
        "linear-attention/times",
        "linear-attention/levels",
        "modular-addition/features",
    ),
    _statement(
        KUNIN, "In fully connected linear networks the learned features are singular modes", "linear-networks/modes"
    ),
    _statement(
        KUNIN,
        "In attention-only linear transformers the learned features are principal components",
        "linear-attention/components",
    ),
    _statement(
        KUNIN,
        "In diagonal linear networks AGF converges to gradient flow in the limit of vanishing initialization",
        "diagonal-networks/slope",
        "diagonal-networks/levels",
    ),
    _statement(
        KUNIN,
        "Quadratic networks learn Fourier features in decreasing order of coefficient magnitude",
        "modular-addition/order",
    ),
    _statement(ZHANG, "Linear networks learn solutions of increasing rank", "linear-networks/rank"),
    _statement(ZHANG, "ReLU networks learn solutions with an increasing number of kinks", "relu-kinks/kinks"),
    _statement(
        ZHANG,
        "Convolutional networks learn solutions with an increasing number of convolutional kernels",
        "convolution/kernels",
    ),
    _statement(
        ZHANG,
        "Self-attention models learn solutions with an increasing number of attention heads",
        "linear-attention/heads",
    ),
    _statement(
        ZHANG,
        "The dynamics evolves near an invariant manifold to a saddle, then switches to another manifold",
        uncovered="Levels and times are compared, distances to manifolds are not.",
    ),
    _statement(
        RAWAL,
        "The escape time is of order ε^-(r-2), governed by the number r of layers at the bottleneck scale "
        "rather than the total depth",
        "escape-time/exponent",
    ),
    _statement(
        RAWAL,
        "An exact identity for the imbalance of norms of layers sorts activations into four classes",
        uncovered="The abstract does not print the identity or the classes.",
    ),
)

ERRATA: tuple[Erratum, ...] = ()
