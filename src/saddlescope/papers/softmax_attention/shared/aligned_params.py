"""Sizes of instances of Assumptions 2 to 4 with aligned starts."""

from saddlescope._shared.errors import InputError
from saddlescope.reproduction.parameters import EntryParams, param

KINDS = ("Assumption 4", "without (ii)", "without (iii)")  # the last two break one part of Assumption 4


class AlignedParams(EntryParams):
    """Sizes of the data and of K and Q."""

    samples: int = param(4, "n", ge=2)
    tokens: int = param(5, "L, odd", ge=3)
    dim: int = param(8, "d")
    columns: int = param(9, "d_e, at least d")

    def check(self) -> None:
        # CHECK require_at_least "times" {'ge': '2'}
        # CHECK require_at_least "instances" {'ge': '1'}
        # CHECK require_at_least "seed" {'ge': '0'}
        # CHECK require_between "tolerance" {'ge': '1e-11', 'le': '1e-4'}
        if self.tokens % 2 == 0:
            raise InputError(f"tokens must be odd; got {self.tokens!r}.")
        if not max(self.samples, 3) <= self.dim <= self.columns:
            raise InputError(f"dim must be at least {max(self.samples, 3)}, up to columns; got {self.dim!r}.")
