"""Tracker callback for Lightning's `Trainer`, saved and resumed with Lightning's own checkpoints.

    trainer = Trainer(max_steps=10_000, callbacks=[RankTrackerCallback()])

Steps are batches in which an optimiser has stepped, however many optimisers have, and however many batches are
accumulated for a step. With one optimiser this is `trainer.global_step`, which adds up the steps of all optimisers.
"""

from typing import TYPE_CHECKING, Any

from saddlescope._shared.errors import InputError
from saddlescope.ranks.tracker.trainer_hook import TrackerHook

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:  # the other name under which Lightning is published
        from pytorch_lightning import Callback


class RankTrackerCallback(TrackerHook, Callback):
    """Tracker of the model that a Lightning `Trainer` fits.

    Updates are counted from the weights at the start of training. A resumed run (`trainer.fit(..., ckpt_path=...)`)
    restores the tracker from that checkpoint. With DDP only the first process measures; with sharded weights (FSDP2)
    all gather and measure.

    Args:
        make_tracker: builds the tracker of the LightningModule, such as
            `functools.partial(RankTracker, schedule=Every(100))`.
        scalars: what to log, such as `RankScalars(logger.log_metrics)`; None logs nothing.

    Raises:
        InputError: when training starts, as `RankTracker`; or if the checkpoint of a resumed run has no tracker state.
    """

    _saved: dict[str, Any] | None = None
    _counted = 0

    def on_train_start(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Copy the initial weights, or restore those of a resumed run."""
        saved, self._saved = self._saved, None
        if trainer.global_step and saved is None:
            raise InputError(
                f"The checkpoint of step {trainer.global_step} must hold the tracker's state, since updates are "
                "counted from the first weights; got none. It was saved without this callback: start again with it."
            )
        self.start(pl_module, first_process=trainer.is_global_zero, state=saved)
        self._counted = trainer.global_step

    def on_train_batch_end(self, trainer: "Trainer", pl_module: "LightningModule", *args: Any, **kwargs: Any) -> None:
        """Count the batch if an optimiser has stepped in it, and measure when it is due."""
        if self._counted < trainer.global_step:  # sums the steps of all optimisers
            self._counted = trainer.global_step
            self.step()

    def on_train_end(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        """Measure the final weights."""
        self.finish()

    def state_dict(self) -> dict[str, Any]:
        """Return the tracker's state, for Lightning's checkpoint."""
        return self.tracker_state() or {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Store the state from Lightning's checkpoint until training starts."""
        self._saved = state_dict or None
