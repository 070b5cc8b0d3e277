"""Time coordinate for flows that slow down as 1/t: t = e^(1e7) is reached in 16 units.

    t = ts (e^tau - 1)      tau is t / ts at first and ln t late
    tau = e^x - 1           x is the solvers' independent variable; at ln t = 1e6 it is 14

A rate r becomes r dt/dx = e^(ln r + ln ts + tau + x): the logarithms are added before anything is exponentiated, since
r itself is e^-1e6 by then.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class LogLogTime:
    """Maps between ln t and the time coordinate x.

    Attributes:
        log_unit: ln ts.
    """

    log_unit: float

    def at(self, log_times: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Return the x at these ln t; -inf is the start, x = 0."""
        return np.log1p(np.logaddexp(0.0, log_times - self.log_unit))

    def log_time(self, x: float) -> float:
        """Return the ln t at this x."""
        tau = math.expm1(x)
        return self.log_unit + tau + math.log(-math.expm1(-tau)) if tau > 0 else -math.inf

    def log_speed(self, x: float) -> float:
        """Return the logarithm of dt/dx."""
        return self.log_unit + math.expm1(x) + x
