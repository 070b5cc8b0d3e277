"""A tracker on behalf of somebody else's trainer: made when training starts, told of every step, measured at the end.

What the callbacks of `saddlescope.train.tracker.hugging_face` and `saddlescope.train.tracker.lightning` have in common.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.train.tracker.rank_tracker import RankTracker
from saddlescope.train.tracker.scalars import RankScalars
from saddlescope.train.tracker.shards import is_sharded


class AttachedTracker:
    """The tracker of one process of a run.

    With DDP all processes hold the same weights, and the first alone measures. Sharded weights (FSDP2) are gathered,
    which takes all processes: each has a tracker.

    Args:
        make: builds the tracker of a model.
        scalars: told after every step; None logs nothing. Only the first process logs.

    Raises:
        InputError: a tracker in place of what makes one.
    """

    def __init__(self, make: Callable[[nn.Module], RankTracker], scalars: RankScalars | None) -> None:
        if not callable(make):
            raise InputError(
                f"make must be a function from the model to a tracker, since the model is known when training starts; "
                f"got {type(make).__name__}. Give RankTracker itself, or functools.partial(RankTracker, ...)."
            )
        self._make, self._scalars = make, scalars
        self._tracker: RankTracker | None = None
        self._logs = False

    @property
    def tracker(self) -> RankTracker:
        """The tracker.

        Raises:
            InputError: training has not started, or the first process alone measures and this is another.
        """
        if self._tracker is None:
            raise InputError("tracker must be asked for once training has started, in the first process; got none yet.")
        return self._tracker

    def start(self, model: nn.Module, *, first_process: bool, state: dict[str, Any] | None) -> None:
        """Copies the initial weights of the model, or goes on from the state of a run that is resumed."""
        self._tracker, self._logs = None, first_process
        if not (first_process or is_sharded(model)):
            return
        self._tracker = self._make(model)
        if state is not None:
            self._tracker.load_state_dict(state)
        if self._scalars is not None:
            self._scalars.skip(up_to=-1 if state is None else max(self._tracker.steps, default=-1))

    def step(self) -> None:
        """Counts a step of the optimiser; measures and logs when it is due."""
        if self._tracker is not None:
            self._tracker.step()
            self._log(self._tracker)

    def finish(self) -> None:
        """Measures and logs the final weights."""
        if self._tracker is not None:
            self._tracker.measure()
            self._log(self._tracker)

    def state_dict(self) -> dict[str, Any] | None:
        """The tracker's state; None in a process without."""
        return None if self._tracker is None else self._tracker.state_dict()

    def _log(self, tracker: RankTracker) -> None:
        if self._scalars is not None and self._logs:
            self._scalars(tracker)
