"""Sizes of instances of Assumptions 2 to 4 with aligned starts."""

from dataclasses import dataclass

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import parameter_checks

KINDS = ("Assumption 4", "without (ii)", "without (iii)")  # the last two break one part of Assumption 4


@dataclass(frozen=True, kw_only=True)
class AlignedParams:
    """Sizes of the data and of K and Q."""

    samples: int = 4  # n
    tokens: int = 5  # L, odd
    dim: int = 8  # d
    columns: int = 9  # d_e, at least d

    def __post_init__(self) -> None:
        parameter_checks.require_at_least(2, self, "samples", "times")
        parameter_checks.require_at_least(1, self, "instances")
        parameter_checks.require_at_least(3, self, "tokens")
        parameter_checks.require_at_least(0, self, "seed")
        parameter_checks.require_between(1e-11, 1e-4, self, "tolerance")
        if self.tokens % 2 == 0:
            raise InputError(f"tokens must be odd; got {self.tokens!r}.")
        if not max(self.samples, 3) <= self.dim <= self.columns:
            raise InputError(f"dim must be at least {max(self.samples, 3)}, up to columns; got {self.dim!r}.")
