"""Logistic regression of the odds of success on the logarithms of widths.

odds    p / (1 - p) of the share p of runs that succeed
law     log odds = c + sum_i k_i log w_i, so that the odds grow as the power k_i of the width w_i
"""

from dataclasses import dataclass

import numpy as np

_STEPS = 60  # of Newton's method, which takes about six


@dataclass(frozen=True)
class OddsLaw:
    """Fitted law of the odds.

    Attributes:
        constant: c.
        powers: k_i, (widths,).
        errors: half-widths of their 95 % intervals, from the curvature of the likelihood, (widths,).
    """

    constant: float
    powers: np.ndarray
    errors: np.ndarray

    def shares(self, widths: np.ndarray) -> np.ndarray:
        """Return the shares (cells,) at widths (cells, widths)."""
        from scipy.special import expit

        return expit(self.constant + np.log(widths) @ self.powers)


def fit_odds(widths: np.ndarray, hits: np.ndarray, runs: np.ndarray) -> OddsLaw | None:
    """Fit the law of largest likelihood to counts of successes among runs.

    Args:
        widths: (cells, widths), positive.
        hits: (cells,).
        runs: (cells,), at least 1.

    Returns:
        The law; None where the data determine none, as where all runs succeed, or none does.
    """
    from scipy.special import expit

    design = np.column_stack([np.ones(len(widths)), np.log(widths)])
    beta, information = np.zeros(design.shape[1]), np.eye(design.shape[1])
    for _ in range(_STEPS):
        shares = expit(design @ beta)
        information = (design.T * (runs * shares * (1 - shares))) @ design
        if not np.isfinite(information).all() or np.linalg.cond(information) > 1e12:
            return None
        step = np.linalg.solve(information, design.T @ (hits - runs * shares))
        beta = beta + step / max(1.0, float(np.abs(step).max()) / 4)  # long steps overshoot where shares are extreme
        if np.abs(step).max() < 1e-10:
            errors = 1.96 * np.sqrt(np.diag(np.linalg.inv(information)))
            return OddsLaw(float(beta[0]), beta[1:], errors[1:])
    return None
