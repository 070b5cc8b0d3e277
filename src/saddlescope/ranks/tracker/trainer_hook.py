"""Base of the callbacks that attach a tracker to a trainer of another library."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks.shards import is_sharded
from saddlescope.ranks.tracker.loggers import RankScalars
from saddlescope.ranks.tracker.rank_tracker import RankTracker
from saddlescope.ranks.units.unit_tracker import UnitTracker


class TrackerHook:
    """Tracker of one process of a run, built when training starts.

    With DDP all processes hold the same weights, and only the first measures. Sharded weights (FSDP2) are gathered,
    which involves all processes: each has a tracker.

    Args:
        make_tracker: builds the tracker of a model, such as `functools.partial(RankTracker, schedule=Every(100))`, or
            `UnitTracker`.
        scalars: logger of a RankTracker, such as `RankScalars(to_wandb())`, called after every step in the first
            process; None logs nothing.

    Raises:
        InputError: make_tracker is a tracker.
    """

    def __init__(
        self,
        make_tracker: Callable[[nn.Module], RankTracker | UnitTracker] = RankTracker,
        *,
        scalars: RankScalars | None = None,
    ) -> None:
        super().__init__()
        if not callable(make_tracker):
            raise InputError(
                "make_tracker must be a function from the model to a tracker, since the model is known when training "
                f"starts; got {type(make_tracker).__name__}. Pass RankTracker or functools.partial(RankTracker, ...)."
            )
        self._make_tracker, self._scalars = make_tracker, scalars
        self._tracker: RankTracker | UnitTracker | None = None
        self._logs = False

    @property
    def tracker(self) -> Any:
        """Tracker of the present run, or of the last one, as `make_tracker` builds it.

        Raises:
            InputError: training has not started, or only the first process measures and this is another.
        """
        if self._tracker is None:
            raise InputError("tracker must be read after training has started, in the first process; got none yet.")
        return self._tracker

    def start(
        self, model: nn.Module, *, first_process: bool, state: dict[str, Any] | None, folder: Path | None = None
    ) -> None:
        """Copy the initial weights of the model, or restore the state of a resumed run.

        Args:
            model: the model.
            first_process: True in the process that logs.
            state: state of a resumed run, or None.
            folder: folder with the file of the initial weights to which the state refers.
        """
        self._tracker, self._logs = None, first_process
        if not (first_process or is_sharded(model)):
            return
        self._tracker = self._make_tracker(model)
        if self._scalars is not None and not isinstance(self._tracker, RankTracker):
            raise InputError(
                f"scalars must be None for a {type(self._tracker).__name__}, which has no ranks; got a logger. Read "
                "tracker.sizes instead."
            )
        if state is not None:
            self._tracker.load_state_dict(state, folder=folder)
        if self._scalars is not None:
            self._scalars.skip(up_to=-1 if state is None else max(self._tracker.steps, default=-1))

    def step(self) -> None:
        """Count a step of the optimiser; measure and log when it is due."""
        if self._tracker is not None:
            self._tracker.step()
            self._log(self._tracker)

    def finish(self) -> None:
        """Measure and log the final weights."""
        if self._tracker is not None:
            self._tracker.measure()
            self._log(self._tracker)

    def tracker_state(self, folder: Path | None = None) -> dict[str, Any] | None:
        """Return the tracker's state, with the initial weights in a file of the folder; None without a tracker."""
        return None if self._tracker is None else self._tracker.state_dict(folder=folder)

    def _log(self, tracker: RankTracker | UnitTracker) -> None:
        if self._scalars is not None and self._logs and isinstance(tracker, RankTracker):
            self._scalars(tracker)
