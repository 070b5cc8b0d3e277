"""Schedules of measurements: functions from the number of optimiser steps made, from 1, to True or False."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError

Schedule: TypeAlias = Callable[[int], bool]


@validate_arguments
@dataclass(frozen=True)
class Every:
    """Measurement after every `n` steps."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InputError(f"n must be at least 1; got {self.n!r}.")

    def __call__(self, step: int) -> bool:
        """Return True to measure after this step."""
        return step > 0 and step % self.n == 0


@validate_arguments
@dataclass(frozen=True)
class Geometric:
    """Measurement after steps that grow by a factor: evenly spaced in log time, at a cost that vanishes in long runs.

    The steps are s_0 = 1 and s_{k+1} = max(s_k + 1, floor(ratio s_k)): at ratio 1.5 they are 1, 2, 3, 4, 6, 9, 13, ...
    """

    ratio: float = 1.5

    def __post_init__(self) -> None:
        if not 1 < self.ratio < math.inf:
            raise InputError(f"ratio must be above 1 and finite; got {self.ratio!r}.")

    def __call__(self, step: int) -> bool:
        """Return True to measure after this step."""
        at = 1
        while at < step:
            at = max(at + 1, math.floor(self.ratio * at))
        return at == step


@validate_arguments
@dataclass(frozen=True, init=False)
class AtSteps:
    """Measurement after the steps with these numbers."""

    steps: frozenset[int]

    def __init__(self, *steps: int) -> None:
        if not steps or min(steps) < 1:
            raise InputError(f"steps must be one or more numbers of at least 1; got {steps!r}.")
        object.__setattr__(self, "steps", frozenset(steps))

    def __repr__(self) -> str:
        return f"AtSteps({', '.join(map(str, sorted(self.steps)))})"

    def __call__(self, step: int) -> bool:
        """Return True to measure after this step."""
        return step in self.steps
