"""Base of trackers: the count of training steps, and a measurement when it is due."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import TypeVar

import torch
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope.ranks.module_names import first_few
from saddlescope.ranks.tracker.optimizer_steps import OptimizerSteps
from saddlescope.ranks.tracker.schedules import Schedule

Tracker = TypeVar("Tracker", bound="ScheduledTracker")


class ScheduledTracker(ABC):
    """Tracker that measures after the steps that a schedule chooses.

    Args:
        schedule: function from the number of optimiser steps to whether to measure.

    Raises:
        InputError: the schedule is no function.
    """

    def __init__(self, schedule: Schedule) -> None:
        if not callable(schedule):
            raise InputError(
                f"schedule must be a function from the number of steps to True or False; got {schedule!r}. Pass "
                "Geometric(1.5), Every(100) or AtSteps(1, 10, 100)."
            )
        self._schedule = schedule
        self._watched: OptimizerSteps | None = None
        self._stepped: tuple[int, ...] = ()  # optimisers of an incomplete training step, when watching ended
        self._made = 0
        self._steps: list[int] = []
        self._warned: set[str] = set()

    @property
    def steps(self) -> tuple[int, ...]:
        """Number of optimiser steps at each record, without building the records."""
        return tuple(self._steps)

    def step(self) -> None:
        """Count a training step, and measure if the schedule says so."""
        self._made += 1
        if self._schedule(self._made):
            self.measure()

    @torch.no_grad()
    def measure(self) -> bool:
        """Make a record, and return True; return False if the present step is recorded already.

        Weights that are not finite, or whose products are not, cannot be measured: their record is NaN, and a warning
        names each once.
        """
        if self._steps and self._steps[-1] == self._made:
            return False
        self._record()
        return True

    @abstractmethod
    def _record(self) -> None:
        """Make a record of the present step."""

    @abstractmethod
    def _trained(self) -> Mapping[str, Tensor]:
        """Return the parameters that are read, by names for messages."""

    def watch(self: Tracker, *optimizers: torch.optim.Optimizer) -> Tracker:
        """Call `step` after every training step of these optimisers, until `close` or the end of a `with` block.

        A training step ends when the last of the optimisers has stepped. An optimiser that has stepped several times
        since the last training step, such as the critic of a GAN, counts once; one that skips a step for overflow
        delays the end of the training step until it steps again.

        Args:
            optimizers: all optimisers that change tracked weights. Those of Accelerate and Lightning may wrap them.

        Raises:
            InputError: an optimiser has made steps already, so the present weights are not the initial ones; or it is
                not of `torch.optim.Optimizer`; or the tracker watches others.
        """
        if self._watched is not None:
            raise InputError("The tracker must watch the optimizers of one call at a time; close it first.")
        watched = OptimizerSteps(optimizers, self.step, stepped=self._stepped)
        try:
            if self._made == 0 and not self._stepped:
                watched.require_fresh()
        except InputError:
            watched.close()
            raise
        self._watched = watched
        if missing := watched.missing(self._trained()):
            warnings.warn(
                f"The watched optimizers hold no {first_few(missing)}: if another one changes these weights, "
                "pass it to watch as well, or records are of the weights before its step. If they stay as they are, "
                "set requires_grad to False.",
                stacklevel=2,
            )
        return self

    def close(self) -> None:
        """Stop watching; the records remain."""
        if self._watched is not None:
            self._watched.close()
            self._stepped = self._watched.stepped
            self._watched = None

    def __enter__(self: Tracker) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
