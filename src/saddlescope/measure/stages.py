"""Staircases: the stages in which a network learns, whether a theory predicted them or a measurement found them.

A stage is a plateau together with the short drop that leads to the next one; while it lasts the rank (or the
support, or the number of active concepts) of the weights does not change.
"""

import itertools
import math
from dataclasses import dataclass

from saddlescope.errors import InputError


@dataclass(frozen=True)
class Stage:
    """One stage of learning.

    Attributes:
        start: when the stage begins, in the time unit of its `Staircase`; finite.
        end: when the next one begins; infinite when none follows.
        loss: the level of the plateau.
        rank: how many components (coordinates, singular values, concepts) are active; at least 0.
        support: which components are active, ascending, so that `rank` is their number; None where components have no
            identity, as with singular values.

    Raises:
        InputError: an attribute out of range, or a support that does not agree with the rank.
    """

    start: float
    end: float
    loss: float
    rank: int
    support: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.start):
            raise InputError(f"start must be finite; got {self.start!r}.")
        if not self.end >= self.start:
            raise InputError(f"end must be at least start={self.start!r}; got {self.end!r}.")
        if math.isnan(self.loss):
            raise InputError(f"loss must be a number; got {self.loss!r}.")
        if self.rank < 0:
            raise InputError(f"rank must be at least 0; got {self.rank!r}.")
        if self.support is None:
            return
        if any(i >= j for i, j in itertools.pairwise(self.support)) or any(i < 0 for i in self.support):
            raise InputError(f"support must be ascending indices, each once, from 0; got {self.support!r}.")
        if len(self.support) != self.rank:
            raise InputError(f"rank must be the size of the support, {len(self.support)}; got {self.rank!r}.")


@dataclass(frozen=True, repr=False)
class Staircase:
    """An ordered tuple of stages: each begins when the one before it ends.

    Attributes:
        stages: at least one.
        time_unit: what times are told in, such as "t / log(1/alpha)", "steps" or "epochs".

    Raises:
        InputError: no stages, or a stage that does not begin where the one before it ends.
    """

    stages: tuple[Stage, ...]
    time_unit: str

    def __post_init__(self) -> None:
        if not self.stages:
            raise InputError("stages must hold at least one Stage; got none.")
        for k, (one, following) in enumerate(itertools.pairwise(self.stages)):
            if following.start != one.end:
                raise InputError(
                    f"stages must be contiguous: stage {k + 1} must start at {one.end!r}, where stage {k} ends; "
                    f"got {following.start!r}."
                )

    @property
    def times(self) -> tuple[float, ...]:
        """The activation times: the starts of all stages but the first, in `time_unit`."""
        return tuple(stage.start for stage in self.stages[1:])

    @property
    def losses(self) -> tuple[float, ...]:
        """The level of each plateau, the first stage's included."""
        return tuple(stage.loss for stage in self.stages)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The rank of each stage, the first included."""
        return tuple(stage.rank for stage in self.stages)

    @property
    def supports(self) -> tuple[tuple[int, ...] | None, ...]:
        """The support of each stage, the first included."""
        return tuple(stage.support for stage in self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def __repr__(self) -> str:
        first, last = self.stages[0], self.stages[-1]
        return (
            f"Staircase({len(self.stages)} stages, rank {first.rank} to {last.rank}, "
            f"loss {first.loss:.3g} to {last.loss:.3g}, time {first.start:.4g} to {last.end:.4g} in {self.time_unit!r})"
        )
