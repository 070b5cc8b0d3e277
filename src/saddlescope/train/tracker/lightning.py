"""The tracker inside Lightning's `Trainer`: a callback, saved and resumed with Lightning's own checkpoints.

    trainer = Trainer(max_steps=10_000, callbacks=[RankTrackerCallback()])

Steps are `trainer.global_step`: one for each step of an optimiser, however many batches were accumulated for it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.train.tracker.rank_tracker import RankTracker
from saddlescope.train.tracker.scalars import RankScalars
from saddlescope.train.tracker.trainer_hook import AttachedTracker

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:  # the other name under which Lightning is published
        from pytorch_lightning import Callback


class RankTrackerCallback(Callback):
    """Tracks the model that a Lightning `Trainer` fits.

    Updates are counted from the weights the model has when training starts. Where a run is resumed
    (`trainer.fit(..., ckpt_path=...)`) the tracker goes on from its state in that checkpoint. With DDP the first
    process alone measures; with sharded weights (FSDP2) all gather and measure.

    Args:
        make: builds the tracker of the LightningModule, such as `functools.partial(RankTracker, schedule=Every(100))`.
        scalars: what to log, such as `RankScalars(logger.log_metrics)`; None logs nothing.

    Raises:
        InputError: when training starts, as `RankTracker`; or where a run is resumed from a checkpoint without the
            tracker's state.
    """

    def __init__(
        self, make: Callable[[nn.Module], RankTracker] = RankTracker, *, scalars: RankScalars | None = None
    ) -> None:
        super().__init__()
        self._attached = AttachedTracker(make, scalars)
        self._saved: dict[str, Any] | None = None
        self._counted = 0

    @property
    def tracker(self) -> RankTracker:
        """The tracker of the present run, or of the last one.

        Raises:
            InputError: training has not started, or another process measures.
        """
        return self._attached.tracker

    def on_train_start(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Copies the initial weights, or takes up those that a resumed run started from."""
        saved, self._saved = self._saved, None
        if trainer.global_step and saved is None:
            raise InputError(
                f"The checkpoint of step {trainer.global_step} must hold the tracker's state, since updates are "
                "counted from the first weights; got none. It was saved without this callback: start again with it."
            )
        self._attached.start(pl_module, first_process=trainer.is_global_zero, state=saved)
        self._counted = trainer.global_step

    def on_train_batch_end(self, trainer: "Trainer", pl_module: "LightningModule", *args: Any, **kwargs: Any) -> None:
        """Counts the steps that optimisers made, and measures when it is due."""
        while self._counted < trainer.global_step:
            self._counted += 1
            self._attached.step()

    def on_train_end(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Measures the final weights."""
        self._attached.finish()

    def state_dict(self) -> dict[str, Any]:
        """For Lightning's checkpoint: the tracker's state."""
        return self._attached.state_dict() or {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """From Lightning's checkpoint; taken up when training starts."""
        self._saved = state_dict or None
