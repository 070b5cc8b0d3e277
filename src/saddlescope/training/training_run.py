"""Base of training runs that resume from a checkpoint to the last bit."""

import hashlib
import math
import random
import time
from abc import ABC, abstractmethod
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import require_writable_file
from saddlescope._shared.progress import Report
from saddlescope.ranks.state_files import OldStateError, read_state, write_state
from saddlescope.ranks.tracker.rank_tracker import RankTracker
from saddlescope.training.configuration import Bounds
from saddlescope.training.torch_settings import Precision, reproducible

_PAUSE = 50  # times as long as the last checkpoint took to write: writing takes at most 2 % of the time


class TrainingRun(ABC):
    """State of one training run.

    All that changes is either in the checkpoint (weights, optimiser, losses, random states, tracker, `kept`, and what
    `state` adds) or a function of the configuration and of `step`. So a killed run that is called again makes the same
    steps as an uninterrupted one.

    Args:
        model: the model, trained in place.
        optimizer: its optimiser.
        losses: zeros on the device of the model, to hold the loss of each step's batch before the step: shape (steps,),
            or (steps, terms) with the loss first.
        tracker: measured after each step on its own schedule, and once at the end.
        checkpoint: the file to resume from and to update; None disables it.
        checkpoint_every: steps between two checkpoints; None: so far apart that writing takes at most 2 % of the time.

    Raises:
        InputError: checkpoint_every is less than 1.
    """

    config: Any  # a data class with `seed` and `threads`; set before `__init__`
    data: Any  # with `digest`
    precision: Precision = "float32"  # of matrix products
    lower = "Lower it."  # instruction that ends the error about a loss that is not finite

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        losses: Float[Tensor, "steps ..."],
        *,
        tracker: RankTracker | None = None,
        checkpoint: Path | str | None,
        checkpoint_every: int | None = None,
    ) -> None:
        if checkpoint_every is not None:
            Bounds(1).check("checkpoint_every", checkpoint_every)
        self.model, self.optimizer, self.losses = model, optimizer, losses
        self.step, self.steps, self.device, self.tracker = 0, len(losses), losses.device, tracker
        self.kept: list[Any] = []  # records, of numbers, lists, dicts and tensors
        self._checked: int = 0  # steps whose losses are known to be finite
        self._every = checkpoint_every
        self._file, self._identity = None if checkpoint is None else Path(checkpoint), dict[str, str]()
        self._written_at, self._duration = -math.inf, 0.0  # of the last checkpoint

    @abstractmethod
    def backward(self) -> None:
        """Compute the gradients of the next step, and record its losses."""

    def identity(self) -> dict[str, str]:
        """Return the properties that define this run, by name; called before the first step, if there is a file."""
        return {
            "configuration": repr(asdict(self.config)),
            "data": self.data.digest(),
            "initial weights": weights_digest(self.model),
            "tracker": "none" if self.tracker is None else self.tracker.identity(),
        }

    def state(self) -> dict[str, Any]:
        """Return what only a checkpoint of this kind of run holds."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        return

    @abstractmethod
    def observe(self) -> str:
        """Measure what is due after a step, and return a note for the report if one is due, else an empty string."""

    def begin(self) -> None:
        """Prepare a run that does not resume."""
        return

    def learning_rate(self) -> float:
        """Return the learning rate of the next step; by default that of the optimiser when it was made."""
        return self.optimizer.defaults["lr"]

    @property
    def ended(self) -> bool:
        """True after the last step."""
        return self.step == self.steps

    def train(self, report: Report) -> None:
        """Make the steps that are left, with the measurements, checkpoints and reports that are due after each.

        PyTorch's settings, the random states, and the mode of the model are restored at the end.

        Raises:
            InputError: as `reproducible` and `resume`, or a loss that is not finite; the checkpoint remains.
        """
        was_training = self.model.training
        with reproducible(self.config.seed, self.config.threads, self.device, self.precision):
            try:
                self._train(report)
            finally:
                self.model.train(was_training)
                self.optimizer.zero_grad(set_to_none=True)

    def _train(self, report: Report) -> None:
        self.resume()
        while not self.ended:
            self.advance()
            note = self.observe()  # first, since it refuses a loss that is not finite before such weights are measured
            if self.tracker is not None:
                self.tracker.step()
                if self.ended:
                    self.tracker.measure()
            due = self.step % self._every == 0 if self._every else self._pause_is_over()
            if self.ended or due:
                self.save()
            if note:
                report(self.step / self.steps, note)

    def advance(self) -> None:
        """Make one step of the optimiser."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
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
                f"learning_rate must be small enough for a finite loss; got {self.optimizer.defaults['lr']!r}, and the "
                f"loss is {losses[first].item()} at step {first}. {self.lower}"
            )
        self._checked = stop

    def save(self) -> None:
        """Write a checkpoint, of finite losses only, in place of the previous one.

        Raises:
            InputError: the folder cannot be written to, or the disk is full.
        """
        self.check_losses()
        if self._file is None:
            return
        began = time.monotonic()
        numpy: Any = np.random.get_state()  # noqa: NPY002  (that of layers that draw from it)
        state = {
            "identity": self._identity,
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "losses": self.losses[: self.step].clone(),
            "random_python": random.getstate(),
            "random_numpy": (numpy[0], numpy[1].tolist(), *numpy[2:]),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            "tracker": None if self.tracker is None else self.tracker.state_dict(),
            "kept": self.kept,
        }
        write_state(self._file, state | self.state())
        self._written_at = time.monotonic()
        self._duration = self._written_at - began

    def _pause_is_over(self) -> bool:
        return self._file is not None and time.monotonic() - self._written_at >= _PAUSE * self._duration

    def resume(self) -> None:
        """Resume from the checkpoint. Without one, write the first, so that a folder that cannot be written fails now.

        Raises:
            InputError: the checkpoint is damaged, of another run, or cannot be written.
        """
        state = None
        if self._file is not None:
            require_writable_file(self._file)
            self._identity = self.identity()
            state = read_state(self._file)
        if state is None:
            self.begin()
            self.save()
            return
        written = state.get("identity", {})
        of_another_version = InputError(
            f"checkpoint must be of this version of saddlescope; got {str(self._file)!r}, which another version, or "
            "another kind of run, has written. Delete this file to start afresh, name another one, or finish the run "
            "with that version."
        )
        if written.keys() != self._identity.keys() or "kept" not in state:
            raise of_another_version
        different = [part for part, value in self._identity.items() if written[part] != value]
        if different:
            raise InputError(
                f"checkpoint must belong to this run; got {str(self._file)!r}, which differs in "
                f"{' and '.join(different)}. Repeat the first call with all its arguments, a model freshly built, or "
                "name another file, or delete this one."
            )
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = self._checked = state["step"]
            self.losses[: self.step] = state["losses"]
            random.setstate(state["random_python"])
            np.random.set_state(state["random_numpy"])  # noqa: NPY002
            torch.set_rng_state(state["random"])
            if state["random_cuda"] is not None:
                torch.cuda.set_rng_state(state["random_cuda"], self.device)
            if self.tracker is not None:
                self.tracker.load_state_dict(state["tracker"])
            self.kept = state["kept"]
            self.restore(state)
        except (KeyError, OldStateError) as error:
            raise of_another_version from error


def weights_digest(model: nn.Module) -> str:
    """Return the SHA-256 of all weights and buffers, with their names, shapes and types."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(repr((name, tuple(tensor.shape), str(tensor.dtype))).encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
