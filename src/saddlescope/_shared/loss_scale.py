"""Scale of a loss: a power of two, by which a loss is divided so that no threshold depends on its units.

Gradient flow of c L is that of L at c times the speed. Division by a power of two rounds nothing, so that a result for
c L is that for L up to its units, unless c itself is so large or small that the loss over- or underflows.
"""

import math
from typing import Any

import numpy as np


def scale_exponent(gradients: Any) -> int:
    """Return the exponent k for which the largest entry of the gradients is between 2^(k-1) and 2^k; 0 if all are 0.

    Args:
        gradients: arrays of finite numbers.
    """
    largest = max((float(np.max(np.abs(each), initial=0.0)) for each in gradients), default=0.0)
    return math.frexp(largest)[1]
