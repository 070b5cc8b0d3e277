"""Trains the diffusion model on circles of some classes, and watches when it can draw those it has never seen.

As in `saddlescope.train.loop` every step is visible and a killed run goes on to the same bits. Here no random state is
kept at all: the images, the order they come in, times, noise and dropout of a step, and the noise of the samples are
functions of the configuration and of the number of steps made.

Appendix G.2 of Yang et al. (2024) gives the optimiser, its constant learning rate and the batch; the decay of weights
holds for all of them, those of the schedule of noise included, as PyTorch's optimiser does it. It names no number of
images and no average of the weights; the public code of its predecessor (Park et al., 2024) draws 2048 images a class
once, as here, and has no average. Images are drawn here with averaged weights, which takes away the jitter of a
constant learning rate; since an average could also hide a bump, positions of unseen classes are recorded for the
weights as they are as well (`DiffusionHistory.raw_position`).

On a GPU the images lie on it, and no step waits for it: losses stay there until the next record, checkpoint or report.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope.train.batches import shuffled
from saddlescope.train.configuration import check
from saddlescope.train.diffusion.averaging import WeightAverage
from saddlescope.train.diffusion.bound import VariationalDiffusion
from saddlescope.train.diffusion.circles import CLASSES, CircleProcess
from saddlescope.train.diffusion.classifier import ConceptClassifier
from saddlescope.train.diffusion.recording import DiffusionHistory, Sampler, Samples, stream
from saddlescope.train.diffusion.unet import UNet, UNetConfig
from saddlescope.train.numerics import PRECISIONS, Precision, autocast, available, check_losses, reproducible
from saddlescope.train.run_checkpoint import Checkpointer, fingerprint
from saddlescope.train.tracker.schedules import Geometric

_NOISE, _SAMPLES, _ORDER = 1, 2, 3  # what random numbers are for, beside the images: one stream each
_REPORTS = 100  # in a run, beside those at records


@validate_arguments
@dataclass(frozen=True, kw_only=True)
class DiffusionConfig:
    """How to train, and what to record meanwhile; the defaults are the paper's (appendix G), the records ours."""

    steps: int = 20_000  # of the optimiser
    batch: int = 128  # images a step; the last incomplete batch of a pass is left out
    learning_rate: float = 1e-3  # of AdamW, constant
    weight_decay: float = 0.01  # of AdamW, times the learning rate
    average: float = 0.999  # decay of the moving average of the weights; 0 draws images with the weights as they are
    images: int = 2048  # of each class, drawn once and seen again in every pass
    classes: tuple[int, ...] = (0, 1, 2)  # trained on; the others are only asked for
    seed: int = 0  # of the images, initial weights, noise and samples
    record_ratio: float = 1.15  # of the steps of one record to those of the record before
    first_record: int = 1  # the first record comes after at least so many steps
    record_images: int = 32  # drawn for each class at a record
    sampling_steps: int = 100  # from noise to an image
    threads: int | None = None  # of PyTorch on the processor; None leaves its setting
    precision: Precision = "float32"  # of matrix products and convolutions; the weights are float32 always
    compiled: bool = False  # the network through torch.compile: other rounding, much faster on a GPU

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "images", "record_images", "sampling_steps"):
            check(name, getattr(self, name), low=1)
        check("learning_rate", self.learning_rate, low=0, open_low=True)
        check("weight_decay", self.weight_decay, low=0)
        check("average", self.average, low=0, high=1 - 1e-12)
        check("first_record", self.first_record, low=1, high=self.steps)
        check("seed", self.seed, low=0)
        known = set(self.classes)
        if len(known) < 2 or len(known) < len(self.classes) or not known <= set(range(len(CLASSES))):
            raise InputError(f"classes must be two or more different ones of 0, 1, 2 and 3; got {self.classes!r}.")
        if not 1 < self.record_ratio < np.inf:
            raise InputError(f"record_ratio must be above 1 and finite; got {self.record_ratio!r}.")
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        if self.threads is not None:
            check("threads", self.threads, low=1)

    def recorded(self, step: int) -> bool:
        """Whether there is a record after this step: on the geometric schedule, and after the last."""
        return step == self.steps or (step >= self.first_record and Geometric(self.record_ratio)(step))


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
    report: Callable[[float, str], None] | None = None,
) -> DiffusionHistory:
    """Trains a diffusion model on images of the process, or goes on where a killed run left off.

    With `checkpoint`, call it again the same way after whatever ended the run: the results are the same to the last
    bit, on the same machine with the same PyTorch and the same number of threads. A finished run returns at once.
    While it runs, PyTorch is held to deterministic algorithms; that setting and the random state are put back at the
    end.

    Args:
        process: that draws the images.
        network: the sizes of the U-Net.
        config: how to train and what to record.
        classifier: reads the images besides the direct estimator; None leaves its probabilities NaN.
        device: where to train; on "cuda" the random numbers are others than on the processor.
        checkpoint: the file to resume from and to keep up to date; None keeps nothing.
        checkpoint_every: steps between two checkpoints; None: so far apart that writing takes at most 2 % of the time.
            Changes no result.
        report: called with the finished fraction and a short note at records, and a hundred times in between.

    Raises:
        InputError: sizes that do not fit each other, a batch larger than the images, no such device, a checkpoint that
            is damaged, of another run, or cannot be written, or a loss that is not finite (the checkpoint stays).
    """
    if network.pixels != process.pixels:
        raise InputError(f"network.pixels must be those of the process, {process.pixels}; got {network.pixels!r}.")
    if (given := process.prompts([0]).shape[1]) != network.condition:
        raise InputError(f"network.condition must be {given}, as many as a prompt has; got {network.condition!r}.")
    if config.batch > (count := config.images * len(config.classes)):
        raise InputError(f"batch must be at most the {count} training images; got {config.batch!r}.")
    if checkpoint_every is not None:
        check("checkpoint_every", checkpoint_every, low=1)
    place = available(device)
    with reproducible(config.seed, config.threads, place, config.precision):
        run = _Run(process, network, config, classifier, place, checkpoint)
        run.resume()
        while run.step < config.steps:
            run.advance()
            ended, recorded = run.step == config.steps, config.recorded(run.step)
            if recorded:
                run.record()
            if ended or (run.step % checkpoint_every == 0 if checkpoint_every else run.keeper.rested()):
                run.keep()
            if report is not None and (recorded or run.step % max(config.steps // _REPORTS, 1) == 0):
                report(run.step / config.steps, run.note())
    return run.history()


class _Run:
    """The state of one call of `fit_diffusion`, and what is done with it."""

    def __init__(
        self,
        process: CircleProcess,
        network: UNetConfig,
        config: DiffusionConfig,
        classifier: ConceptClassifier | None,
        device: torch.device,
        checkpoint: Path | str | None,
    ) -> None:
        self.process, self.network, self.config, self.classifier = process, network, config, classifier
        self.device = device
        self.unseen = tuple(index for index in range(len(CLASSES)) if index not in config.classes)
        self.model = VariationalDiffusion(UNet(network, seed=config.seed)).to(device)
        self.average = WeightAverage(self.model, config.average)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        drawn = process.draw(np.repeat(config.classes, config.images), seed=config.seed)
        self.images, self.conditions = (torch.from_numpy(part).to(device) for part in drawn[:2])
        self.sampler = Sampler(
            process,
            images=config.record_images,
            steps=config.sampling_steps,
            seed=stream(config.seed, _SAMPLES),
            device=device,
            precision=config.precision,
            classifier=classifier,
        )
        self.step = 0
        self.losses = torch.zeros((config.steps, 4), device=device)  # the bound, and its terms in their order there
        self.recorded: list[int] = []  # steps
        self.samples: list[Samples] = []
        self.raw: list[Tensor] = []  # positions of unseen classes
        self.gamma: list[Tensor] = []
        self.speeds: list[float] = []  # milliseconds a step, between records
        self._order, self._arranged = torch.zeros(0), -1  # of the images, and the pass it is for
        self._checked = 0  # steps whose losses are known to be finite
        self._began = 0, time.monotonic()  # step and moment from which steps are timed
        self.keeper = Checkpointer(
            checkpoint,
            self.identity,
            cure="Call fit_diffusion as before, or name another file, or delete this one.",
        )
        if config.compiled:
            self.model.network.compile(dynamic=False)  # in place: weights keep their names, the average's copy is plain

    def advance(self) -> None:
        """One step of the optimiser."""
        config = self.config
        a_pass, within = divmod(self.step, len(self.images) // config.batch)
        if self._arranged != a_pass:
            order = shuffled(len(self.images), stream(config.seed, _ORDER), a_pass)
            self._order, self._arranged = torch.from_numpy(order).to(self.device), a_pass
        chosen = self._order[within * config.batch : (within + 1) * config.batch]
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        torch.manual_seed(stream(config.seed, _NOISE, self.step))  # of times, noise and dropout
        with autocast(self.device, config.precision):
            bound = self.model.bound(self.images[chosen], self.conditions[chosen])
        parts = (bound.total, bound.diffusion, bound.prior, bound.reconstruction)
        losses = torch.stack([part.mean() for part in parts])
        self.losses[self.step] = losses.detach()
        losses[0].backward()
        if self.device.type == "cpu":
            self.check_losses(self.step + 1)  # elsewhere that would wait for the device at every step
        self.optimizer.step()
        self.step += 1
        self.average.update(self.step)

    def check_losses(self, made: int) -> None:
        """Refuses a loss that is not finite, of the first `made` steps, as far as they were not looked at yet."""
        self._checked = check_losses(
            self.losses[:, 0],
            made,
            checked=self._checked,
            learning_rate=self.config.learning_rate,
            cure="Lower it.",
        )

    def record(self) -> None:
        """Draws images of all classes, and reads them."""
        self.check_losses(self.step)  # waits for the device
        since, began = self._began
        self.speeds.append(1e3 * (time.monotonic() - began) / (self.step - since))
        self.recorded.append(self.step)
        self.samples.append(self.sampler.draw(self.average.model, tuple(range(len(CLASSES)))))
        averaged = self.samples[-1].position[list(self.unseen)]
        plain = self.config.average == 0 or not self.unseen
        self.raw.append(averaged if plain else self.sampler.draw(self.average.newest(), self.unseen).position)
        with torch.no_grad():
            self.gamma.append(self.average.model.gamma(torch.tensor([0.0, 1.0], device=self.device)).cpu())
        self._began = self.step, time.monotonic()

    def note(self) -> str:
        """Where the run stands, for whoever waits for it."""
        loss = self.losses[self.step - 1, 0].item()
        return f"step {self.step} of {self.config.steps}, {loss:.3g} bits per dimension"

    def history(self) -> DiffusionHistory:
        """What was recorded."""
        images, position, blank, probability = (torch.stack(part).numpy() for part in zip(*self.samples, strict=True))
        loss, diffusion, prior, reconstruction = self.losses.cpu().numpy().T.copy()
        return DiffusionHistory(
            model=self.average.model,
            steps=np.array(self.recorded, dtype=np.int64),
            images=images,
            position=position,
            blank=blank,
            probability=probability,
            unseen=self.unseen,
            raw_position=torch.stack(self.raw).numpy(),
            loss=loss,
            diffusion=diffusion,
            prior=prior,
            reconstruction=reconstruction,
            gamma=torch.stack(self.gamma).numpy(),
            milliseconds=median(self.speeds),
        )

    def identity(self) -> dict[str, str]:
        """What makes this run this run; asked before the first step."""
        return {
            "configuration": repr(asdict(self.config)),
            "network": repr(asdict(self.network)),
            "data": self.process.digest(),
            "classifier": "none" if self.classifier is None else fingerprint(self.classifier),
            "initial weights": fingerprint(self.model),
            "device": self.device.type,
        }

    def keep(self) -> None:
        """Writes a checkpoint, of finite losses only."""
        self.check_losses(self.step)  # waits for the device
        before = time.monotonic()
        self.keeper.write(
            {
                "step": self.step,
                "model": self.model.state_dict(),
                "average": self.average.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "losses": self.losses[: self.step].clone(),
                "recorded": self.recorded,
                "samples": [samples._asdict() for samples in self.samples],
                "raw": self.raw,
                "gamma": self.gamma,
                "speeds": self.speeds,
            }
        )
        since, began = self._began
        self._began = since, began + time.monotonic() - before  # writing is no part of a step

    def resume(self) -> None:
        """Goes on from a checkpoint; where there is none, writes one: whether that can be is known before the work."""
        state = self.keeper.read()
        if state is None:
            self.keep()
            return
        self.model.load_state_dict(state["model"])
        self.average.model.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = self._checked = state["step"]
        self.losses[: self.step] = state["losses"]
        self.recorded, self.raw, self.gamma = state["recorded"], state["raw"], state["gamma"]
        self.samples = [Samples(**samples) for samples in state["samples"]]
        self.speeds = state["speeds"]
        self._began = self.step, time.monotonic()
