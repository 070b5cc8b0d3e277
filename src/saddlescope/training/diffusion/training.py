"""Training of a diffusion model on circles of some classes, with records of its images of all classes, also the unseen.

As in `training.image_training`, a killed run resumes to the same bits. Here no random state is needed for it: the
images, their order, the times, noise and dropout of a step, and the noise of the samples are functions of the
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

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from jaxtyping import UInt8
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

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
from saddlescope.training.diffusion.classifier import ConceptClassifier
from saddlescope.training.diffusion.positions import concept_positions
from saddlescope.training.diffusion.unet import UNet, UNetConfig
from saddlescope.training.diffusion.variational_diffusion import VariationalDiffusion
from saddlescope.training.image_batches import epoch_order
from saddlescope.training.torch_settings import Precision, autocast, available_device
from saddlescope.training.training_run import TrainingRun, weights_digest

_NOISE, _SAMPLES, _ORDER = 1, 2, 3  # streams of random numbers besides the images
_REPORTS = 100  # per run, besides those at records
_AT_ONCE = 128  # images of a class drawn together: bounds memory
_TERMS = ("diffusion", "prior", "reconstruction")  # of the bound
_VARIABLES = {  # of the records, with their dimensions after the step
    "images": ("class", "image", "channel", "row", "column"),
    "position": ("class", "image", "concept"),
    "blank": ("class", "image"),
    "probability": ("class", "image", "concept"),
    "raw_position": ("unseen", "image", "concept"),
    "gamma": ("end",),
}


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
            variational bound in bits per dimension, and its terms `diffusion`, `prior` and `reconstruction`.
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
    place = available_device(device)
    run = _DiffusionRun(process, network, config, classifier, place, checkpoint, checkpoint_every)
    run.train(report)
    return FittedDiffusion(run.averaged, run.records())


class _DiffusionRun(TrainingRun):
    """State of one call of `fit_diffusion`; losses are the bound, then its terms.

    Images are drawn from a moving average of the weights. After step n it moves towards the weights by
    1 - min(decay, (1 + n) / (10 + n)): early on it averages over the last tenth of the steps made, later over the last
    1 / (1 - decay) steps. So in the logarithm of the steps it lags by a tenth at most, and forgets the initial weights
    at once.

    The noise of an image is a function of the seed, its class, the number of images and its index. So two records
    differ by the weights alone, and the curve of a position over training is smooth without smoothing. The uncertainty
    due to a finite number of images shows between seeds and between images, not between records.
    """

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
        self.data, self.precision = process, config.precision
        self.diffusion = VariationalDiffusion(UNet(network, seed=config.seed)).to(device)
        self.averaged = copy.deepcopy(self.diffusion).eval().requires_grad_(False)
        self._weights: list[Tensor] = list(self.diffusion.parameters())
        self._averages: list[Tensor] = list(self.averaged.parameters())
        super().__init__(
            self.diffusion,
            torch.optim.AdamW(self._weights, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True),
            torch.zeros((config.steps, 1 + len(_TERMS)), device=device),
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
        )
        self.unseen = [index for index in range(len(CLASSES)) if index not in config.classes]
        drawn = process.draw(np.repeat(config.classes, config.images), seed=config.seed)
        self.images, self.conditions = (torch.from_numpy(part).to(device) for part in drawn[:2])
        self._order, self._ordered = torch.zeros(0), -1  # of the images, and its epoch
        if config.compiled:
            self.diffusion.network.compile(dynamic=False)  # in place: names of weights and the average's copy unchanged

    def backward(self) -> None:
        """Compute the gradients of the next batch."""
        config = self.config
        epoch, position = divmod(self.step, len(self.images) // config.batch)
        if self._ordered != epoch:
            order = epoch_order(len(self.images), _stream_seed(config.seed, _ORDER), epoch)
            self._order, self._ordered = torch.from_numpy(order).to(self.device), epoch
        chosen = self._order[position * config.batch : (position + 1) * config.batch]
        torch.manual_seed(_stream_seed(config.seed, _NOISE, self.step))  # of times, noise and dropout
        with autocast(self.device, config.precision):
            bound = self.diffusion.bound(self.images[chosen], self.conditions[chosen])
        losses = torch.stack([getattr(bound, part).mean() for part in ("total", *_TERMS)])
        self.losses[self.step] = losses.detach()
        losses[0].backward()

    def advance(self) -> None:
        """Make one step of the optimiser, and update the average of the weights."""
        super().advance()
        decay = min(self.config.average, (1 + self.step) / (10 + self.step))
        # PyTorch's function for all weights at once; its `AveragedModel` waits for a GPU at every update.
        get_ema_multi_avg_fn(decay)(self._averages, self._weights, self.step)

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
        images = self.draw(self.averaged, range(len(CLASSES)))
        position, blank = concept_positions(images, self.process)
        probability = np.full(position.shape, math.nan)
        if self.classifier is not None:
            flat = images.reshape(-1, *images.shape[2:])
            probability = self.classifier.probabilities(flat).reshape(position.shape)
        raw_position = position[self.unseen]
        if self.config.average and self.unseen:
            raw = copy.deepcopy(self.averaged)
            raw.load_state_dict(self.diffusion.state_dict())
            raw_position, _ = concept_positions(self.draw(raw, self.unseen), self.process)
        with torch.no_grad():
            gamma = self.averaged.gamma(torch.tensor([0.0, 1.0], device=self.device)).cpu().numpy()
        parts = (images, position, blank, probability, raw_position, gamma)
        named = zip(_VARIABLES, map(torch.from_numpy, parts), strict=True)
        self.kept.append({"step": self.step, **dict(named)})

    def draw(
        self, model: VariationalDiffusion, classes: Sequence[int]
    ) -> UInt8[np.ndarray, "classes image 3 side side"]:
        """Draw images of these classes, conditioned on the class means of the conditions."""
        prompts = torch.from_numpy(self.process.prompts(list(classes))).to(self.device)
        seed = _stream_seed(self.config.seed, _SAMPLES)
        generators = [torch.Generator(self.device).manual_seed(_stream_seed(seed, index)) for index in classes]
        drawn, images = [], self.config.record_images
        for count in [_AT_ONCE] * (images // _AT_ONCE) + [images % _AT_ONCE] * (images % _AT_ONCE > 0):
            repeated = prompts.repeat_interleave(count, 0)
            with autocast(self.device, self.config.precision):
                found = model.sample(repeated, generators=generators, steps=self.config.sampling_steps)
            # Numbers that are not finite become black, which is blank. Concepts are read off the stored bytes.
            pixels = (found.nan_to_num(nan=0.0).clamp(0, 1) * 255).round().to(torch.uint8).cpu()
            drawn.append(pixels.unflatten(0, (len(classes), count)))
        return torch.cat(drawn, dim=1).numpy()

    def records(self) -> xr.Dataset:
        """Return the records, and the losses of all steps."""
        stacked = {name: torch.stack([one[name] for one in self.kept]).numpy() for name in _VARIABLES}
        losses = zip(("loss", *_TERMS), self.losses.cpu().numpy().T.copy(), strict=True)
        return xr.Dataset(
            {name: (("step", *_VARIABLES[name]), values) for name, values in stacked.items()}
            | {name: ("batch", values) for name, values in losses},
            coords={
                "step": [one["step"] for one in self.kept],
                "class": list(CLASSES),
                "concept": list(CONCEPTS),
                "unseen": [CLASSES[index] for index in self.unseen],
                "channel": ["red", "green", "blue"],
                "batch": np.arange(self.steps),
                "end": [0.0, 1.0],
            },
        )

    def identity(self) -> dict[str, str]:
        """Return the properties that define this run."""
        return super().identity() | {
            "network": repr(asdict(self.network)),
            "classifier": "none" if self.classifier is None else weights_digest(self.classifier),
            "device": self.device.type,
        }

    def state(self) -> dict[str, Any]:
        """Return the average of the weights."""
        return {"average": self.averaged.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.averaged.load_state_dict(state["average"])


def _stream_seed(*numbers: int) -> int:
    """Return the seed of a stream of random numbers, unrelated to the seeds of other arguments."""
    return int(np.random.PCG64(numbers).random_raw()) >> 1
