"""The training loop: one function, every step visible, resumable at any moment to the last bit.

Everything that moves is either saved (weights, optimiser, random state, tracker, what was recorded) or a pure function
of the configuration and the number of steps made (the learning rate, the order of the images). So a run that was
killed and called again makes the very steps an uninterrupted one would have made.

To the last bit means: same machine, same PyTorch, same number of threads (`TrainConfig.threads`).
"""

import contextlib
import hashlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor, nn
from torch.nn import functional

from saddlescope.errors import InputError
from saddlescope.train import snapshot
from saddlescope.train.data import ImageData
from saddlescope.train.tracker import RankTracker

_EVALUATION_BATCH = 500  # images; bounds memory, and changes no weight


def _check(
    name: str, value: float | int, *, low: float | int, high: float | int = math.inf, open_low: bool = False
) -> None:
    if not (math.isfinite(value) and (value > low if open_low else value >= low) and value <= high):
        bounds = f"{'above' if open_low else 'at least'} {low}" + (f" and at most {high}" if high < math.inf else "")
        raise InputError(f"{name} must be {bounds}; got {value!r}.")


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam without weight decay; the default rate is the paper's for CIFAR-10 (appendix B.2)."""

    learning_rate: float = 1e-4  # at the top of the schedule
    betas: tuple[float, float] = (0.9, 0.999)  # memory of the first and second moment

    def __post_init__(self) -> None:
        _check("learning_rate", self.learning_rate, low=0, open_low=True)
        for beta in self.betas:
            _check("betas", beta, low=0, high=1 - 1e-12)

    def build(self, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        """PyTorch's optimiser."""
        return torch.optim.Adam(parameters, lr=self.learning_rate, betas=self.betas)


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Stochastic gradient descent; the default rate is the paper's for CIFAR-10 (appendix B.1), without momentum."""

    learning_rate: float = 0.3  # at the top of the schedule
    momentum: float = 0.0  # fraction of the last step that is kept

    def __post_init__(self) -> None:
        _check("learning_rate", self.learning_rate, low=0, open_low=True)
        _check("momentum", self.momentum, low=0, high=1 - 1e-12)

    def build(self, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        """PyTorch's optimiser."""
        return torch.optim.SGD(parameters, lr=self.learning_rate, momentum=self.momentum)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train; the defaults are the paper's for CIFAR-10 with Adam (appendix B.2).

    The learning rate rises linearly over the warm-up and then falls to 0 along half a cosine. Images are not augmented.
    """

    optimizer: Adam | SGD = field(default_factory=Adam)  # Adam(...) or SGD(...)
    epochs: int = 500  # passes over the training images
    warmup_epochs: int = 15  # over which the learning rate rises to its top
    batch: int = 512  # images a step; the last incomplete batch of an epoch is left out
    test_every: int = 1  # epochs between two measurements of test loss and accuracy
    seed: int = 0  # of the order of the images, and of layers that draw random numbers
    threads: int | None = None  # of PyTorch on the processor, while it trains; None leaves them as they are

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "test_every"):
            _check(name, getattr(self, name), low=1)
        _check("warmup_epochs", self.warmup_epochs, low=0, high=self.epochs)
        _check("seed", self.seed, low=0)
        if self.threads is not None:
            _check("threads", self.threads, low=1)

    def learning_rate(self, step: int, steps_an_epoch: int) -> float:
        """The learning rate of the step with this number, from 0."""
        warmup = self.warmup_epochs * steps_an_epoch
        top = self.optimizer.learning_rate
        if step < warmup:
            return top * (step + 1) / warmup
        remaining = max(self.epochs * steps_an_epoch - warmup, 1)
        return top * (1 + math.cos(math.pi * (step - warmup) / remaining)) / 2


@dataclass(frozen=True, eq=False)
class History:
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
        checkpoint_every: steps between two checkpoints; None: once an epoch. Changes no result.
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
        _check("checkpoint_every", checkpoint_every, low=1)
    path = None if checkpoint is None else Path(checkpoint)
    was_training = model.training
    with _reproducible(config.seed, config.threads, next(model.parameters()).device):
        run = _Run(model, data, config, steps_an_epoch, tracker)
        if path is not None:
            run.resume(path)
        try:
            if not run.tests:
                run.test()
                if path is not None:
                    run.keep(path)  # so that a folder which cannot be written to is known before the work
            while run.step < run.steps:
                run.advance()
                epoch, within = divmod(run.step, steps_an_epoch)
                ended = run.step == run.steps
                if ended or (within == 0 and epoch % config.test_every == 0):
                    run.test()
                if ended and tracker is not None:
                    tracker.measure()
                if path is not None and (ended or run.step % (checkpoint_every or steps_an_epoch) == 0):
                    run.keep(path)
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
    ) -> None:
        self.model, self.data, self.config, self.tracker = model, data, config, tracker
        self.steps_an_epoch = steps_an_epoch
        parameter = next(model.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        self.optimizer = config.optimizer.build(model.parameters())
        self.step, self.steps = 0, config.epochs * steps_an_epoch
        self.train_loss = torch.zeros(self.steps, dtype=torch.float32)
        self.tests: list[tuple[int, float, float]] = []  # step, loss, accuracy
        self._order: tuple[int, np.ndarray] | None = None
        self._identity: dict[str, str] | None = None

    def advance(self) -> None:
        """One step of the optimiser."""
        epoch, within = divmod(self.step, self.steps_an_epoch)
        chosen = self.order(epoch)[within * self.config.batch : (within + 1) * self.config.batch]
        images, labels = self.batch(self.data.train_images[chosen], self.data.train_labels[chosen])
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate(self.step, self.steps_an_epoch)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(self.model(images), labels)
        self.train_loss[self.step] = loss.item()
        if not math.isfinite(self.train_loss[self.step]):
            raise InputError(
                f"learning_rate must be small enough for a finite loss; got {self.config.optimizer.learning_rate!r}, "
                f"and the loss is {loss.item()} at step {self.step}. Lower it, or lengthen the warm-up."
            )
        loss.backward()
        self.optimizer.step()
        self.step += 1
        if self.tracker is not None:
            self.tracker.step()

    @torch.no_grad()
    def test(self) -> None:
        """Records loss and accuracy over the test images."""
        self.model.eval()
        loss, correct, count = 0.0, 0, len(self.data.test_images)
        for start in range(0, count, _EVALUATION_BATCH):
            part = slice(start, start + _EVALUATION_BATCH)
            images, labels = self.batch(self.data.test_images[part], self.data.test_labels[part])
            logits = self.model(images)
            if logits.ndim != 2 or logits.shape[1] < self.data.classes:
                raise InputError(
                    f"model must give a logit for each of the {self.data.classes} classes; got shape "
                    f"{tuple(logits.shape)!r} for {len(images)} images."
                )
            loss += functional.cross_entropy(logits, labels, reduction="sum").item()
            correct += int((logits.argmax(dim=1) == labels).sum())
        self.tests.append((self.step, loss / count, correct / count))

    def batch(self, images: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
        """Standardised images and their labels on the model's device."""
        columns = (1, -1, 1, 1)
        mean = torch.from_numpy(self.data.mean).to(self.device, self.dtype).view(columns)
        deviation = torch.from_numpy(self.data.deviation).to(self.device, self.dtype).view(columns)
        pixels = torch.from_numpy(np.array(images)).to(self.device, self.dtype)
        return (pixels / self.data.white - mean) / deviation, torch.from_numpy(labels).to(self.device)

    def order(self, epoch: int) -> np.ndarray:
        """The order of the training images in an epoch: a function of seed and epoch alone."""
        if self._order is None or self._order[0] != epoch:
            keys = np.random.PCG64([self.config.seed, epoch]).random_raw(len(self.data.train_images))
            self._order = epoch, np.argsort(keys, kind="stable")
        return self._order[1]

    def history(self) -> History:
        """What was recorded."""
        steps, losses, accuracies = zip(*self.tests, strict=True)
        return History(
            steps_an_epoch=self.steps_an_epoch,
            train_loss=self.train_loss[: self.step].numpy(),
            test_steps=np.array(steps, dtype=np.int64),
            test_loss=np.array(losses),
            test_accuracy=np.array(accuracies),
        )

    def identity(self) -> dict[str, str]:
        """What makes this run this run: a checkpoint of another one is never used. Asked before the first step."""
        if self._identity is None:
            weights = hashlib.sha256()
            for name, tensor in self.model.state_dict().items():
                weights.update(repr((name, tuple(tensor.shape), str(tensor.dtype))).encode())
                weights.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
            self._identity = {
                "configuration": repr((type(self.config.optimizer).__name__, asdict(self.config))),
                "data": self.data.digest(),
                "initial weights": weights.hexdigest(),
                "tracker": "none" if self.tracker is None else self.tracker.identity(),
            }
        return self._identity

    def keep(self, path: Path) -> None:
        """Writes a checkpoint."""
        state: dict[str, Any] = {
            "identity": self.identity(),
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "train_loss": self.train_loss[: self.step].clone(),
            "tests": [list(test) for test in self.tests],
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            "tracker": None if self.tracker is None else self.tracker.state_dict(),
        }
        snapshot.write(path, state)

    def resume(self, path: Path) -> None:
        """Goes on from a checkpoint, where there is one."""
        identity = self.identity()
        state = snapshot.read(path)
        if state is None:
            return
        theirs = state.get("identity", {})
        if different := [part for part, ours in identity.items() if theirs.get(part) != ours]:
            raise InputError(
                f"checkpoint must belong to this very run; got {str(path)!r}, whose {' and '.join(different)} differ. "
                "Call fit as before, with a freshly built model, or name another file, or delete this one."
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        self.train_loss[: self.step] = state["train_loss"]
        self.tests = [(step, loss, accuracy) for step, loss, accuracy in state["tests"]]
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
        if self.tracker is not None:
            self.tracker.load_state_dict(state["tracker"])


@contextlib.contextmanager
def _reproducible(seed: int, threads: int | None, device: torch.device) -> Iterator[None]:
    """Seeds the global random state, sets threads and asks for deterministic algorithms; puts all back as they were."""
    on_cuda = device.type == "cuda"
    if on_cuda and "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
        raise InputError(
            "CUBLAS_WORKSPACE_CONFIG must be set for reproducible training on a GPU; got nothing. Set it to :4096:8 "
            "in the environment before Python starts."
        )
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory
    threads_before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        torch.manual_seed(seed)
        try:
            torch.use_deterministic_algorithms(True)
            torch.set_num_threads(threads or threads_before)
            memory.fill_uninitialized_memory = False  # no effect on results, only on time
            yield
        finally:
            torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
            torch.set_num_threads(threads_before)
            memory.fill_uninitialized_memory = fill
