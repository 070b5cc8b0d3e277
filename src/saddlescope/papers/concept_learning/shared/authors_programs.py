"""The authors' programs of Figures 5, 8, 9 and 10: data, starts and numbers of steps.

Taken from their public code, github.com/FFTYYY/ConceptDynamics-code, commit d6110b2. All four iterate equation D.2 in W
with A² where the paper has A, in steps of 0.01, from W = U Uᵀ, U uniform from PyTorch's generator. Since D.2 is half of
the gradient flow of equation 4.1, n steps are the time t = 0.01 n / 2 of that flow: 10 for Figure 5, 50 for the others.
"""

from typing import NamedTuple

import numpy as np

CODE = "the authors' code, FFTYYY/ConceptDynamics-code, commit d6110b2"

STEP = 0.01  # of equation D.2

DIVISOR = 10.0  # of the uniform entries of U in the programs of Figures 8 to 10; 5 in that of Figure 5

# The first uniform numbers of PyTorch's generator for the programs' seeds, 2333 and 233333
_SEED_2333 = """
    0.623071671 0.631843328 0.988799274 0.078376591 0.038580835 0.502339661 0.301932752 0.98360981 0.116360068
"""
_SEED_233333 = """
    0.303830564 0.864474714 0.920155168 0.139967442 0.561442494 0.850235403 0.966095865 0.76159656 0.896359086
    0.978879631 0.280082405 0.759739697 0.400070369 0.121713936 0.260230601 0.402531922
"""


class Program(NamedTuple):
    """A program with its data, start and number of steps; `mu` is also the test point, 0 in directions without signal.

    Attributes:
        path: file in the repository.
        mu, sigma: signal and standard deviation along every direction.
        uniform: entries of U times `divisor`, row by row, as text; the first d² are used.
    """

    path: str
    mu: tuple[float, ...]
    sigma: tuple[float, ...]
    uniform: str
    divisor: float
    steps: int

    @property
    def strengths(self) -> np.ndarray:
        """Return the diagonal of A, not squared, (d,)."""
        mu = np.array(self.mu)
        return mu**2 / np.sum(mu > 0) + np.array(self.sigma) ** 2

    @property
    def test_point(self) -> np.ndarray:
        """Return the test point, (d,)."""
        return np.array(self.mu)

    @property
    def start(self) -> np.ndarray:
        """Return U at the start, (d, d)."""
        d = len(self.mu)
        return np.array(self.uniform.split()[: d * d], float).reshape(d, d) / self.divisor

    @property
    def end(self) -> float:
        """Return the time t of gradient flow at the last step."""
        return STEP * self.steps / 2


PROGRAMS = {
    "Figure 5": Program("figure/theory/stages.py", (1.0, 1.5, 0.0), (0.05,) * 3, _SEED_2333, 5.0, 2000),
    "Figure 8": Program("figure/triple/triple.py", (1.0, 1.7, 2.25), (0.5, 0.25, 0.25), _SEED_233333, DIVISOR, 10_000),
    "Figure 9": Program("figure/triple/multiple.py", (1.0, 1.5, 2.2, 2.7), (0.05,) * 4, _SEED_233333, DIVISOR, 10_000),
    "Figure 10": Program("figure/triple/fail.py", (0.7, 1.7, 3.0), (0.05,) * 3, _SEED_233333, DIVISOR, 10_000),
}
