"""Training of image classifiers: one function, resumable after any interruption to the last bit.

All that changes is either saved (weights, optimiser, random state, tracker, records) or a function of the configuration
and of the number of steps made (the learning rate, the order of the images). So a killed run that is called again makes
the same steps as an uninterrupted one.

"To the last bit" holds on the same machine, with the same PyTorch and number of threads (`TrainConfig.threads`).

On a GPU the images are stored there (see `saddlescope.training.image_batches`) and no step waits for it: losses stay on
the device until the end of an epoch.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn
from torch.nn import functional

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.ranks.tracker.rank_tracker import RankTracker
from saddlescope.training.configuration import TrainConfig
from saddlescope.training.data import ImageData
from saddlescope.training.image_batches import DeviceBatches, epoch_order
from saddlescope.training.torch_settings import autocast
from saddlescope.training.training_run import TrainingRun

_EVALUATION_BATCH = 500  # images; bounds memory, and changes no weight


@dataclass(frozen=True, eq=False, repr=False)
class History(ReprMixin):
    """Losses and accuracies of a run.

    Attributes:
        steps_per_epoch: optimiser steps per epoch.
        train_loss: cross-entropy in nats of each step's batch, before the step; shape (steps,).
        test_steps: numbers of steps after which the test images were evaluated; the first is 0, the last the end.
        test_loss, test_accuracy: over all test images; in nats, and as a fraction.
    """

    steps_per_epoch: int
    train_loss: Float32[np.ndarray, " steps"]
    test_steps: Int64[np.ndarray, " tests"]
    test_loss: Float[np.ndarray, " tests"]
    test_accuracy: Float[np.ndarray, " tests"]

    def __repr__(self) -> str:
        steps, tests = len(self.train_loss), len(self.test_steps)
        trained = f", training loss {self.train_loss[0]:.3g} to {self.train_loss[-1]:.3g}" if steps else ""
        tested = f", test accuracy {self.test_accuracy[-1]:.4g} at step {self.test_steps[-1]}" if tests else ""
        return f"History({steps} steps, {self.steps_per_epoch} per epoch{trained}{tested})"


@validate_arguments
def fit(
    model: nn.Module,
    data: ImageData,
    config: TrainConfig,
    *,
    checkpoint: Path | str | None = None,
    checkpoint_every: int | None = None,
    tracker: RankTracker | None = None,
    report: Report = silent,
) -> History:
    """Train `model` in place with the cross-entropy loss, or resume a killed run.

    With `checkpoint`, repeat the call (the same freshly built model, data and configuration) after any interruption:
    the results are the same to the last bit. A finished run returns at once. During the run PyTorch uses deterministic
    algorithms; that setting and the random state are restored at the end.

    Args:
        model: from standardised images (batch, channels, height, width) to logits; trained on the device and in the
            floating-point type of its parameters.
        data: the images.
        config: optimiser, batches, epochs and precision.
        checkpoint: the file to resume from and to update; None disables it.
        checkpoint_every: steps between two checkpoints; None: so far apart that writing takes at most 2 % of the time.
            Changes no result.
        tracker: measured after each step on its own schedule, and once at the end.
        report: called with the finished fraction and a short note once per epoch.

    Raises:
        InputError: a batch larger than the training set, a checkpoint that is damaged, of another run, or cannot be
            written, outputs that are not logits of the classes, or a loss that is not finite (the checkpoint remains).
    """
    if len(data.train_images) < config.batch:
        raise InputError(f"batch must be at most the {len(data.train_images)} training images; got {config.batch!r}.")
    run = ImageRun(model, data, config, tracker, checkpoint, checkpoint_every)
    run.train(report)
    return run.history()


class ImageRun(TrainingRun):
    """State of one call of `fit`, or of one that extends it."""

    lower = "Lower it, or lengthen the warm-up."

    def __init__(
        self,
        model: nn.Module,
        data: ImageData,
        config: TrainConfig,
        tracker: RankTracker | None,
        checkpoint: Path | str | None,
        checkpoint_every: int | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        parameter = next(model.parameters())
        self.data, self.config, self.precision, self.dtype = data, config, config.precision, parameter.dtype
        self.steps_per_epoch = len(data.train_images) // config.batch
        super().__init__(
            model,
            optimizer or config.optimizer.build(model.parameters()),
            torch.zeros(config.epochs * self.steps_per_epoch, dtype=torch.float32, device=parameter.device),
            tracker=tracker,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
        )
        self.forward: Callable[[Tensor], Tensor] = torch.compile(model, dynamic=False) if config.compiled else model
        self.images = {half: DeviceBatches(data, half, self.device, self.dtype) for half in ("train", "test")}
        self._ordered = -1  # the epoch whose order the training images have

    def learning_rate(self) -> float:
        """Return that of the schedule."""
        return self.config.learning_rate(self.step, self.steps_per_epoch)

    def observe(self) -> str:
        """Test at the ends of epochs that are due."""
        epoch, position = divmod(self.step, self.steps_per_epoch)
        ends = position == 0
        if ends:
            self.check_losses()
        if self.ended or (ends and epoch % self.config.test_every == 0):
            self.test()
        return f"epoch {epoch} of {self.config.epochs}, test accuracy {self.kept[-1][2]:.3f}" if ends else ""

    def backward(self) -> None:
        """Compute the gradients of the next batch, piece by piece."""
        epoch, position = divmod(self.step, self.steps_per_epoch)
        if self._ordered != epoch:
            self.images["train"].set_order(epoch_order(len(self.data.train_images), self.config.seed, epoch))
            self._ordered = epoch
        size, first = self.config.batch // self.config.pieces, position * self.config.batch
        for start in range(first, first + self.config.batch, size):
            images, labels = self.images["train"].batch(start, start + size)
            loss = functional.cross_entropy(self.logits(images), labels) / self.config.pieces
            self.losses[self.step].add_(loss.detach())
            loss.backward()

    def logits(self, images: Tensor) -> Tensor:
        """Return the model's outputs, in the type of its weights."""
        with autocast(self.device, self.config.precision):
            return self.forward(images).to(self.dtype)

    def begin(self) -> None:
        """Evaluate the initial weights."""
        self.test()

    @torch.no_grad()
    def test(self) -> None:
        """Record the step, and loss and accuracy over the test images."""
        self.model.eval()
        count, found = len(self.data.test_images), []
        for start in range(0, count, _EVALUATION_BATCH):
            images, labels = self.images["test"].batch(start, min(start + _EVALUATION_BATCH, count))
            logits = self.logits(images)
            if logits.ndim != 2 or logits.shape[1] < self.data.classes:
                raise InputError(
                    f"model must return a logit for each of the {self.data.classes} classes; got shape "
                    f"{tuple(logits.shape)!r} for {len(images)} images."
                )
            loss = functional.cross_entropy(logits, labels, reduction="sum")
            found.append(torch.stack([loss, (logits.argmax(dim=1) == labels).sum().to(loss.dtype)]))
        losses, correct = zip(*torch.stack(found).tolist(), strict=True)
        self.kept.append((self.step, sum(losses) / count, sum(correct) / count))

    def history(self) -> History:
        """Return the records."""
        steps, losses, accuracies = zip(*self.kept, strict=True)
        return History(
            steps_per_epoch=self.steps_per_epoch,
            train_loss=self.losses[: self.step].cpu().numpy(),
            test_steps=np.array(steps, dtype=np.int64),
            test_loss=np.array(losses),
            test_accuracy=np.array(accuracies),
        )

    def identity(self) -> dict[str, str]:
        """Return the properties that define this run."""
        optimizer = type(self.config.optimizer).__name__
        return super().identity() | {"configuration": repr((optimizer, asdict(self.config)))}
