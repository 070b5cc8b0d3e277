"""Figure 6: learning of concepts in a diffusion model.

Diffusion models are trained on circles that are red or blue, big or small, except (blue, small), at several strengths
of the colour signal; the size signal is the same for all. At steps that grow geometrically each model generates images
of all four classes, always from the same noise. Parts (a) to (c) of the figure are read from the same runs.

    signal        colour signal: the difference of the two colours' channels
    unseen class  (blue, small)
    position      of an image in concept coordinates, by the direct estimator; 0 and 1 are the class means
    probability   P(blue) and P(small) by a classifier trained on true images of the signal

Further terms are those of `curves`.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import silent
from saddlescope.papers.concept_learning.figure_6.claims import claims
from saddlescope.papers.concept_learning.figure_6.figures import figures
from saddlescope.reproduction import Entry, EntryParams, RunContext, param
from saddlescope.reproduction.device import prepare_device
from saddlescope.reproduction.grid import join_cells

if TYPE_CHECKING:
    from saddlescope.training.diffusion.circles import CircleProcess
    from saddlescope.training.diffusion.classifier import FittedClassifier

_CLASSIFIER = 0.1  # training time of a classifier over that of a model

_SHOWN = 4  # images of each class, of the first seed, that are stored for the figures


class Params(EntryParams):
    """Small images and a small U-Net: minutes on two cores.

    Earlier runs had seeds 0 to 4. Eight is the least number of seeds of which all but one decide a share of one half.
    """

    signals: tuple[float, ...] = param((0.7, 0.2), "colour signals", gt=0, le=1, least=2, order="decreasing")
    size_signal: float = param(0.35, "difference of the diameters as a fraction of the image's side", gt=0, le=1)
    size_jitter: float = param(0.1875, "largest deviation of a diameter within a class, as a fraction of size_signal")
    diameter: float = param(0.675, "mean of the two diameters as a fraction of the image's side", gt=0)
    seeds: tuple[int, ...] = param(
        tuple(range(20, 28)),
        "seeds of the data, weights, batches and samples; one model per seed and signal",
        ge=0,
        order="distinct",
    )
    pixels: int = param(16, "side of the images", unit="pixels", ge=1)
    channels: tuple[int, ...] = param((16, 32, 32), "width of each level of the U-Net, from the finest")
    blocks: int = param(1, "residual blocks per level", ge=1)
    normalization: Literal["layer", "pixel", "group"] = param(
        "layer", "normalization: LayerNorm of whole maps, LayerNorm of each pixel, or GroupNorm"
    )
    dropout: float = param(0.0, "dropout probability in every residual block", ge=0, le=1)
    steps: int = param(6000, "steps of AdamW", ge=1, scale="log")
    batch: int = param(16, "images per step", ge=1)
    learning_rate: float = param(1e-3, "learning rate of AdamW", gt=0, scale="log")
    weight_decay: float = param(0.01, "weight decay of AdamW", ge=0)
    average: float = param(0.99, "decay of the moving average of the weights from which images are sampled", ge=0, le=1)
    images: int = param(2048, "images of each class for training", ge=2, scale="log")
    first_record: int = param(50, "first step whose positions are reported; earlier samples are noise", ge=1)
    record_ratio: float = param(1.15, "ratio of the steps of successive records", gt=1)
    record_images: int = param(16, "generated images of each class per record", ge=2)
    sampling_steps: int = param(50, "steps of ancestral sampling", ge=1)
    classifier_steps: int = param(1200, "training steps of the classifier of each signal", ge=1, scale="log")
    held_out: int = param(4096, "held-out true images for the classifier's accuracy", ge=4, scale="log")
    device: Literal["cpu", "cuda"] = param("cpu", "device of the training")
    precision: Literal["float32", "tf32", "bf16"] = param(
        "float32", "precision of matrix products; weights are always float32"
    )
    compiled: bool = param(False, "use of torch.compile: different rounding, much faster on a GPU")
    processes: int = param(2, "models trained in parallel, each in its own process; changes no result", ge=1)
    threads: int = param(1, "PyTorch threads per process on the processor; more than one is slower", ge=1)

    def check(self) -> None:
        if self.batch > 3 * self.images:
            raise InputError(f"batch must be at most the {3 * self.images} training images; got {self.batch!r}.")
        if self.first_record >= self.steps:
            raise InputError(f"first_record must be below steps={self.steps}; got {self.first_record!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Train a model for each signal and seed, each with its own checkpoint."""
    prepare_device(params.device)
    classifiers, models = context.split(_CLASSIFIER, len(params.seeds))
    accuracy = [_fit_classifier(params, signal, step).accuracy for signal, step in classifiers.steps(params.signals)]
    axes = {"signal": params.signals, "seed": params.seeds}
    made = models.cells(axes, partial(_train_model, params), processes=params.processes)
    shown = [part.images.isel(image=slice(_SHOWN)) for part in made[:: len(params.seeds)]]
    trained = join_cells([part.drop_vars("images").drop_attrs() for part in made], axes).assign(
        images=xr.concat(shown, "signal").rename(image="shown"), accuracy=(("signal", "concept"), np.array(accuracy))
    )
    return trained.assign_attrs(first_record=params.first_record)


def _process(params: Params, signal: float) -> "CircleProcess":
    from saddlescope.training.diffusion.circles import CircleProcess

    return CircleProcess(color_signal=signal, **params.only("pixels", "size_signal", "size_jitter", "diameter"))


def _fit_classifier(params: Params, signal: float, context: RunContext) -> "FittedClassifier":
    """Train the classifier of one signal, or load it."""
    from saddlescope.training.diffusion.classifier import ClassifierConfig, fit_classifier

    chosen = params.only("channels", "blocks", "normalization", "batch", "held_out", "threads")
    return fit_classifier(
        _process(params, signal),
        ClassifierConfig(steps=params.classifier_steps, **chosen),
        device=params.device,
        checkpoint=context.scratch / f"classifier-{signal:g}.pt",
        report=context.report,
    )


def _train_model(params: Params, signal: float, seed: int, context: RunContext) -> xr.Dataset:
    """Train the model of one signal and seed, in any process."""
    from saddlescope.training.diffusion.training import DiffusionConfig, fit_diffusion
    from saddlescope.training.diffusion.unet import UNetConfig

    names = "steps batch learning_rate weight_decay average images record_ratio first_record record_images"
    config = params.only(*names.split(), "sampling_steps", "threads", "precision", "compiled")
    fitted = fit_diffusion(
        _process(params, signal),
        UNetConfig(**params.only("pixels", "channels", "blocks", "normalization", "dropout")),
        DiffusionConfig(seed=seed, **config),
        classifier=_fit_classifier(params, signal, replace(context, report=silent)).classifier,
        device=params.device,
        checkpoint=context.scratch / f"signal-{signal:g}-seed-{seed}.pt",
        report=context.report,
    )
    return fitted.records[["images", "position", "raw_position", "blank", "probability", "loss", "gamma"]]


entry = Entry(
    "concept-learning/figure-6",
    "Figure 6: learning of concepts in a diffusion model: order, transient memorization, slowing down",
    source="Section 5",
    quick=dict(
        seeds=(0, 1),
        pixels=8,
        channels=(8,),
        steps=12,
        batch=8,
        images=16,
        first_record=6,
        record_images=2,
        sampling_steps=2,
        classifier_steps=2,
        held_out=16,
        processes=1,
    ),
    paper=dict(
        signals=(0.7, 0.45, 0.2),
        size_signal=0.4,
        size_jitter=0.375,
        diameter=0.5,
        pixels=32,
        channels=(64, 128, 256),
        blocks=2,
        steps=20000,
        batch=128,
        average=0.999,
        record_ratio=1.1,
        record_images=32,
        sampling_steps=100,
        classifier_steps=10000,
        device="cuda",
        precision="bf16",
        compiled=True,
        threads=8,
        processes=1,
    ),
    claims=claims,
    figures=figures,
)
