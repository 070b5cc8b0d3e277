"""Training of diffusion models on circles, for several colour signals and seeds.

For each signal and seed one model is trained on three classes and asked, at steps that grow geometrically, for images
of all four; the noise that they are sampled from is the same at every record. The position of the images among the
concepts is read by the direct estimator and by a classifier trained on the signal's own true images.

    signal      colour signal; the size signal is the same for all
    class       (red, big), (red, small), (blue, big), (blue, small); the last one is unseen
    position    in concept coordinates, 0 and 1 the class means; `probability` is the classifier's P(blue), P(small)
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import silent
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.device import prepare_device
from saddlescope.reproduction.parallel_parts import run_parallel_parts
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.train.diffusion.circles import CircleProcess
    from saddlescope.train.diffusion.classifier import FittedClassifier

_CLASSIFIER = 0.1  # of the time that a model takes

_SHOWN = 4  # images of each class, of the first seed, that are stored for the figures


class TrainingParams(EntryParams):
    """Small images and a small U-Net: minutes on two cores.

    Batch, steps and seeds are those of a second run: a first one, of 3000 steps of 32 images with seeds 0 to 3, left
    half of the claims undecided. No bound was changed in between.
    """

    signals: tuple[float, ...] = param(
        (0.7, 0.2), "colour signals, decreasing: colour should lead at the first, size at last"
    )
    size_signal: float = param(0.35, "difference of the diameters, as a fraction of the side", gt=0, ge=0.0, le=1.0)
    size_jitter: float = param(0.1875, "an image's diameter is uniform within +- this times size_signal")
    diameter: float = param(0.675, "mean of the two diameters", gt=0)
    seeds: tuple[int, ...] = param((0, 1, 2, 3, 4), "of one model a signal each: data, weights, batches and sampling")
    pixels: int = param(16, "along a side of the images", ge=1)
    channels: tuple[int, ...] = param((16, 32, 32), "width of each level of the U-Net")
    blocks: int = param(1, "residual blocks a level", ge=1)
    normalization: Literal["layer", "pixel", "group"] = param(
        "layer", "LayerNorm of a complete map, of each pixel; GroupNorm"
    )
    dropout: float = param(0.0, "in every residual block", ge=0.0, le=1.0)
    steps: int = param(6000, "of AdamW", ge=1)
    batch: int = param(16, "images in a step", ge=1)
    learning_rate: float = param(1e-3, "of AdamW", gt=0)
    weight_decay: float = param(0.01, "of AdamW", ge=0)
    average: float = param(
        0.99, "decay of the moving average of the weights that images are sampled from", ge=0.0, le=1.0
    )
    images: int = param(2048, "of each class to train on, and to measure mu and sigma on", ge=2)
    first_record: int = param(50, "step from which positions are reported; before, samples are noise", ge=1)
    record_ratio: float = param(1.15, "of the steps of a record and the one before")
    record_images: int = param(16, "generated images of each class at a record", ge=2)
    sampling_steps: int = param(50, "of ancestral sampling", ge=1)
    classifier_steps: int = param(1200, "of training the classifier of each signal", ge=1)
    held_out: int = param(4096, "true images on which the classifier's accuracy is measured", ge=4)
    starts: int = param(64, "random starts of the SIM theory's two-layer model", ge=1)
    device: Literal["cpu", "cuda"] = param("cpu", "where to train: the processor or a GPU")
    precision: Literal["float32", "tf32", "bf16"] = param("float32", "of matrix products; weights are float32 always")
    compiled: bool = param(False, "through torch.compile: other rounding, much faster on a GPU")
    processes: int = param(2, "models trained side by side, each in a process of its own; changes no result", ge=1)
    threads: int = param(1, "of PyTorch on the processor; two wait for each other longer than they compute", ge=1)

    def check(self) -> None:
        decreasing = sorted(set(self.signals), reverse=True) == list(self.signals)
        if len(self.signals) < 2 or not decreasing or not 0 < min(self.signals) <= max(self.signals) <= 1:
            raise InputError(
                f"signals must be two or more, decreasing, above 0 and at most 1, such as 0.7,0.2; got "
                f"{self.signals!r}."
            )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise InputError(f"seeds must be distinct and at least 0, such as 0,1,2; got {self.seeds!r}.")
        if not 1 < self.record_ratio < float("inf"):
            raise InputError(f"record_ratio must be above 1 and finite; got {self.record_ratio!r}.")
        if self.batch > 3 * self.images:
            raise InputError(f"batch must be at most the {3 * self.images} training images; got {self.batch!r}.")
        if self.first_record >= self.steps:
            raise InputError(f"first_record must be below steps={self.steps}; got {self.first_record!r}.")


QUICK: dict[str, Any] = {
    "seeds": (0, 1), "pixels": 8, "channels": (8,), "steps": 12, "batch": 8, "images": 16, "first_record": 6,
    "record_images": 2, "sampling_steps": 2, "classifier_steps": 2, "held_out": 16, "starts": 4, "processes": 1,
}  # fmt: skip
"""Seconds: images of 8 pixels and 12 steps, which learn nothing yet."""

PAPER: dict[str, Any] = {
    "signals": (0.7, 0.45, 0.2), "size_signal": 0.4, "size_jitter": 0.375, "diameter": 0.5, "seeds": (0, 1, 2, 3, 4),
    "pixels": 32, "channels": (64, 128, 256), "blocks": 2, "steps": 20000, "batch": 128, "average": 0.999,
    "record_ratio": 1.1, "record_images": 32, "sampling_steps": 100, "classifier_steps": 10000,
    "device": "cuda", "precision": "bf16", "compiled": True, "threads": 8, "processes": 1,
}  # fmt: skip
"""Appendix G: 32 x 32 pixels, 20k steps of batch 128, 32 images and 5 seeds; diameters .7 and .3; for a GPU."""


def train(params: TrainingParams, context: RunContext) -> xr.Dataset:
    """Train a model for each signal and seed; each has its own checkpoint in the scratch folder.

    Returns:
        What `DiffusionHistory.to_xarray` has, over signal and seed: `position`, `raw_position`, `blank`, `probability`,
        `loss` and `gamma`. Over (signal, step, class, shown): `images`, a few of the first seed's. Over (signal,
        concept): `mu` and `sigma` of true images, and the classifier's `accuracy` on images held out. Over signal:
        `overlap`, the cosine of the directions of the concepts. The attribute `milliseconds_a_step` is a list over
        signals and seeds.

    Raises:
        InputError: the device is not there, or training diverges.
    """
    prepare_device(params.device)
    count = len(params.signals)
    start = _CLASSIFIER / (_CLASSIFIER + len(params.seeds))
    accuracy = {
        signal: _classifier(
            params, signal, context.subtask(k * start / count, (k + 1) * start / count)
        ).accuracy.tolist()
        for k, signal in enumerate(params.signals)
    }
    models = {
        signal: {f"signal-{signal:g}-seed-{seed}": _Model(params, signal, seed) for seed in params.seeds}
        for signal in params.signals
    }
    every = {name: model for of in models.values() for name, model in of.items()}
    made = run_parallel_parts(context.subtask(start, 1.0), every, processes=params.processes)
    runs = dict(zip(every, made, strict=True))
    parts = [
        _merge_seeds(params, signal, [runs[name] for name in models[signal]], accuracy[signal]) for signal in models
    ]
    return (
        xr.concat(parts, dim="signal", combine_attrs="drop")
        .assign_coords(signal=list(params.signals))
        .assign_attrs(
            first_record=params.first_record,
            milliseconds_a_step=[float(run.attrs["milliseconds_a_step"]) for run in made],
        )
    )


def circle_process(params: TrainingParams, signal: float) -> "CircleProcess":
    """Return the process of circles of one colour signal."""
    from saddlescope.train.diffusion.circles import CircleProcess

    return CircleProcess(
        pixels=params.pixels,
        color_signal=signal,
        size_signal=params.size_signal,
        size_jitter=params.size_jitter,
        diameter=params.diameter,
    )


def _classifier(params: TrainingParams, signal: float, context: RunContext) -> "FittedClassifier":
    """Train the classifier of one signal, or load it."""
    from saddlescope.train.diffusion.classifier import ClassifierConfig, fit_classifier

    return fit_classifier(
        circle_process(params, signal),
        ClassifierConfig(
            channels=params.channels,
            blocks=params.blocks,
            normalization=params.normalization,
            steps=params.classifier_steps,
            batch=params.batch,
            held_out=params.held_out,
            threads=params.threads,
        ),
        device=params.device,
        checkpoint=context.scratch / f"classifier-{signal:g}.pt",
        report=context.report,
    )


def _merge_seeds(params: TrainingParams, signal: float, runs: list[xr.Dataset], accuracy: list[float]) -> xr.Dataset:
    """Merge the models of one signal, with the geometry of its images."""
    from saddlescope.train.diffusion.signals import concept_geometry

    geometry = concept_geometry(circle_process(params, signal), images=params.images)
    together = xr.concat([run.drop_vars("images") for run in runs], dim="seed", combine_attrs="drop")
    return together.assign(
        images=runs[0].images.isel(image=slice(_SHOWN)).rename(image="shown"),
        mu=("concept", geometry.mu),
        sigma=("concept", geometry.sigma),
        overlap=geometry.overlap,
        accuracy=("concept", accuracy),
    ).assign_coords(seed=list(params.seeds))


@dataclass(frozen=True)
class _Model:
    """Training of the model of one signal and seed, when called, in any process."""

    params: TrainingParams
    signal: float
    seed: int

    def __call__(self, context: RunContext) -> xr.Dataset:
        from saddlescope.train.diffusion.training import DiffusionConfig, fit_diffusion
        from saddlescope.train.diffusion.unet import UNetConfig

        params, name = self.params, f"signal {self.signal:g} seed {self.seed}"
        classifier = _classifier(params, self.signal, replace(context, report=silent)).classifier
        network = UNetConfig(
            pixels=params.pixels,
            channels=params.channels,
            blocks=params.blocks,
            normalization=params.normalization,
            dropout=params.dropout,
        )
        config = DiffusionConfig(
            steps=params.steps,
            batch=params.batch,
            learning_rate=params.learning_rate,
            weight_decay=params.weight_decay,
            average=params.average,
            images=params.images,
            seed=self.seed,
            record_ratio=params.record_ratio,
            first_record=params.first_record,
            record_images=params.record_images,
            sampling_steps=params.sampling_steps,
            threads=params.threads,
            precision=params.precision,
            compiled=params.compiled,
        )
        history = fit_diffusion(
            circle_process(params, self.signal),
            network,
            config,
            classifier=classifier,
            device=params.device,
            checkpoint=context.scratch / f"{name.replace(' ', '-')}.pt",
            report=lambda fraction, note: context.report(fraction, f"{name}, {note}"),
        )
        return history.to_xarray()[["images", "position", "raw_position", "blank", "probability", "loss", "gamma"]]
