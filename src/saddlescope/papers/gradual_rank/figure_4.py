"""Figures 4, 5 and 15: a vision transformer learns by updates of low and growing rank   (Section 5 and appendix B.2)

A ViT is trained with Adam on real images. For every head the spectra of what training added to W_K W_Q^T and
W_V W_O^T are recorded; the initial products are the comparison.

    KQ, VO          the products W_K W_Q^T and W_V W_O^T of one head
    update          product now minus product at initialization
    stable rank     |A|_F^2 / |A|_2^2
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from saddlescope.errors import InputError
from saddlescope.papers.claim import Claim, Measured
from saddlescope.papers.context import RunContext

if TYPE_CHECKING:
    import xarray as xr

    from saddlescope.plot.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Params:
    """A small ViT on the digits embedded in scikit-learn: real images, minutes on two cores."""

    dataset: Literal["digits", "mnist", "cifar10"] = "digits"  # mnist and cifar10 are read from the data folder
    images: int = 0  # training images, equally many of each class; 0 takes all
    seeds: tuple[int, ...] = (0, 1, 2)  # one training run each: initial weights and order of the images
    patch: int = 2  # side of a square patch in pixels
    depth: int = 4  # transformer blocks
    embedding: int = 128  # dimension of a token
    heads: int = 8  # attention heads in a block
    head_width: int = 32  # columns of W_K, W_Q, W_V and W_O of one head
    mlp: int = 128  # width of the feedforward layer
    initial_scale: float = 1.0  # factor on the default initial weights, all but the patch embedding
    epochs: int = 40  # passes through the training images
    batch: int = 128  # images in a step
    learning_rate: float = 1e-3  # of Adam, at its peak
    warmup_epochs: int = 2  # epochs of linear warm-up; a cosine follows
    threads: int = 1  # of PyTorch on the processor; matrices this small gain little from more

    def __post_init__(self) -> None:
        for name in ("patch", "depth", "embedding", "heads", "head_width", "mlp", "epochs", "batch", "threads"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)!r}.")
        if not 0 < self.learning_rate < float("inf"):
            raise InputError(f"learning_rate must be positive and finite; got {self.learning_rate!r}.")
        if not 1e-6 <= self.initial_scale < float("inf"):  # below, float32 gradients of keys and queries vanish
            raise InputError(f"initial_scale must be at least 1e-6 and finite; got {self.initial_scale!r}.")
        if not 0 <= self.warmup_epochs < self.epochs:
            raise InputError(f"warmup_epochs must be at least 0 and below epochs; got {self.warmup_epochs!r}.")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise InputError(f"seeds must be distinct and at least 0, such as 0,1,2; got {self.seeds!r}.")
        if self.images < 0:
            raise InputError(f"images must be at least 0 (0 takes all); got {self.images!r}.")

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: two blocks, two heads, a few epochs."""
        return cls(
            images=500, seeds=(0, 1), depth=2, embedding=32, heads=2, head_width=16, mlp=32,
            epochs=12, batch=25, learning_rate=3e-3, warmup_epochs=1,
        )  # fmt: skip

    @classmethod
    def paper(cls) -> "Params":
        """Appendix B.2: ViT with 6 blocks on CIFAR-10 for 500 epochs; for a GPU."""
        return cls(
            dataset="cifar10", seeds=(0,), patch=4, depth=6, embedding=512, heads=8, head_width=128, mlp=512,
            epochs=500, batch=512, learning_rate=1e-4, warmup_epochs=15, threads=8,
        )  # fmt: skip


def run(params: Params, context: RunContext) -> "xr.Dataset":
    """Trains one ViT a seed; each keeps its own checkpoint in the scratch folder."""
    import numpy as np
    import xarray as xr

    from saddlescope.measure import energy_rank, stable_rank
    from saddlescope.train import Adam, Geometric, RankTracker, TrainConfig, ViT, ViTConfig, fit, load

    if params.dataset != "digits" and context.data is None:
        raise InputError(
            f"dataset {params.dataset!r} needs the folder of its official files: give --data or set SADDLESCOPE_DATA, "
            "or take dataset=digits, which is embedded."
        )
    data = load(params.dataset, context.data)
    if params.images:
        data = data.subset(params.images)
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
        initial_scale=params.initial_scale,
    )
    runs, steps = [], len(data.train_images) // params.batch
    for k, seed in enumerate(params.seeds):
        model = ViT(config, seed=seed)
        tracker = RankTracker(model, schedule=Geometric(1.15))
        part = context.part(k / len(params.seeds), (k + 1) / len(params.seeds))
        history = fit(
            model,
            data,
            TrainConfig(
                optimizer=Adam(learning_rate=params.learning_rate),
                epochs=params.epochs,
                warmup_epochs=params.warmup_epochs,
                batch=params.batch,
                seed=seed,
                threads=params.threads,
            ),
            checkpoint=context.scratch / f"seed-{seed}.pt",
            tracker=tracker,
            report=lambda fraction, note, part=part, seed=seed: part(fraction, f"seed {seed}, {note}"),
        )
        tracked = tracker.to_xarray()
        heads = ("layer", "head", "product")
        runs.append(
            tracked.assign(
                initial_stable_rank=(heads, stable_rank(tracked.initial_spectrum.values)),
                energy_rank=(heads, energy_rank(tracked.update_spectrum.values[-1], fraction=0.9)),
                initial_energy_rank=(heads, energy_rank(tracked.initial_spectrum.values, fraction=0.9)),
                train_loss=("epoch", history.train_loss.reshape(-1, steps).mean(axis=1)),
                test_accuracy=("epoch", np.asarray(history.test_accuracy[1:])),
            ).assign_coords(layer=np.arange(1, params.depth + 1), epoch=np.arange(1, params.epochs + 1))
        )
    together = xr.concat(runs, dim="seed", combine_attrs="override").assign_coords(seed=list(params.seeds))
    return together.assign_attrs(steps_per_epoch=steps, dataset=params.dataset)


# The bounds. The paper says "gradually increases", "ultimately low-rank when compared to the initial spectrum" and
# "extremely low-rank" without numbers. Read here as: rises from the end of the first epoch to the last; at most half
# the initial product's stable rank; at most a third of the directions that the initial product needs for 90 % energy.
def _over_seeds(values: "xr.DataArray") -> Measured:
    return Measured.mean(values.values)


def _rise(product: str) -> "Callable[[xr.Dataset], Measured]":
    def statistic(run: "xr.Dataset") -> Measured:
        rank = run.stable_rank.sel(product=product).mean(("layer", "head"))
        first = rank.sel(step=run.attrs["steps_per_epoch"], method="nearest")
        return _over_seeds(rank.isel(step=-1) - first)

    return statistic


def _against_initial(product: str) -> "Callable[[xr.Dataset], Measured]":
    def statistic(run: "xr.Dataset") -> Measured:
        last = run.stable_rank.sel(product=product).isel(step=-1).mean(("layer", "head"))
        initial = run.initial_stable_rank.sel(product=product).mean(("layer", "head"))
        return _over_seeds(last / initial)

    return statistic


def _energy_against_initial(run: "xr.Dataset") -> Measured:
    last = run.energy_rank.sel(product="KQ").mean(("layer", "head"))
    initial = run.initial_energy_rank.sel(product="KQ").mean(("layer", "head"))
    return _over_seeds(last / initial)


def _learned(run: "xr.Dataset") -> Measured:
    loss = run.train_loss
    return _over_seeds(loss.isel(epoch=-1) / loss.isel(epoch=0))


claims = (
    Claim(
        name="learned",
        says="Training works: loss in the last epoch over loss in the first",
        source="needed for the figures to mean something",
        statistic=_learned,
        high=0.5,
    ),
    Claim(
        name="rise-KQ",
        says="The stable rank of the update of W_K W_Q^T rises: last step minus end of the first epoch",
        source="Section 5, Figures 4 and 15: 'gradually increases in stable rank'",
        statistic=_rise("KQ"),
        low=0.0,
    ),
    Claim(
        name="rise-VO",
        says="The stable rank of the update of W_V W_O^T rises: last step minus end of the first epoch",
        source="Section 5, Figures 4 and 15: 'gradually increases in stable rank'",
        statistic=_rise("VO"),
        low=0.0,
    ),
    Claim(
        name="low-KQ",
        says="The update of W_K W_Q^T ends low-rank: its stable rank over that of the initial product",
        source="Section 5: 'ultimately low-rank when compared to the initial spectrum'",
        statistic=_against_initial("KQ"),
        high=0.5,
    ),
    Claim(
        name="low-VO",
        says="The update of W_V W_O^T ends low-rank: its stable rank over that of the initial product",
        source="Section 5: 'ultimately low-rank when compared to the initial spectrum'",
        statistic=_against_initial("VO"),
        high=0.5,
    ),
    Claim(
        name="spectrum-KQ",
        says="The learned perturbation of W_K W_Q^T is extremely low-rank: directions for 90 % of its energy over"
        " those of the initial product",
        source="Figure 5, caption",
        statistic=_energy_against_initial,
        high=1 / 3,
    ),
)


def traces(run: "xr.Dataset") -> "list[Figure]":
    """Stable ranks over training (Figures 4 and 15), spectra against initialization (Figure 5), the training itself."""
    from saddlescope.plot.ranks import spectrum_figure, stable_rank_figure

    return [stable_rank_figure(run), spectrum_figure(run), _training(run)]


def _training(run: "xr.Dataset") -> "Figure":
    from saddlescope.plot import Axis, Figure, Line, Panel

    def curves(values: "xr.DataArray") -> tuple[Line, ...]:
        return tuple(
            Line(
                x=run.epoch.values, y=values.sel(seed=seed).values, label=f"seed {seed}", group=f"seed {seed}", color=k
            )
            for k, seed in enumerate(run.seed.values)
        )

    accuracy = run.test_accuracy.isel(epoch=-1)
    return Figure(
        name="training",
        title="The training itself",
        caption=f"Test accuracy at the end: {float(accuracy.mean()):.3f}, mean over seeds.",
        panels=(
            Panel(x=Axis("epoch"), y=Axis("training loss", "nats", scale="log"), marks=curves(run.train_loss)),
            Panel(x=Axis("epoch"), y=Axis("test accuracy"), marks=curves(run.test_accuracy)),
        ),
    )
