"""A few scalars of each record of a tracker, for TensorBoard, Weights & Biases or any other logger.

    scalars = RankScalars(to_tensorboard(SummaryWriter("runs/one")))
    ...                                     # after each step of the loop:
    scalars(tracker)                        # writes the records since the last call

    stable_rank/KQ/layers-0-3/mean          one curve: over all heads of a group of consecutive layers
    stable_rank/matrices/mlp/mean           one curve: over the single matrices that match "*.mlp.*"

Hundreds of panels show nothing; the full records are in `tracker.to_xarray()`.
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError, unknown
from saddlescope.ranks.tracker.matrix_selection import matches
from saddlescope.ranks.tracker.rank_tracker import RankTracker
from saddlescope.ranks.tracker.records import PRODUCTS

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

WriteScalars: TypeAlias = Callable[[dict[str, float], int], Any]
"""Function of scalars by name and the number of steps, such as `log_metrics` of Lightning's loggers."""

METRICS = ("stable_rank", "effective_rank", "update_norm", "measurable")
STATISTICS = {"mean": np.mean, "min": np.min, "max": np.max}
MOST = 60  # scalars; each is a panel

PREFIX = "saddlescope/"


class RankScalars:
    """Writer of scalars of each record of a tracker: statistics over the heads of a few groups of layers.

    Updates that are not measurable in their precision are excluded from ranks; a scalar without any is not written.

    Args:
        write: function that logs scalars, such as `to_tensorboard(writer)` or `to_wandb(run)`.
        metrics: one or more of "stable_rank", "effective_rank", "update_norm" and "measurable" (the fraction of heads
            whose update is above its noise floor).
        statistics: one or more of "mean", "min" and "max" over heads.
        layers: pattern on the names of attention modules; others are excluded.
        groups: number of groups of consecutive layers.
        matrices: patterns on the names of single matrices or of their modules; one group each.

    Raises:
        InputError: an unknown name, nothing to write, two groups of one name, or more than 60 scalars.
    """

    def __init__(
        self,
        write: WriteScalars,
        *,
        metrics: Sequence[str] = ("stable_rank",),
        statistics: Sequence[str] = ("mean", "min", "max"),
        layers: str = "*",
        groups: int = 3,
        matrices: Sequence[str] = ("*",),
    ) -> None:
        for kind, given, known in (("metric", metrics, METRICS), ("statistic", statistics, STATISTICS)):
            if isinstance(given, str) or not given:
                raise InputError(f"{kind} names must be one or more of {', '.join(known)} in a tuple; got {given!r}.")
            for name in given:
                if name not in known:
                    raise unknown(kind, name, known)
        if groups < 1:
            raise InputError(f"groups must be at least 1; got {groups!r}.")
        if isinstance(matrices, str):
            raise InputError(f"matrices must be patterns in a tuple, such as ('*.mlp.*',); got {matrices!r}.")
        self._matrices = {_group_name(pattern): pattern for pattern in matrices}
        if len(self._matrices) < len(matrices):
            raise InputError(f"matrices must give groups of different names; got {tuple(matrices)!r}.")
        count = len(metrics) * len(statistics) * (len(PRODUCTS) * groups + len(matrices))
        if count > MOST:
            raise InputError(
                f"scalars must be at most {MOST}, each being a panel; got {count}. Choose fewer groups, metrics or "
                "statistics; everything is in tracker.to_xarray()."
            )
        self._write, self._metrics, self._statistics = write, tuple(metrics), tuple(statistics)
        self._layers, self._groups = layers, groups
        self._last = -1

    def __call__(self, tracker: RankTracker) -> None:
        """Write the records since the last call; cheap if there are none.

        Raises:
            InputError: `layers` matches none of the tracker's layers.
        """
        steps = [step for step in tracker.steps if step > self._last]
        if not steps:
            return
        records = tracker.to_xarray()
        for step in steps:
            self._write(self.of(records.sel(step=step)), step)
            self._last = step

    def skip(self, *, up_to: int) -> None:
        """Treat the records up to this step as written, as after resuming a run; -1 for none."""
        self._last = up_to

    def of(self, record: xr.Dataset) -> dict[str, float]:
        """Return the scalars of one record: a data set of spectra (`RankTracker.to_xarray()`) at one step."""
        found = {}
        for metric in self._metrics:
            if "layer" in record.dims:
                names = [str(name) for name in record.layer.values]
                for label, members in self._layer_groups(names):
                    for product in PRODUCTS:
                        values = record[metric].isel(layer=members).sel(product=product).values
                        found |= self._over(f"{metric}/{product}/{label}", values)
            if "matrix" in record.dims:
                names = [str(name) for name in record.matrix.values]
                for label, pattern in self._matrices.items():
                    members = [k for k, name in enumerate(names) if matches(name, pattern)]
                    values = record[f"matrix_{metric}"].isel(matrix=members).values
                    found |= self._over(f"{metric}/matrices/{label}", values)
        return found

    def _layer_groups(self, names: list[str]) -> list[tuple[str, list[int]]]:
        """Return groups of consecutive matching layers, named by their indices in the model, from 0."""
        members = [k for k, name in enumerate(names) if fnmatchcase(name, self._layers)]
        if not members:
            raise InputError(f"layers must match attention modules; got {self._layers!r}. Known: {names[:5]!r}.")
        parts = [part.tolist() for part in np.array_split(members, min(self._groups, len(members)))]
        return [(f"layers-{part[0]}-{part[-1]}" if len(part) > 1 else f"layer-{part[0]}", part) for part in parts]

    def _over(self, name: str, values: np.ndarray) -> dict[str, float]:
        seen = values[~np.isnan(values)].astype(float)
        if not len(seen):
            return {}
        return {f"{name}/{statistic}": float(STATISTICS[statistic](seen)) for statistic in self._statistics}


def to_tensorboard(writer: "SummaryWriter") -> WriteScalars:
    """Return a function that writes scalars to TensorBoard, under `saddlescope/`."""

    def write(scalars: dict[str, float], step: int) -> None:
        for name, value in scalars.items():
            writer.add_scalar(PREFIX + name, value, step)

    return write


def to_wandb(run: Any = None) -> WriteScalars:
    """Return a function that logs to Weights & Biases, under `saddlescope/`, over the axis `saddlescope/step`.

    The run's own count of steps is not used, since it increases with every `log`.

    Args:
        run: the result of `wandb.init`; None takes the run that is active at the first record.
    """
    prepared: list[Any] = []

    def write(scalars: dict[str, float], step: int) -> None:
        if not prepared:
            prepared.append(run if run is not None else _active_run())
            prepared[0].define_metric(PREFIX + "step", hidden=True)
            prepared[0].define_metric(PREFIX + "*", step_metric=PREFIX + "step")
        prepared[0].log({PREFIX + "step": step} | {PREFIX + name: value for name, value in scalars.items()})

    return write


def _active_run() -> Any:
    import wandb

    if wandb.run is None:
        raise InputError("run must be an active run of Weights & Biases; got none. Call wandb.init first.")
    return wandb.run


def _group_name(pattern: str) -> str:
    """Return the pattern without its wildcards at the ends, such as mlp for "*.mlp.*"; "all" if nothing is left."""
    return pattern.strip("*.") or "all"
