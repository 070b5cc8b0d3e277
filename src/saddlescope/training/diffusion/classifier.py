"""A classifier of colour and size, trained on true images of all four classes (appendix G.3 of Yang et al., 2024).

The U-Net's backbone without time and condition, the maximum of every feature over all pixels, and a small MLP with two
outputs: the log odds of blue against red and of small against big. The paper trains it on "a large amount of data";
here no image is seen twice: each step draws a new batch, as a function of the seed and of the number of steps made. So
no random state is stored, and a killed run resumes to the same bits.

The classifier decides which class mean is nearer, not how near: between two class means its probability jumps, while
the direct estimator (`saddlescope.training.diffusion.positions`) changes linearly.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import in_line
from saddlescope.training.configuration import Bounds, Configuration, Count, NonNegative, Positive, Seed, Threads
from saddlescope.training.diffusion.circles import CLASSES, CONCEPTS, CircleProcess
from saddlescope.training.diffusion.unet import Backbone, Normalization, UNetConfig, initialise
from saddlescope.training.torch_settings import available_device
from saddlescope.training.training_run import TrainingRun

_TRAINING, _HELD_OUT = 1, 2  # third number of the seeds of images: independent streams
_AT_ONCE = 256  # images classified together; bounds memory
_REPORTS = 100  # per run


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(Configuration):
    """Configuration of the classifier: the paper's 10k steps, otherwise the settings of the diffusion model."""

    channels: Annotated[tuple[int, ...], Bounds(1)] = (
        64,
        128,
        256,
    )  # width of each level of the backbone, from the finest
    blocks: Count = 2  # residual blocks per level
    normalization: Normalization = "layer"  # see `saddlescope.training.diffusion.unet`
    hidden: Count = 64  # width of the MLP
    steps: Count = 10_000  # of the optimiser, each on new images
    batch: Count = 128  # images per step, of all four classes in turn
    learning_rate: Positive = 1e-3  # of AdamW, constant
    weight_decay: NonNegative = 0.01  # of AdamW, times the learning rate
    held_out: Annotated[int, Bounds(len(CLASSES))] = 4096  # number of true images for the accuracy
    seed: Seed = 0  # seed of the initial weights and of all images
    threads: Threads = None  # PyTorch threads on the processor during training; None leaves the number unchanged

    def backbone(self, pixels: int) -> UNetConfig:
        """Return the sizes of the backbone for images of this side length in pixels.

        Raises:
            InputError: inconsistent sizes.
        """
        return UNetConfig(pixels=pixels, channels=self.channels, blocks=self.blocks, normalization=self.normalization)


class ConceptClassifier(nn.Module):
    """Classifier of colour and size, with the log odds of blue and of small as outputs.

    The initial weights depend on the sizes and `seed` alone.

    Args:
        backbone: the sizes of the U-Net.
        hidden: width of the MLP.
        seed: seed of the initial weights.

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
        """Return the log odds, for images from 0 to 1."""
        return self.head(self.backbone(images).amax(dim=(2, 3)))

    @torch.no_grad()
    def probabilities(
        self, images: Float[np.ndarray, "n 3 side side"] | UInt8[np.ndarray, "n 3 side side"]
    ) -> Float64[np.ndarray, "n 2"]:
        """Return P(blue) and P(small), computed on the device of the weights.

        Args:
            images: numbers from 0 to 1, or bytes from 0 to 255, with the side length of the training images.
        """
        device, found = next(self.parameters()).device, []
        for start in range(0, len(images), _AT_ONCE):
            part = torch.from_numpy(np.ascontiguousarray(images[start : start + _AT_ONCE])).to(device)
            scaled = part.to(torch.float32) / (255 if images.dtype == np.uint8 else 1)
            found.append(self(scaled).double().sigmoid().cpu().numpy())
        return np.concatenate(found) if found else np.empty((0, len(CONCEPTS)))


class FittedClassifier(NamedTuple):
    """Trained classifier.

    Attributes:
        classifier: the classifier, in evaluation mode.
        accuracy: fraction of correctly classified true images outside the training set, (color, size).
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
    report: Report = silent,
) -> FittedClassifier:
    """Train a classifier on true images of the process, or resume a killed run.

    With `checkpoint`, repeat the call after any interruption: the result is the same to the last bit, on the same
    machine with the same PyTorch and number of threads. A finished run returns at once.

    Args:
        process: process that draws the images.
        config: sizes of the classifier, and its training.
        device: device of the training; the classifier stays there.
        checkpoint: the file to resume from and to update; None disables it.
        report: called with the finished fraction and a short note a hundred times.

    Raises:
        InputError: inconsistent sizes, a device that is not available, a checkpoint that is damaged, of another run, or
            cannot be written, or a loss that is not finite (the checkpoint remains).
    """
    run = _ClassifierRun(process, config, available_device(device), checkpoint)
    run.train(report)
    return FittedClassifier(run.classifier.eval(), np.array(run.kept[-1]))


class _ClassifierRun(TrainingRun):
    """State of one call of `fit_classifier`; losses are cross-entropies in nats, summed over the concepts."""

    def __init__(
        self, process: CircleProcess, config: ClassifierConfig, device: torch.device, checkpoint: Path | str | None
    ) -> None:
        self.process, self.config, self.data = process, config, process
        backbone = config.backbone(process.pixels)
        self.classifier = ConceptClassifier(backbone, hidden=config.hidden, seed=config.seed).to(device)
        super().__init__(
            self.classifier,
            torch.optim.AdamW(
                self.classifier.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
            ),
            torch.zeros(config.steps, device=device),
            checkpoint=checkpoint,
        )

    def backward(self) -> None:
        """Compute the gradients of a new batch; a GPU works on the previous step while its images are drawn."""
        images, wanted = self.drawn(self.config.batch, self.step, _TRAINING)
        targets = torch.from_numpy(wanted).to(self.device)
        logits = self.classifier(torch.from_numpy(images).to(self.device))
        loss = len(CONCEPTS) * functional.binary_cross_entropy_with_logits(logits, targets)
        self.losses[self.step] = loss.detach()
        loss.backward()

    def observe(self) -> str:
        """Measure the accuracy at the end."""
        if self.ended:
            self.kept.append(self.held_out().tolist())
        if self.step % max(self.steps // _REPORTS, 1):
            return ""
        return f"classifier, step {self.step} of {self.steps}, loss {self.losses[self.step - 1].item():.2g} nats"

    def drawn(
        self, count: int, part: int, stream: int
    ) -> tuple[Float32[np.ndarray, "n 3 side side"], Float32[np.ndarray, "n 2"]]:
        """Return true images of all classes in turn, and 1 for blue and for small, 0 for red and for big."""
        classes = np.arange(count) % len(CLASSES)
        images = self.process.draw(classes, seed=(self.config.seed, part, stream)).images
        return images, np.stack([classes // 2, classes % 2], axis=1).astype(np.float32)

    def held_out(self) -> Float64[np.ndarray, " concept"]:
        """Return the accuracy by concept on true images outside the training set."""
        images, wanted = self.drawn(self.config.held_out, 0, _HELD_OUT)
        return np.mean((self.classifier.eval().probabilities(images) > 0.5) == (wanted == 1), axis=0)

    def identity(self) -> dict[str, str]:
        """Return the properties that define this run."""
        return super().identity() | {"device": self.device.type}
