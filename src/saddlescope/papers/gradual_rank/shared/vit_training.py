"""Vision transformers trained on images, with the spectra of the learned updates of every head.

    KQ, VO          the products W_K W_Qᵀ and W_V W_Oᵀ of one head
    update          product now minus product at initialization
    stable rank     ‖A‖_F² / ‖A‖₂²
    energy rank     smallest number of singular values with 90 % of ‖A‖_F²

Shared by the entries on Figures 1, 4 to 7 and 12 to 19, which differ in data, sizes, optimiser and initial scale.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.gradual_rank.shared.shared_training import report_slow_precision, train_seeds
from saddlescope.papers.image_data import read_images
from saddlescope.plot import Axis, Figure, Panel, lines
from saddlescope.reproduction import EntryParams, RunContext, param, parameters
from saddlescope.reproduction.device import prepare_device

if TYPE_CHECKING:
    from saddlescope.ranks import AtSteps
    from saddlescope.training import TrainConfig, ViTConfig
    from saddlescope.training.data.labelled_images import ImageData

Images = Literal["digits", "digit-pairs", "mnist", "cifar10", "cifar10-pairs", "cifar100", "imagenet"]


class Training(EntryParams):
    """A small ViT on the digits embedded in scikit-learn: real images, minutes on two cores."""

    dataset: Images = param(
        "digits", "image data set; digits and digit-pairs are embedded, the others are in the data folder"
    )
    images: int = param(0, "number of training images, equally many per class; 0 takes all", ge=0)
    seeds: tuple[int, ...] = param(
        (5, 6, 7, 8, 9, 10),
        "seeds of the training runs: initial weights and order of the images",
        ge=0,
        order="distinct",
    )
    patch: int = param(2, "side of a square patch", unit="pixels", ge=1)
    depth: int = param(4, "number of transformer blocks", ge=1)
    embedding: int = param(128, "dimension of a token", ge=1)
    heads: int = param(8, "attention heads per block", ge=1)
    head_width: int = param(32, "columns of W_K, W_Q, W_V and W_O of one head", ge=1)
    mlp: int = param(128, "width of the feedforward layers", ge=1)
    optimizer: Literal["adam", "sgd"] = param("adam", "optimiser: Adam, or SGD without momentum")
    epochs: int = param(40, "passes through the training images", ge=1)
    batch: int = param(128, "images per training step", ge=1)
    pieces: int = param(1, "parts of a batch that are processed one after the other, to save memory", ge=1)
    learning_rate: float = param(1e-3, "peak learning rate", gt=0, scale="log")
    warmup_epochs: int = param(2, "epochs of linear warm-up, before a cosine decay", ge=0)
    test_every: int = param(1, "epochs between two measurements of the test accuracy", ge=1)
    device: Literal["cpu", "cuda"] = param("cpu", "device for training: the processor or a GPU")
    precision: Literal["float32", "tf32", "bf16"] = param(
        "float32", "precision of matrix products; the weights are always float32"
    )
    compiled: bool = param(False, "compilation by torch.compile: much faster on a GPU, other rounding")
    threads: int = param(1, "threads of PyTorch on the processor; small matrices gain little from more", ge=1)

    def check(self) -> None:
        if self.batch % self.pieces:
            raise InputError(f"pieces must divide batch={self.batch}; got {self.pieces!r}.")
        if self.warmup_epochs >= self.epochs:
            raise InputError(f"warmup_epochs must be below epochs={self.epochs}; got {self.warmup_epochs!r}.")


class NarrowTraining(Training, embedding=64, heads=4, mlp=64):
    """A narrow ViT on the digits embedded in scikit-learn, for CIFAR-10."""


class PairsTraining(NarrowTraining, dataset="digit-pairs", patch=4, epochs=10, warmup_epochs=1):
    """A narrow ViT on pairs of embedded digits, for CIFAR-100; 10 epochs have as many images as 40 of digits."""


QUICK: dict[str, Any] = dict(images=250, seeds=(0, 1), depth=2, embedding=32, heads=2, head_width=16, mlp=32) | dict(
    epochs=12, batch=25, learning_rate=3e-3, warmup_epochs=1
)
"""Seconds: two blocks, two heads, a few epochs."""

QUICK_PAIRS: dict[str, Any] = QUICK | dict(images=500, epochs=5)
"""The same for 100 classes."""

GPU: dict[str, Any] = dict(device="cuda", precision="bf16", compiled=True, threads=8)
"""Full speed of a GPU. Weights, and so the spectra of their updates, stay in float32."""

_CIFAR_NETWORK: dict[str, Any] = dict(patch=4, depth=6, embedding=512, heads=8, head_width=128, mlp=512)
_CIFAR_TRAINING: dict[str, Any] = dict(epochs=500, batch=512, learning_rate=1e-4, warmup_epochs=15, test_every=5)
CIFAR: dict[str, Any] = GPU | dict(dataset="cifar10", seeds=(0, 1, 2)) | _CIFAR_NETWORK | _CIFAR_TRAINING
"""Appendix B: the ViT for CIFAR-10, and with `dataset` changed for CIFAR-100; trained by Adam for 500 epochs."""

_REDUCED_NETWORK: dict[str, Any] = dict(patch=4, depth=6, embedding=128, heads=8, head_width=32, mlp=128)
_REDUCED_TRAINING: dict[str, Any] = dict(epochs=30, batch=64, learning_rate=4e-4, warmup_epochs=1, test_every=5)
REDUCED: dict[str, Any] = (
    dict(dataset="cifar10", images=10_000, seeds=(0, 1, 2), precision="bf16", compiled=True)
    | _REDUCED_NETWORK
    | _REDUCED_TRAINING
)
"""Twenty minutes a seed on one core with AVX512-BF16: every width is a quarter of the paper's, Adam's learning rate
four times it, and 10,000 images are seen 30 times, in 4,680 steps. Set precision=float32 on a processor without it."""


def changes(params: type[EntryParams], values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that differ from the defaults of a class of parameters."""
    return {name: value for name, value in values.items() if value != parameters(params)[name].default}


def train(
    params: Training,
    context: RunContext,
    *,
    initial_scale: float = 1.0,
    attention: Literal["softmax", "linear"] = "softmax",
    shuffled: bool = False,
    records: int = 0,
) -> xr.Dataset:
    """Train one ViT per seed; entries that need the same training share it.

    Args:
        params: of the training.
        context: of the run.
        initial_scale: factor on the default initial weights of all layers but the patch embedding.
        attention: softmax or linear attention.
        shuffled: permute the labels of the training images, so that nothing but these images can be learned.
        records: evenly spaced records in addition to those of geometrically growing steps.

    Returns:
        The tracker's records (see `RankTracker.to_xarray`) with layers numbered from 1 and a dimension `seed`;
        initial_stable_rank, initial_energy_rank and, of the last update, energy_rank (seed, layer, head, product);
        train_loss (seed, epoch), mean over the epoch, in nats; and test_accuracy (seed, tested), `tested` in epochs.

    Raises:
        InputError: the device or the data are absent, or training diverges.
    """
    data = read_training_images(params, context)
    if shuffled:
        order = np.argsort(np.random.PCG64(0).random_raw(len(data.train_labels)), kind="stable")
        data = replace(data, train_labels=data.train_labels[order])
    config = replace(network_config(params, data, initial_scale), attention=attention)
    report_slow_precision(params.precision, params.device, context)
    others: dict[str, Any] = {"initial_scale": initial_scale, "data_digest": data.digest()}
    others |= {"attention": attention} if attention != "softmax" else {}
    others |= {"records": records} if records else {}
    train_one = partial(_train_one, params, config, data, records)
    together = train_seeds("vision-transformers", params, Training, others, context, train_one).assign_coords(
        layer=np.arange(1, params.depth + 1), epoch=np.arange(1, params.epochs + 1)
    )
    return together.assign_attrs(steps_per_epoch=len(data.train_images) // params.batch, dataset=params.dataset)


def accumulate(params: Training, context: RunContext, *, initial_scale: float, draws: int, records: int) -> xr.Dataset:
    """Accumulate the gradient noise of one ViT per seed, of `draws` random signs; see `train.gradient_noise`.

    Minibatches, learning rates and optimiser are those of `train`, at whose records all draws are measured. The spectra
    and ranks have the dimensions seed and draw, and layers numbered from 1.
    """
    data = read_training_images(params, context)
    config = network_config(params, data, initial_scale)
    others = {"initial_scale": initial_scale, "data_digest": data.digest(), "draws": draws, "records": records}
    one = partial(_accumulate_one, params, config, data, draws, records)
    together = train_seeds("gradient-noise", params, Training, others, context, one)
    return together.assign_coords(layer=np.arange(1, params.depth + 1))


def learned(run: xr.Dataset) -> bool:
    """Training at least halves the loss of every network between the first epoch and the last."""
    return bool((run.train_loss.isel(epoch=-1) / run.train_loss.isel(epoch=0)).max() <= 0.5)


def read_training_images(params: Training, context: RunContext) -> "ImageData":
    """Return the images of a training; the device is prepared first, since it may be absent."""
    prepare_device(params.device)
    data = context.read_data(params.dataset, read_images)
    return data.subset(params.images) if params.images else data


def network_config(params: Training, data: "ImageData", initial_scale: float) -> "ViTConfig":
    """Return the sizes of the network."""
    from saddlescope.training import ViTConfig

    _, channels, size, _ = data.train_images.shape
    sizes = params.only("patch", "embedding", "depth", "heads", "head_width")
    images = {"image_size": size, "channels": channels, "classes": data.classes}
    return ViTConfig(**images, **sizes, mlp_width=params.mlp, initial_scale=initial_scale)


def training_config(params: Training, seed: int) -> "TrainConfig":
    """Return the configuration of the training of one seed."""
    from saddlescope.training import SGD, Adam, TrainConfig

    optimizer = {"adam": Adam, "sgd": SGD}[params.optimizer](learning_rate=params.learning_rate)
    schedule = params.only("epochs", "warmup_epochs", "batch", "pieces", "test_every")
    return TrainConfig(optimizer=optimizer, seed=seed, **schedule, **params.only("threads", "precision", "compiled"))


def even_records(steps: int, records: int) -> "AtSteps":
    """Return the steps of geometrically growing records, and so many evenly spaced ones up to the last step."""
    from saddlescope.ranks import AtSteps, Geometric

    geometric = Geometric(1.15)
    even = {steps * k // records for k in range(1, records + 1)}
    return AtSteps(*(step for step in range(1, steps + 1) if step in even or geometric(step)))


def _train_one(
    params: Training, config: "ViTConfig", data: "ImageData", records: int, seed: int, context: RunContext
) -> xr.Dataset:
    from saddlescope.measure import energy_rank, stable_rank
    from saddlescope.ranks import Geometric, RankTracker, Separate
    from saddlescope.ranks.attention.known_layouts import LAYOUTS
    from saddlescope.training import ViT, fit

    model = ViT(config, seed=seed).to(prepare_device(params.device))
    steps = params.epochs * (len(data.train_images) // params.batch)
    tracker = RankTracker(
        model,
        schedule=even_records(steps, records) if records else Geometric(1.15),
        layouts=LAYOUTS if config.attention == "softmax" else (Separate("key", "query", "value", "output"),),
    )
    history = fit(
        model,
        data,
        training_config(params, seed),
        checkpoint=context.scratch / "checkpoint.pt",
        tracker=tracker,
        report=context.report,
    )
    heads = ("layer", "head", "product")
    tracked = tracker.to_xarray()
    return tracked.assign(
        initial_stable_rank=(heads, stable_rank(tracked.initial_spectrum.values)),
        energy_rank=(heads, energy_rank(tracked.update_spectrum.values[-1], fraction=0.9)),
        initial_energy_rank=(heads, energy_rank(tracked.initial_spectrum.values, fraction=0.9)),
        train_loss=("epoch", history.train_loss.reshape(-1, history.steps_per_epoch).mean(axis=1)),
        test_accuracy=("tested", np.asarray(history.test_accuracy[1:])),
    ).assign_coords(tested=history.test_steps[1:] / history.steps_per_epoch)


def _accumulate_one(
    params: Training, config: "ViTConfig", data: "ImageData", draws: int, records: int, seed: int, context: RunContext
) -> xr.Dataset:
    from saddlescope.training import ViT
    from saddlescope.training.gradient_noise import accumulate_noise

    return accumulate_noise(
        ViT(config, seed=seed).to(prepare_device(params.device)),
        data,
        training_config(params, seed),
        draws=draws,
        seed=seed,
        schedule=even_records(params.epochs * (len(data.train_images) // params.batch), records),
        checkpoint=context.scratch / "checkpoint.pt",
        report=context.report,
    )


def training_figure(run: xr.Dataset) -> Figure:
    """Draw loss and test accuracy over the epochs, one curve per seed."""
    loss = lines(run.train_loss, x="epoch", hue="seed", label="seed {}", grouped=True)
    accuracy = lines(run.test_accuracy, x="tested", hue="seed", label="seed {}", grouped=True)
    final = float(run.test_accuracy.isel(tested=-1).mean())
    return Figure(
        name="training",
        title="Training loss and test accuracy",
        caption=f"Trained on {run.attrs['dataset']}: training loss, mean over each epoch, and test accuracy, one line "
        f"per seed. The final test accuracy is {final:.3f}, mean over seeds.",
        panels=(
            Panel(x=Axis("epoch"), y=Axis("training loss", "nats", scale="log"), marks=loss),
            Panel(x=Axis("epoch"), y=Axis("test accuracy"), marks=accuracy),
        ),
    )
