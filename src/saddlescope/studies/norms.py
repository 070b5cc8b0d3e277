"""Verdict on the norm that a flow minimises, from the excess of each norm of its direction.

    excess    |W / mu| over its least value, minus 1, mu the smallest margin: of a direction, in the nuclear or the
              Frobenius norm
    contrast  excess of the other norm's solution: the largest difference to detect
    share     excess over contrast: 0 if the direction solves the problem of that norm, 1 if it is no nearer to it than
              the other solution

Objectives are compared and not directions, since a problem may have many solutions.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments

RESOLVED = 0.1  # largest share at which a direction counts as converged
APART = 0.5  # least share of the other norm at which the other problem's solution is excluded
COINCIDE = 1e-4  # contrast below which a flow cannot distinguish the two solutions


@dataclass(frozen=True)
class NormVerdict:
    """Verdict on one flow, with the numbers behind it.

    Attributes:
        norm: "nuclear", "Frobenius" or "undecided".
        nuclear_excess: of the last direction; NaN without a direction.
        frobenius_excess: of the last direction; NaN without a direction.
        nuclear_share: the nuclear excess over that of the Frobenius solution.
        frobenius_share: the Frobenius excess over that of the nuclear solution.
        says: one sentence.
    """

    norm: str
    nuclear_excess: float
    frobenius_excess: float
    nuclear_share: float
    frobenius_share: float
    says: str


def shares(
    excess: Float[np.ndarray, "*times norm"], contrast: Float[np.ndarray, "norm"]
) -> Float[np.ndarray, "*times norm"]:
    """Return the excesses in units of the contrasts; NaN if the solutions coincide."""
    distinct = bool(np.all(contrast >= COINCIDE))
    return np.maximum(excess, 0.0) / contrast if distinct else np.full_like(excess, np.nan)


@validate_arguments
def norm_verdict(excess: Float[np.ndarray, "norm"], contrast: Float[np.ndarray, "norm"], run: str = "") -> NormVerdict:
    """Return the verdict on the last direction of a flow.

    The flow minimises the norm in which its share is at most 0.1, if its share of the other norm is 0.5 or more.

    Args:
        excess: nuclear and Frobenius; NaN without a direction.
        contrast: nuclear and Frobenius.
        run: sentence on the run, for a verdict without a direction.

    >>> norm_verdict(np.array([0.001, 0.2]), np.array([0.1, 0.25])).norm
    'nuclear'
    >>> norm_verdict(np.array([0.03, 0.2]), np.array([0.1, 0.25])).norm
    'undecided'
    """
    nuclear, frobenius = (float(share) for share in shares(excess, contrast))
    norm = "undecided"
    if np.any(np.isnan(excess)):
        says = f"There is no direction: {run}"
    elif np.any(contrast < COINCIDE):
        says = (
            f"The two solutions coincide, to {max(float(contrast.min()), 0.0):.1g}: these data cannot distinguish them."
        )
    elif nuclear <= RESOLVED and frobenius >= APART:
        norm, says = "nuclear", "It nearly has the least nuclear norm, and clearly more than the least Frobenius norm."
    elif frobenius <= RESOLVED and nuclear >= APART:
        norm, says = (
            "Frobenius",
            "It nearly has the least Frobenius norm, and clearly more than the least nuclear norm.",
        )
    else:
        nearer = "nuclear" if nuclear < frobenius else "Frobenius"
        says = f"The run has not resolved it; by its share the last direction is nearer to the {nearer} solution."
    return NormVerdict(norm, float(excess[0]), float(excess[1]), nuclear, frobenius, says)
