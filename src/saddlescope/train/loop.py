"""The training loop: one function, every step visible, resumable at any moment to the last bit.

Everything that moves is either saved (weights, optimiser, random state, tracker, what was recorded) or a pure function
of the configuration and the number of steps made (the learning rate, the order of the images). So a run that was
killed and called again makes the very steps an uninterrupted one would have made.

To the last bit means: same machine, same PyTorch, same number of threads (`TrainConfig.threads`).

On a GPU the images lie on it (see `saddlescope.train.batches`) and no step waits for it: losses stay there until the end
of an epoch.
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
from saddlescope._shared.reprs import ReprMixin
from saddlescope.train.batches import Feed, shuffled
from saddlescope.train.configuration import TrainConfig, check
from saddlescope.train.data import ImageData
from saddlescope.train.numerics import autocast, check_losses, reproducible
from saddlescope.train.run_checkpoint import Checkpointer, fingerprint
from saddlescope.train.tracker.rank_tracker import RankTracker

_EVALUATION_BATCH = 500  # images; bounds memory, and changes no weight


@dataclass(frozen=True, eq=False, repr=False)
class History(ReprMixin):
    """What a run recorded.

    Attributes:
        steps_an_epoch: optimiser steps an epoch.
        train_loss: cross-entropy in nats of each step's batch, before the step; shape (steps,).
        test_steps: after how many steps the test images were looked at; the first is 0, the last the end.
        test_loss, test_accuracy: over all test images; in nats, and as a fraction.
    """

    steps_an_epoch: int
    train_loss: Float32[np.ndarray, " steps"]
    test_steps: Int64[np.ndarray, " tests"]
    test_loss: Float[np.ndarray, " tests"]
    test_accuracy: Float[np.ndarray, " tests"]

    def __repr__(self) -> str:
        steps, tests = len(self.train_loss), len(self.test_steps)
        trained = f", training loss {self.train_loss[0]:.3g} to {self.train_loss[-1]:.3g}" if steps else ""
        tested = f", test accuracy {self.test_accuracy[-1]:.4g} at step {self.test_steps[-1]}" if tests else ""
        return f"History({steps} steps, {self.steps_an_epoch} an epoch{trained}{tested})"


@validate_arguments
def fit(
    model: nn.Module,
    data: ImageData,
    config: TrainConfig,
    *,
    checkpoint: Path | str | None = None,
    checkpoint_every: int | None = None,
    tracker: RankTracker | None = None,
    report: Callable[[float, str], None] | None = None,
) -> History:
    """Trains `model` in place with the cross-entropy loss, or goes on where a killed run left off.

    With `checkpoint`, call it again the same way (the same freshly built model, data and configuration) after whatever
    ended the run: the results are the same to the last bit. A finished run returns at once. While it runs, PyTorch is
    held to deterministic algorithms; that setting and the random state are put back at the end.

    Args:
        model: from standardised images (batch, channels, height, width) to logits; trained on the device and in the
            floating-point type of its parameters.
        data: the images.
        config: how to train.
        checkpoint: the file to resume from and to keep up to date; None keeps nothing.
        checkpoint_every: steps between two checkpoints; None: at ends of epochs, so far apart that writing takes at
            most 2 % of the time. Changes no result.
        tracker: measured after each step on its own schedule, and once at the end.
        report: called with the finished fraction and a short note once an epoch.

    Raises:
        InputError: a batch larger than the training set, a checkpoint that is damaged, of another run, or cannot be
            written, outputs that are no logits of the classes, or a loss that is not finite (the checkpoint stays).
    """
    steps_an_epoch = len(data.train_images) // config.batch
    if steps_an_epoch == 0:
        raise InputError(f"batch must be at most the {len(data.train_images)} training images; got {config.batch!r}.")
    if checkpoint_every is not None:
        check("checkpoint_every", checkpoint_every, low=1)
    was_training = model.training
    device = next(model.parameters()).device
    with reproducible(config.seed, config.threads, device, config.precision):
        run = _Run(model, data, config, steps_an_epoch, tracker, checkpoint)
        run.resume()
        try:
            if not run.tests:
                run.test()
                run.keep()  # so that a folder which cannot be written to is known before the work
            while run.step < run.steps:
                run.advance()
                epoch, within = divmod(run.step, steps_an_epoch)
                ended = run.step == run.steps
                if within == 0:
                    run.check_losses()
                if ended or (within == 0 and epoch % config.test_every == 0):
                    run.test()
                if ended and tracker is not None:
                    tracker.measure()
                due = run.step % checkpoint_every == 0 if checkpoint_every else within == 0 and run.keeper.rested()
                if ended or due:
                    run.keep()
                if within == 0 and report is not None:
                    accuracy = run.tests[-1][2]
                    report(epoch / config.epochs, f"epoch {epoch} of {config.epochs}, test accuracy {accuracy:.3f}")
        finally:
            model.train(was_training)
    return run.history()


class _Run:
    """The state of one call of `fit`, and what is done with it."""

    def __init__(
        self,
        model: nn.Module,
        data: ImageData,
        config: TrainConfig,
        steps_an_epoch: int,
        tracker: RankTracker | None,
        checkpoint: Path | str | None,
    ) -> None:
        self.model, self.data, self.config, self.tracker = model, data, config, tracker
        self.steps_an_epoch = steps_an_epoch
        parameter = next(model.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        self.optimizer = config.optimizer.build(model.parameters())
        self.forward: Callable[[Tensor], Tensor] = torch.compile(model, dynamic=False) if config.compiled else model
        self.images = {half: Feed(data, half, self.device, self.dtype) for half in ("train", "test")}
        self.step, self.steps = 0, config.epochs * steps_an_epoch
        self.train_loss = torch.zeros(self.steps, dtype=torch.float32, device=self.device)
        self.tests: list[tuple[int, float, float]] = []  # step, loss, accuracy
        self._arranged = -1  # the epoch whose order the training images are in
        self._checked = 0  # steps whose losses are known to be finite
        self.keeper = Checkpointer(
            checkpoint,
            self.identity,
            cure="Call fit as before, with a freshly built model, or name another file, or delete this one.",
        )

    def advance(self) -> None:
        """One step of the optimiser."""
        epoch, within = divmod(self.step, self.steps_an_epoch)
        if self._arranged != epoch:
            self.images["train"].arrange(shuffled(len(self.data.train_images), self.config.seed, epoch))
            self._arranged = epoch
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate(self.step, self.steps_an_epoch)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        size, first = self.config.batch // self.config.pieces, within * self.config.batch
        for start in range(first, first + self.config.batch, size):
            images, labels = self.images["train"].batch(start, start + size)
            loss = functional.cross_entropy(self.logits(images), labels) / self.config.pieces
            self.train_loss[self.step].add_(loss.detach())
            loss.backward()
        if self.device.type == "cpu":
            self.check_losses(self.step + 1)  # elsewhere that would wait for the device at every step
        self.optimizer.step()
        self.step += 1
        if self.tracker is not None:
            self.tracker.step()

    def logits(self, images: Tensor) -> Tensor:
        """What the model says, in the type of its weights."""
        with autocast(self.device, self.config.precision):
            return self.forward(images).to(self.dtype)

    def check_losses(self, until: int | None = None) -> None:
        """Refuses a loss that is not finite, of the steps up to `until` (those made) that were not looked at yet."""
        self._checked = check_losses(
            self.train_loss,
            self.step if until is None else until,
            checked=self._checked,
            learning_rate=self.config.optimizer.learning_rate,
            cure="Lower it, or lengthen the warm-up.",
        )

    @torch.no_grad()
    def test(self) -> None:
        """Records loss and accuracy over the test images."""
        self.model.eval()
        count, found = len(self.data.test_images), []
        for start in range(0, count, _EVALUATION_BATCH):
            images, labels = self.images["test"].batch(start, min(start + _EVALUATION_BATCH, count))
            logits = self.logits(images)
            if logits.ndim != 2 or logits.shape[1] < self.data.classes:
                raise InputError(
                    f"model must give a logit for each of the {self.data.classes} classes; got shape "
                    f"{tuple(logits.shape)!r} for {len(images)} images."
                )
            loss = functional.cross_entropy(logits, labels, reduction="sum")
            found.append(torch.stack([loss, (logits.argmax(dim=1) == labels).sum().to(loss.dtype)]))
        losses, correct = zip(*torch.stack(found).tolist(), strict=True)
        self.tests.append((self.step, sum(losses) / count, sum(correct) / count))

    def history(self) -> History:
        """What was recorded."""
        steps, losses, accuracies = zip(*self.tests, strict=True)
        return History(
            steps_an_epoch=self.steps_an_epoch,
            train_loss=self.train_loss[: self.step].cpu().numpy(),
            test_steps=np.array(steps, dtype=np.int64),
            test_loss=np.array(losses),
            test_accuracy=np.array(accuracies),
        )

    def identity(self) -> dict[str, str]:
        """What makes this run this run; asked before the first step."""
        return {
            "configuration": repr((type(self.config.optimizer).__name__, asdict(self.config))),
            "data": self.data.digest(),
            "initial weights": fingerprint(self.model),
            "tracker": "none" if self.tracker is None else self.tracker.identity(),
        }

    def keep(self) -> None:
        """Writes a checkpoint, of finite losses only."""
        self.check_losses()
        self.keeper.write(
            {
                "step": self.step,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "train_loss": self.train_loss[: self.step].clone(),
                "tests": [list(test) for test in self.tests],
                "random": torch.get_rng_state(),
                "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
                "tracker": None if self.tracker is None else self.tracker.state_dict(),
            }
        )

    def resume(self) -> None:
        """Goes on from a checkpoint, where there is one."""
        state = self.keeper.read()
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = self._checked = state["step"]
        self.train_loss[: self.step] = state["train_loss"]
        self.tests = [(step, loss, accuracy) for step, loss, accuracy in state["tests"]]
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        if self.tracker is not None:
            self.tracker.load_state_dict(state["tracker"])
