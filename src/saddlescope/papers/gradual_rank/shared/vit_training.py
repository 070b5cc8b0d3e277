"""Vision transformers trained on images, with the spectra of what training added to every head.

    KQ, VO          the products W_K W_Q^T and W_V W_O^T of one head
    update          product now minus product at initialization
    stable rank     |A|_F^2 / |A|_2^2
    energy rank     how many of the largest singular values hold 90 % of |A|_F^2

Shared by the entries on Figures 1, 4 to 7 and 12 to 19, which differ in data, sizes, optimiser and initial scale.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.device import prepare_device
from saddlescope.reproduction.parameter_checks import require_at_least
from saddlescope.reproduction.parameters import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.train import ImageData

Images = Literal["digits", "digit-pairs", "mnist", "cifar10", "cifar100", "imagenet"]


class Training(EntryParams):
    """A small ViT on the digits embedded in scikit-learn: real images, minutes on two cores."""

    dataset: Images = param("digits", "digits and digit-pairs are embedded; the others are read from the data folder")
    images: int = param(0, "training images, equally many of each class; 0 takes all", ge=0)
    seeds: tuple[int, ...] = param((0, 1, 2, 3, 4), "one training run each: initial weights and order of the images")
    patch: int = param(2, "side of a square patch in pixels")
    depth: int = param(4, "transformer blocks")
    embedding: int = param(128, "dimension of a token")
    heads: int = param(8, "attention heads in a block")
    head_width: int = param(32, "columns of W_K, W_Q, W_V and W_O of one head")
    mlp: int = param(128, "width of the feedforward layer")
    optimizer: Literal["adam", "sgd"] = param("adam", "adam, or sgd without momentum")
    epochs: int = param(40, "passes through the training images")
    batch: int = param(128, "images in a step")
    pieces: int = param(1, "in which a batch goes through the model, to save memory")
    learning_rate: float = param(1e-3, "of the optimiser, at its peak", gt=0)
    warmup_epochs: int = param(2, "epochs of linear warm-up; a cosine follows")
    test_every: int = param(1, "epochs between two measurements of test accuracy")
    device: Literal["cpu", "cuda"] = param("cpu", "where to train: the processor or a GPU")
    precision: Literal["float32", "tf32", "bf16"] = param("float32", "of matrix products; weights are float32 always")
    compiled: bool = param(False, "through torch.compile: other rounding, much faster on a GPU")
    threads: int = param(1, "of PyTorch on the processor; matrices this small gain little from more")

    def check(self) -> None:
        sizes = ("patch", "depth", "embedding", "heads", "head_width", "mlp", "epochs", "batch", "pieces", "test_every")
        require_at_least(1, self, *sizes, "threads")
        if self.batch % self.pieces:
            raise InputError(f"pieces must divide batch={self.batch}; got {self.pieces!r}.")
        if not 0 <= self.warmup_epochs < self.epochs:
            raise InputError(f"warmup_epochs must be at least 0 and below epochs; got {self.warmup_epochs!r}.")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise InputError(f"seeds must be distinct and at least 0, such as 0,1,2; got {self.seeds!r}.")


class NarrowTraining(Training):
    """A narrow ViT on the digits embedded in scikit-learn, for CIFAR-10."""

    embedding: int = param(64, "dimension of a token")
    heads: int = param(4, "attention heads in a block")
    mlp: int = param(64, "width of the feedforward layer")


class PairsTraining(NarrowTraining):
    """A narrow ViT on pairs of embedded digits, for CIFAR-100."""

    dataset: Images = param("digit-pairs", "digits and digit-pairs are embedded; the others are in the data folder")
    patch: int = param(4, "side of a square patch in pixels")
    epochs: int = param(10, "passes through the training images; as many images are seen as of digits in 40")
    warmup_epochs: int = param(1, "epochs of linear warm-up; a cosine follows")


QUICK: dict[str, Any] = {
    "images": 250, "seeds": (0, 1), "depth": 2, "embedding": 32, "heads": 2, "head_width": 16, "mlp": 32,
    "epochs": 12, "batch": 25, "learning_rate": 3e-3, "warmup_epochs": 1,
}  # fmt: skip
"""Seconds: two blocks, two heads, a few epochs."""

QUICK_PAIRS: dict[str, Any] = QUICK | {"images": 500, "epochs": 5}
"""The same for 100 classes."""

GPU: dict[str, Any] = {"device": "cuda", "precision": "bf16", "compiled": True, "threads": 8}
"""Full speed of a GPU. Weights, and so the spectra of their updates, stay in float32."""

CIFAR: dict[str, Any] = {
    "seeds": (0,), "patch": 4, "depth": 6, "embedding": 512, "heads": 8, "head_width": 128, "mlp": 512,
    "epochs": 500, "batch": 512, "warmup_epochs": 15, "test_every": 5,
} | GPU  # fmt: skip
"""Appendix B: the ViT for CIFAR-10 and CIFAR-100, 500 epochs; the learning rate differs."""


def train(params: Training, context: RunContext, *, initial_scale: float = 1.0, name: str = "") -> xr.Dataset:
    """Train one ViT per seed; each stores its checkpoint in the scratch folder.

    Args:
        params: what to train.
        context: of the run.
        initial_scale: factor on the default initial weights, all but the patch embedding.
        name: of the checkpoints, where a run trains more than once.

    Returns:
        The tracker's records (see `RankTracker.to_xarray`) with layers numbered from 1, one more dimension `seed`, and

            initial_stable_rank    (seed, layer, head, product)
            energy_rank            (seed, layer, head, product), of the last update
            initial_energy_rank    (seed, layer, head, product)
            train_loss             (seed, epoch), mean over the epoch, in nats
            test_accuracy          (seed, tested), after so many epochs

    Raises:
        InputError: the device or the data are not there, or training diverges.
    """
    device, data = prepare_device(params.device), _images(params, context)
    runs = []
    for k, seed in enumerate(params.seeds):
        part = context.part(k / len(params.seeds), (k + 1) / len(params.seeds))
        checkpoint = context.scratch / f"{name}seed-{seed}.pt"
        runs.append(_one(params, data, seed, initial_scale, device, checkpoint, part))
    together = xr.concat(runs, dim="seed", combine_attrs="override").assign_coords(seed=list(params.seeds))
    return together.assign_attrs(steps_per_epoch=len(data.train_images) // params.batch, dataset=params.dataset)


def _images(params: Training, context: RunContext) -> "ImageData":
    """Return the data set, or a part of it."""
    from saddlescope.train import load
    from saddlescope.train.data import EMBEDDED

    if params.dataset not in EMBEDDED and context.data is None:
        raise InputError(
            f"dataset {params.dataset!r} needs the folder of its official files: give --data or set SADDLESCOPE_DATA, "
            "or take dataset=digits, which is embedded."
        )
    data = load(params.dataset, context.data, report=context.part(0.0, 0.0))
    return data.subset(params.images) if params.images else data


def _one(
    params: Training,
    data: "ImageData",
    seed: int,
    scale: float,
    device: str,
    checkpoint: Path,
    report: Report,
) -> xr.Dataset:
    """Run one training and return what `train` records of it."""
    from saddlescope.measure import energy_rank, stable_rank
    from saddlescope.train import SGD, Adam, Geometric, RankTracker, TrainConfig, ViT, ViTConfig, fit

    _, channels, size, _ = data.train_images.shape
    config = ViTConfig(
        image_size=size,
        channels=channels,
        classes=data.classes,
        patch=params.patch,
        embedding=params.embedding,
        depth=params.depth,
        heads=params.heads,
        head_width=params.head_width,
        mlp_width=params.mlp,
        initial_scale=scale,
    )
    model = ViT(config, seed=seed).to(device)
    tracker = RankTracker(model, schedule=Geometric(1.15))
    kind = {"adam": Adam, "sgd": SGD}[params.optimizer]
    history = fit(
        model,
        data,
        TrainConfig(
            optimizer=kind(learning_rate=params.learning_rate),
            epochs=params.epochs,
            warmup_epochs=params.warmup_epochs,
            batch=params.batch,
            pieces=params.pieces,
            test_every=params.test_every,
            seed=seed,
            threads=params.threads,
            precision=params.precision,
            compiled=params.compiled,
        ),
        checkpoint=checkpoint,
        tracker=tracker,
        report=lambda fraction, note: report(fraction, f"{checkpoint.stem.replace('seed-', 'seed ')}, {note}"),
    )
    tracked = tracker.to_xarray()
    heads = ("layer", "head", "product")
    steps = history.steps_per_epoch
    return tracked.assign(
        initial_stable_rank=(heads, stable_rank(tracked.initial_spectrum.values)),
        energy_rank=(heads, energy_rank(tracked.update_spectrum.values[-1], fraction=0.9)),
        initial_energy_rank=(heads, energy_rank(tracked.initial_spectrum.values, fraction=0.9)),
        train_loss=("epoch", history.train_loss.reshape(-1, steps).mean(axis=1)),
        test_accuracy=("tested", np.asarray(history.test_accuracy[1:])),
    ).assign_coords(
        layer=np.arange(1, params.depth + 1),
        epoch=np.arange(1, params.epochs + 1),
        tested=history.test_steps[1:] / steps,
    )


PAPER_TRAINING = dict(dataset="cifar10", learning_rate=1e-4, **CIFAR)
"""Appendix B: ViT with 6 blocks on CIFAR-10 for 500 epochs; for a GPU."""

PAPER_PAIRSTRAINING = dict(dataset="cifar100", learning_rate=1e-4, **CIFAR)
"""Appendix B: ViT with 6 blocks on CIFAR-100 for 500 epochs; for a GPU."""
