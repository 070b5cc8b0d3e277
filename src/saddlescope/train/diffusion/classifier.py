"""A classifier of colour and size, trained on true images of all four classes (appendix G.3 of Yang et al., 2024).

The U-Net's backbone without time and condition, the maximum of every feature over all pixels, and a small MLP with two
outputs: the log odds of blue against red and of small against big. The paper trains it on "a large amount of data";
here no image is seen twice: each step draws a new batch, as a function of the seed and of the number of steps made. So
no random state is kept, and a killed run goes on to the same bits.

It tells which class an image is nearer to, not how far it is on the way: between two class means its probability jumps,
where the direct estimator (`saddlescope.train.diffusion.positions`) moves.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.reprs import in_line
from saddlescope.train.configuration import check
from saddlescope.train.diffusion.circles import CLASSES, CONCEPTS, CircleProcess
from saddlescope.train.diffusion.unet import Backbone, Normalization, UNetConfig, initialise
from saddlescope.train.numerics import available, check_losses, reproducible
from saddlescope.train.run_checkpoint import Checkpointer, fingerprint

_TRAINING, _HELD_OUT = 1, 2  # third number of the seeds of images: streams apart from each other and from all others
_AT_ONCE = 256  # images classified together; bounds memory
_REPORTS = 100  # in a run


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """The classifier and how it is trained: the paper's 10k steps, and where it is silent what the model itself has."""

    channels: tuple[int, ...] = (64, 128, 256)  # width of each level of the backbone, from the finest
    blocks: int = 2  # residual blocks a level
    normalization: Normalization = "layer"  # see `saddlescope.train.diffusion.unet`
    hidden: int = 64  # width of the MLP
    steps: int = 10_000  # of the optimiser, each on new images
    batch: int = 128  # images a step, of all four classes in turn
    learning_rate: float = 1e-3  # of AdamW, constant
    weight_decay: float = 0.01  # of AdamW, times the learning rate
    held_out: int = 4096  # true images for the accuracy
    seed: int = 0  # of the initial weights and of all images
    threads: int | None = None  # of PyTorch on the processor, while it trains; None leaves its setting

    def __post_init__(self) -> None:
        for name in ("hidden", "steps", "batch"):
            check(name, getattr(self, name), low=1)
        check("held_out", self.held_out, low=len(CLASSES))
        check("learning_rate", self.learning_rate, low=0, open_low=True)
        check("weight_decay", self.weight_decay, low=0)
        check("seed", self.seed, low=0)
        if self.threads is not None:
            check("threads", self.threads, low=1)

    def backbone(self, pixels: int) -> UNetConfig:
        """The sizes of the backbone for images of that many pixels a side.

        Raises:
            InputError: sizes that do not fit each other.
        """
        return UNetConfig(pixels=pixels, channels=self.channels, blocks=self.blocks, normalization=self.normalization)


class ConceptClassifier(nn.Module):
    """Log odds of blue and of small.

    The initial weights depend on the sizes and `seed` alone.

    Args:
        backbone: the sizes of the U-Net.
        hidden: width of the MLP.
        seed: of the initial weights.

    >>> model = ConceptClassifier(UNetConfig(pixels=8, channels=(8, 16), blocks=1))
    >>> model(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 2])
    """

    def __init__(self, backbone: UNetConfig, *, hidden: int = 64, seed: int = 0) -> None:
        super().__init__()
        self.backbone = Backbone(backbone, seed=seed)
        with torch.device("meta"):
            self.head = nn.Sequential(
                nn.Linear(backbone.channels[0], hidden), nn.GELU(), nn.Linear(hidden, len(CONCEPTS))
            )
        initialise(self.head, seed)

    def forward(self, images: Float[Tensor, "batch 3 side side"]) -> Float[Tensor, "batch 2"]:
        """The log odds, for images from 0 to 1."""
        return self.head(self.backbone(images).amax(dim=(2, 3)))

    @torch.no_grad()
    def probabilities(
        self, images: Float[np.ndarray, "n 3 side side"] | UInt8[np.ndarray, "n 3 side side"]
    ) -> Float64[np.ndarray, "n 2"]:
        """P(blue) and P(small), on the device of the weights.

        Args:
            images: from 0 to 1, or bytes from 0 to 255; no image of another size.
        """
        device, found = next(self.parameters()).device, []
        for start in range(0, len(images), _AT_ONCE):
            part = torch.from_numpy(np.ascontiguousarray(images[start : start + _AT_ONCE])).to(device)
            scaled = part.to(torch.float32) / (255 if images.dtype == np.uint8 else 1)
            found.append(self(scaled).double().sigmoid().cpu().numpy())
        return np.concatenate(found) if found else np.empty((0, len(CONCEPTS)))


class FittedClassifier(NamedTuple):
    """A trained classifier.

    Attributes:
        classifier: ready for use.
        accuracy: on true images never trained on, the fraction classified rightly, (color, size).
    """

    classifier: ConceptClassifier
    accuracy: Float64[np.ndarray, " concept"]

    def __repr__(self) -> str:
        return in_line("FittedClassifier", self._asdict().items())


@validate_arguments
def fit_classifier(
    process: CircleProcess,
    config: ClassifierConfig,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Path | str | None = None,
    report: Callable[[float, str], None] | None = None,
) -> FittedClassifier:
    """Trains a classifier on true images of the process, or goes on where a killed run left off.

    With `checkpoint`, call it again the same way after whatever ended the run: the result is the same to the last bit,
    on the same machine with the same PyTorch and number of threads. A finished run returns at once.

    Args:
        process: that draws the images.
        config: the classifier and how to train it.
        device: where to train; the classifier stays there.
        checkpoint: the file to resume from and to keep up to date; None keeps nothing.
        report: called with the finished fraction and a short note a hundred times.

    Raises:
        InputError: sizes that do not fit each other, no such device, a checkpoint that is damaged, of another run, or
            cannot be written, or a loss that is not finite (the checkpoint stays).
    """
    place = available(device)
    with reproducible(config.seed, config.threads, place, "float32"):
        run = _Run(process, config, place, checkpoint)
        run.resume()
        while run.step < config.steps:
            run.advance()
            if run.step == config.steps:
                run.accuracy = run.held_out()
            if run.step == config.steps or run.keeper.rested():
                run.keep()
            if report is not None and run.step % max(config.steps // _REPORTS, 1) == 0:
                loss = run.losses[run.step - 1].item()
                report(run.step / config.steps, f"classifier, step {run.step} of {config.steps}, loss {loss:.2g} nats")
    return FittedClassifier(run.model.eval(), run.accuracy)


class _Run:
    """The state of one call of `fit_classifier`, and what is done with it."""

    def __init__(
        self, process: CircleProcess, config: ClassifierConfig, device: torch.device, checkpoint: Path | str | None
    ) -> None:
        self.process, self.config, self.device = process, config, device
        backbone = config.backbone(process.pixels)
        self.model = ConceptClassifier(backbone, hidden=config.hidden, seed=config.seed).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        self.step = self._checked = 0  # steps made, and those whose losses are known to be finite
        self.losses = torch.zeros(config.steps, device=device)  # cross-entropy in nats, summed over the concepts
        self.accuracy = np.full(len(CONCEPTS), np.nan)
        self.keeper = Checkpointer(
            checkpoint,
            self.identity,
            cure="Call fit_classifier as before, or name another file, or delete this one.",
        )

    def advance(self) -> None:
        """One step of the optimiser; a GPU works on the step before while its images are drawn."""
        images, wanted = self.drawn(self.config.batch, self.step, _TRAINING)
        targets = torch.from_numpy(wanted).to(self.device)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(torch.from_numpy(images).to(self.device))
        loss = len(CONCEPTS) * functional.binary_cross_entropy_with_logits(logits, targets)
        self.losses[self.step] = loss.detach()
        loss.backward()
        if self.device.type == "cpu":
            self.check_losses(self.step + 1)  # elsewhere that would wait for the device at every step
        self.optimizer.step()
        self.step += 1

    def drawn(
        self, count: int, part: int, stream: int
    ) -> tuple[Float32[np.ndarray, "n 3 side side"], Float32[np.ndarray, "n 2"]]:
        """True images of all classes in turn, and whether each is blue and small, 0 or 1."""
        classes = np.arange(count) % len(CLASSES)
        images = self.process.draw(classes, seed=(self.config.seed, part, stream)).images
        return images, np.stack([classes // 2, classes % 2], axis=1).astype(np.float32)

    def held_out(self) -> Float64[np.ndarray, " concept"]:
        """The accuracy by concept on true images never trained on."""
        images, wanted = self.drawn(self.config.held_out, 0, _HELD_OUT)
        return np.mean((self.model.eval().probabilities(images) > 0.5) == (wanted == 1), axis=0)

    def check_losses(self, made: int) -> None:
        """Refuses a loss that is not finite, of the first `made` steps."""
        self._checked = check_losses(
            self.losses, made, checked=self._checked, learning_rate=self.config.learning_rate, cure="Lower it."
        )

    def identity(self) -> dict[str, str]:
        """What makes this run this run."""
        return {
            "configuration": repr(asdict(self.config)),
            "data": self.process.digest(),
            "initial weights": fingerprint(self.model),
            "device": self.device.type,
        }

    def keep(self) -> None:
        """Writes a checkpoint, of finite losses only."""
        self.check_losses(self.step)
        self.keeper.write(
            {
                "step": self.step,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "losses": self.losses[: self.step].clone(),
                "accuracy": self.accuracy.tolist(),
            }
        )

    def resume(self) -> None:
        """Goes on from a checkpoint; where there is none, writes one: whether that can be is known before the work."""
        state = self.keeper.read()
        if state is None:
            self.keep()
            return
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = self._checked = state["step"]
        self.losses[: self.step] = state["losses"]
        self.accuracy = np.array(state["accuracy"])
