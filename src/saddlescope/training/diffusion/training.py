"""Training of a diffusion model on circles of some classes, with records of its images of all classes, also the unseen.

As in `training.image_training`, a killed run resumes to the same bits. Here no random state is stored at all:
the images, their order, the times, noise and dropout of a step, and the noise of the samples are functions of the
configuration and of the number of steps made.

Appendix G.2 of Yang et al. (2024) gives the optimiser, its constant learning rate and the batch; the weight decay acts
on all weights, those of the noise schedule included, as PyTorch's optimiser does it. The appendix names no number of
images and no average of the weights; the public code of its predecessor (Park et al., 2024) draws 2048 images per class
once, as here, and has no average. Images are drawn here with averaged weights, which removes the jitter of a constant
learning rate; since an average could also hide a bump, positions of unseen classes are also recorded for the weights
without averaging (`raw_position` of the records).

On a GPU the images are stored there, and no step waits for it: losses stay on the device until the next record,
checkpoint or report.
"""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.ranks.tracker.schedules import Geometric
from saddlescope.training.configuration import (
    BelowOne,
    Bounds,
    Configuration,
    Count,
    NonNegative,
    Positive,
    Seed,
    Threads,
)
from saddlescope.training.diffusion.circles import CLASSES, CONCEPTS, CircleProcess
from saddlescope.training.diffusion.class_samples import ClassSampler, Samples, stream_seed
from saddlescope.training.diffusion.classifier import ConceptClassifier
from saddlescope.training.diffusion.unet import UNet, UNetConfig
from saddlescope.training.diffusion.variational_diffusion import VariationalDiffusion
from saddlescope.training.diffusion.weight_average import WeightAverage
from saddlescope.training.image_batches import epoch_order
from saddlescope.training.torch_settings import Precision, autocast, available_device, reproducible
from saddlescope.training.training_run import TrainingRun, weights_digest

_NOISE, _SAMPLES, _ORDER = 1, 2, 3  # streams of random numbers besides the images
_REPORTS = 100  # per run, besides those at records


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class DiffusionConfig(Configuration):
    """Configuration of the training and its records; the defaults are the paper's (appendix G), the records ours."""

    steps: Count = 20_000  # of the optimiser
    batch: Count = 128  # images per step; the last incomplete batch of an epoch is dropped
    learning_rate: Positive = 1e-3  # of AdamW, constant
    weight_decay: NonNegative = 0.01  # of AdamW, times the learning rate
    average: BelowOne = 0.999  # decay of the moving average of the weights; 0 draws images without averaging
    images: Count = 2048  # of each class, drawn once and reused in every epoch
    classes: tuple[int, ...] = (0, 1, 2)  # in the training set; images of the others are only sampled
    seed: Seed = 0  # seed of the images, initial weights, noise and samples
    record_ratio: Annotated[float, Bounds(1, open_low=True)] = (
        1.15  # ratio of the steps of one record to those of the previous one
    )
    first_record: int = 1  # least number of steps before the first record
    record_images: Count = 32  # images of each class at a record
    sampling_steps: Count = 100  # from noise to an image
    threads: Threads = None  # PyTorch threads on the processor; None leaves the number unchanged
    precision: Precision = "float32"  # of matrix products and convolutions; weights are always float32
    compiled: bool = False  # use torch.compile: different rounding, much faster on a GPU

    def __post_init__(self) -> None:
        super().__post_init__()
        Bounds(1, self.steps).check("first_record", self.first_record)
        known = set(self.classes)
        if len(known) < 2 or len(known) < len(self.classes) or not known <= set(range(len(CLASSES))):
            raise InputError(f"classes must be two or more different ones of 0, 1, 2 and 3; got {self.classes!r}.")

    def recorded(self, step: int) -> bool:
        """Return True for steps with a record: those of the geometric schedule, and the last."""
        return step == self.steps or (step >= self.first_record and Geometric(self.record_ratio)(step))


class FittedDiffusion(NamedTuple):
    """Trained diffusion model, and the records of its training.

    Attributes:
        model: model with averaged weights, ready to draw images.
        records: over `step`, the optimiser steps made at each record, class, image and concept (color, size): `images`
            drawn with averaged weights, 0 black and 255 white; their `position` in concept space by the direct
            estimator, NaN where they are `blank`, without a circle; the `probability` of blue and of small by the
            classifier, NaN without one. `raw_position`: that of the classes that are not in the training set,
            `unseen`, for the weights without averaging, from the same noise. `gamma`: that of the learned noise
            schedule at times 0 and 1, averaged like the weights. Over `batch`, before each step: `loss`, the
            variational bound in bits per dimension, and its terms `diffusion`, `prior` and `reconstruction`. In the
            attributes `milliseconds_a_step`, the duration of a step without records and checkpoints, median over the
            times between records: the only number that changes when a run is repeated.
    """

    model: VariationalDiffusion
    records: xr.Dataset

    def __repr__(self) -> str:
        return f"FittedDiffusion({len(self.records)} records)"


@validate_arguments
def fit_diffusion(
    process: CircleProcess,
    network: UNetConfig,
    config: DiffusionConfig,
    *,
    classifier: ConceptClassifier | None = None,
    device: torch.device | str = "cpu",
    checkpoint: Path | str | None = None,
    checkpoint_every: int | None = None,
    report: Report = silent,
) -> FittedDiffusion:
    """Train a diffusion model on images of the process, or resume a killed run.

    With `checkpoint`, repeat the call after any interruption: the results are the same to the last bit, on the same
    machine with the same PyTorch and the same number of threads. A finished run returns at once. During the run PyTorch
    uses deterministic algorithms; that setting and the random state are restored at the end.

    Args:
        process: process that draws the images.
        network: the sizes of the U-Net.
        config: optimiser, batches and records.
        classifier: second estimator of concepts besides the direct one; None leaves its probabilities NaN.
        device: device of the training; "cuda" draws other random numbers than the processor.
        checkpoint: the file to resume from and to update; None disables it.
        checkpoint_every: steps between two checkpoints; None: so far apart that writing takes at most 2 % of the time.
            Changes no result.
        report: called with the finished fraction and a short note at records, and a hundred times in between.

    Raises:
        InputError: inconsistent sizes, a batch larger than the training set, a device that is not available, a
            checkpoint that is damaged, of another run, or cannot be written, or a loss that is not finite (the
            checkpoint remains).
    """
    if network.pixels != process.pixels:
        raise InputError(f"network.pixels must be those of the process, {process.pixels}; got {network.pixels!r}.")
    if (given := process.prompts([0]).shape[1]) != network.condition:
        raise InputError(f"network.condition must be {given}, the length of a prompt; got {network.condition!r}.")
    if config.batch > (count := config.images * len(config.classes)):
        raise InputError(f"batch must be at most the {count} training images; got {config.batch!r}.")
    torch_device = available_device(device)
    with reproducible(config.seed, config.threads, torch_device, config.precision):
        run = _DiffusionRun(process, network, config, classifier, torch_device, checkpoint, checkpoint_every)
        run.train(report)
    return FittedDiffusion(run.average.model, run.records())


class _DiffusionRun(TrainingRun):
    """State of one call of `fit_diffusion`; losses are the bound, then its terms."""

    cure = "Call fit_diffusion as before, or name another file, or delete this one."

    def __init__(
        self,
        process: CircleProcess,
        network: UNetConfig,
        config: DiffusionConfig,
        classifier: ConceptClassifier | None,
        device: torch.device,
        checkpoint: Path | str | None,
        checkpoint_every: int | None = None,
    ) -> None:
        self.process, self.network, self.config, self.classifier = process, network, config, classifier
        self.diffusion = VariationalDiffusion(UNet(network, seed=config.seed)).to(device)
        super().__init__(
            self.diffusion,
            torch.optim.AdamW(
                self.diffusion.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
            ),
            torch.zeros((config.steps, 4), device=device),
            learning_rate=config.learning_rate,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
        )
        self.unseen = tuple(index for index in range(len(CLASSES)) if index not in config.classes)
        self.average = WeightAverage(self.diffusion, config.average)
        drawn = process.draw(np.repeat(config.classes, config.images), seed=config.seed)
        self.images, self.conditions = (torch.from_numpy(part).to(device) for part in drawn[:2])
        self.sampler = ClassSampler(
            process,
            images=config.record_images,
            steps=config.sampling_steps,
            seed=stream_seed(config.seed, _SAMPLES),
            device=device,
            precision=config.precision,
            classifier=classifier,
        )
        self.recorded: list[int] = []  # steps
        self.samples: list[Samples] = []
        self.raw: list[Tensor] = []  # positions of unseen classes
        self.gamma: list[Tensor] = []
        self.speeds: list[float] = []  # milliseconds per step, between records
        self._order, self._ordered = torch.zeros(0), -1  # of the images, and its epoch
        self._began = 0, time.monotonic()  # step and moment from which steps are timed
        if config.compiled:
            self.diffusion.network.compile(dynamic=False)  # in place: names of weights and the average's copy unchanged

    def backward(self) -> None:
        """Compute the gradients of the next batch."""
        config = self.config
        epoch, position = divmod(self.step, len(self.images) // config.batch)
        if self._ordered != epoch:
            order = epoch_order(len(self.images), stream_seed(config.seed, _ORDER), epoch)
            self._order, self._ordered = torch.from_numpy(order).to(self.device), epoch
        chosen = self._order[position * config.batch : (position + 1) * config.batch]
        torch.manual_seed(stream_seed(config.seed, _NOISE, self.step))  # of times, noise and dropout
        with autocast(self.device, config.precision):
            bound = self.diffusion.bound(self.images[chosen], self.conditions[chosen])
        parts = (bound.total, bound.diffusion, bound.prior, bound.reconstruction)
        losses = torch.stack([part.mean() for part in parts])
        self.losses[self.step] = losses.detach()
        losses[0].backward()

    def advance(self) -> None:
        """Make one step of the optimiser, and update the average of the weights."""
        super().advance()
        self.average.update(self.step)

    def observe(self) -> str:
        """Make a record if due."""
        recorded = self.config.recorded(self.step)
        if recorded:
            self.record()
        if not recorded and self.step % max(self.steps // _REPORTS, 1):
            return ""
        return f"step {self.step} of {self.steps}, {self.losses[self.step - 1, 0].item():.3g} bits per dimension"

    def record(self) -> None:
        """Draw images of all classes, and estimate their concepts."""
        self.check_losses()  # waits for the device
        since, began = self._began
        self.speeds.append(1e3 * (time.monotonic() - began) / (self.step - since))
        self.recorded.append(self.step)
        self.samples.append(self.sampler.draw(self.average.model, tuple(range(len(CLASSES)))))
        averaged = self.samples[-1].position[list(self.unseen)]
        same = self.config.average == 0 or not self.unseen
        self.raw.append(averaged if same else self.sampler.draw(self.average.unaveraged(), self.unseen).position)
        with torch.no_grad():
            self.gamma.append(self.average.model.gamma(torch.tensor([0.0, 1.0], device=self.device)).cpu())
        self._began = self.step, time.monotonic()

    def records(self) -> xr.Dataset:
        """Return the records, and the losses of all steps."""
        images, position, blank, probability = (torch.stack(part).numpy() for part in zip(*self.samples, strict=True))
        image = ("step", "class", "image")
        losses = zip(("loss", "diffusion", "prior", "reconstruction"), self.losses.cpu().numpy().T.copy(), strict=True)
        return xr.Dataset(
            {
                "images": ((*image, "channel", "row", "column"), images),
                "position": ((*image, "concept"), position),
                "blank": (image, blank),
                "probability": ((*image, "concept"), probability),
                "raw_position": (("step", "unseen", "image", "concept"), torch.stack(self.raw).numpy()),
                "gamma": (("step", "end"), torch.stack(self.gamma).numpy()),
            }
            | {name: ("batch", values) for name, values in losses},
            coords={
                "step": self.recorded,
                "class": list(CLASSES),
                "concept": list(CONCEPTS),
                "unseen": [CLASSES[index] for index in self.unseen],
                "channel": ["red", "green", "blue"],
                "batch": np.arange(self.steps),
                "end": [0.0, 1.0],
            },
            attrs={"milliseconds_a_step": median(self.speeds)},
        )

    def identity(self) -> dict[str, str]:
        """Return the properties that define this run."""
        return {
            "configuration": repr(asdict(self.config)),
            "network": repr(asdict(self.network)),
            "data": self.process.digest(),
            "classifier": "none" if self.classifier is None else weights_digest(self.classifier),
            "initial weights": weights_digest(self.model),
            "device": self.device.type,
        }

    def state(self) -> dict[str, Any]:
        """Return the average of the weights, and the records."""
        return {
            "average": self.average.model.state_dict(),
            "recorded": self.recorded,
            "samples": [samples._asdict() for samples in self.samples],
            "raw": self.raw,
            "gamma": self.gamma,
            "speeds": self.speeds,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.average.model.load_state_dict(state["average"])
        self.recorded, self.raw, self.gamma = state["recorded"], state["raw"], state["gamma"]
        self.samples = [Samples(**samples) for samples in state["samples"]]
        self.speeds = state["speeds"]
        self._began = self.step, time.monotonic()

    def save(self) -> None:
        """Write a checkpoint, which does not count as time of a step."""
        self.check_losses()  # waits for the device
        before = time.monotonic()
        super().save()
        since, began = self._began
        self._began = since, began + time.monotonic() - before
