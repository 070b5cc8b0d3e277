"""Which norm does a flow minimise? Read from how much more of each norm its direction has than it needs.

    excess    |W / mu| over its least value, less 1, mu the smallest margin: of a direction, in the nuclear or the
              Frobenius norm
    contrast  the same of the other norm's solution: what there is to see
    share     excess over contrast: 0 where the direction solves the problem of that norm, 1 where it is no nearer to
              it than the other solution is

Objectives are compared and not directions, since a problem may have many solutions.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from saddlescope._shared.arguments import validate_arguments

RESOLVED = 0.1  # the share up to which a direction counts as having arrived
APART = 0.5  # the share from which it is seen not to go to the other problem's solution
COINCIDE = 1e-4  # a contrast below which the two problems have one solution for all that a flow can tell


@dataclass(frozen=True)
class NormVerdict:
    """The verdict on one flow, with the numbers behind it.

    Attributes:
        norm: "nuclear", "Frobenius" or "undecided".
        nuclear_excess: of the last direction; NaN where there is none.
        frobenius_excess: of the last direction; NaN where there is none.
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
    """The excesses in units of the contrasts; NaN where the solutions coincide."""
    seen = bool(np.all(contrast >= COINCIDE))
    return np.maximum(excess, 0.0) / contrast if seen else np.full_like(excess, np.nan)


@validate_arguments
def norm_verdict(excess: Float[np.ndarray, "norm"], contrast: Float[np.ndarray, "norm"], run: str = "") -> NormVerdict:
    """The verdict on the last direction of a flow.

    It minimises the norm in which its share is at most 0.1, if its share of the other norm is 0.5 or more.

    Args:
        excess: nuclear and Frobenius; NaN where there is no direction.
        contrast: nuclear and Frobenius.
        run: what is to be said of a run without a direction.

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
            f"The two solutions coincide, to {max(float(contrast.min()), 0.0):.1g}: these data cannot tell them apart."
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
