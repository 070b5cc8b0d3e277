"""Base of training runs that resume from a checkpoint to the last bit."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks.state_files import OldStateError
from saddlescope.training.configuration import check_range
from saddlescope.training.run_checkpoint import Checkpointer


class TrainingRun(ABC):
    """State of one training run.

    All that changes is either in the checkpoint (weights, optimiser, losses, and what `state` adds) or a function of
    the configuration and of `step`. So a killed run that is called again makes the same steps as an uninterrupted one.

    Args:
        model: the model, trained in place.
        optimizer: its optimiser.
        losses: zeros on the device of the model, to hold the loss of each step's batch before the step: shape (steps,),
            or (steps, terms) with the loss first.
        learning_rate: for the error about a loss that is not finite.
        lower: instruction that ends that error.
        checkpoint: the file to resume from and to update; None disables it.
        checkpoint_every: steps between two checkpoints; None: so far apart that writing takes at most 2 % of the time.
        cure: instruction that ends the error about a checkpoint of another run.

    Raises:
        InputError: checkpoint_every is less than 1.
    """

    losses_name = "losses"  # in the checkpoint

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        losses: Float[Tensor, "steps ..."],
        *,
        learning_rate: float,
        lower: str,
        checkpoint: Path | str | None,
        checkpoint_every: int | None = None,
        cure: str,
    ) -> None:
        if checkpoint_every is not None:
            check_range("checkpoint_every", checkpoint_every, low=1)
        self.model, self.optimizer, self.losses = model, optimizer, losses
        self.step, self.steps, self.device = 0, len(losses), losses.device
        self._checked: int = 0  # steps whose losses are known to be finite
        self._learning_rate, self._lower, self._every = learning_rate, lower, checkpoint_every
        self._checkpointer = Checkpointer(checkpoint, self.identity, cure=cure)

    @abstractmethod
    def backward(self) -> None:
        """Compute the gradients of the next step, and record its losses."""

    @abstractmethod
    def identity(self) -> dict[str, str]:
        """Return the properties that define this run, by name; called before the first step."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds besides step, model, optimiser and losses."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""

    def begin(self) -> None:
        """Prepare a run that does not resume."""
        return

    @property
    def ended(self) -> bool:
        """True after the last step."""
        return self.step == self.steps

    def advance(self) -> None:
        """Make one step of the optimiser."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        self.backward()
        if self.device.type == "cpu":
            self.check_losses(self.step + 1)  # elsewhere that would wait for the device at every step
        self.optimizer.step()
        self.step += 1

    def check_losses(self, made: int | None = None) -> None:
        """Raise InputError unless the losses of the first `made` steps (default: all made) are finite.

        Each loss is checked once. On a GPU this waits for the device.
        """
        stop: int = self.step if made is None else made
        losses = self.losses if self.losses.ndim == 1 else self.losses[:, 0]
        finite = torch.isfinite(losses[self._checked : stop])
        if not bool(finite.all()):
            first = self._checked + int(finite.logical_not().int().argmax())
            raise InputError(
                f"learning_rate must be small enough for a finite loss; got {self._learning_rate!r}, and the loss is "
                f"{losses[first].item()} at step {first}. {self._lower}"
            )
        self._checked = stop

    def save(self) -> None:
        """Write a checkpoint, of finite losses only."""
        self.check_losses()
        self._checkpointer.write(
            {
                "step": self.step,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                self.losses_name: self.losses[: self.step].clone(),
                **self.state(),
            }
        )

    def save_if_due(self, *, may_pause: bool = True) -> None:
        """Write a checkpoint after the last step, every `checkpoint_every` steps, or if the last one is long ago.

        Args:
            may_pause: False excludes the third reason.
        """
        due = self.step % self._every == 0 if self._every else may_pause and self._checkpointer.due()
        if self.ended or due:
            self.save()

    def resume(self) -> None:
        """Resume from the checkpoint. Without one, write the first, so that a folder that cannot be written fails now.

        Raises:
            InputError: the checkpoint is damaged, of another run, or cannot be written.
        """
        state = self._checkpointer.read()
        if state is None:
            self.begin()
            self.save()
            return
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = self._checked = state["step"]
            self.losses[: self.step] = state[self.losses_name]
            self.restore(state)
        except (KeyError, OldStateError) as error:
            raise self._checkpointer.of_another_version() from error
