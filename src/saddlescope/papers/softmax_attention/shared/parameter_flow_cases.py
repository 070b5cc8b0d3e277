"""Instances and starts of flows of diagonal weights in their parameters: Gaussian data, both losses, random starts."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from saddlescope.models import SelectionLoss, TokenData, gaussian_tokens
from saddlescope.papers.softmax_attention.shared.parameter_flow import Parts


@dataclass(frozen=True, eq=False)
class Case:
    """One instance with a loss and a start.

    Attributes:
        name: unique name.
        squares: w_+(0), w_-(0), each about the chosen scale, unequal unless beta(0) is to be 0.
        keys: xi_k(0), xi_q(0) of the same beta(0) and the same sum of squares (equation 4), signs and order at random.
    """

    name: str
    data: TokenData
    loss: SelectionLoss
    squares: Parts
    keys: Parts


def draw_cases(
    sizes: list[tuple[int, int, int]], instances: int, scale: float, seed: int, from_zero: bool
) -> Iterator[Case]:
    """Draw the cases of every size, instance and loss."""
    for size, number, kind in itertools.product(sizes, range(instances), ("exponential", "logistic")):
        data = gaussian_tokens(*size, seed=seed + number)
        rng = np.random.default_rng((seed + number, *size))
        plus = scale * np.exp(0.3 * rng.normal(size=data.dim))
        minus = plus if from_zero else scale * np.exp(0.3 * rng.normal(size=data.dim))
        signs = rng.choice((-1.0, 1.0), (2, data.dim))
        one, other = signs[0] * plus, signs[1] * minus
        yield Case(
            name=f"{size}, instance {number}, {kind}",
            data=data,
            loss=SelectionLoss(data.optimal_scores, data.gaps, kind),
            squares=(plus, minus),
            keys=((one + other) / 2**0.5, (one - other) / 2**0.5),
        )
