"""Unit tracker: the number of distinct active units while any PyTorch model trains.

tracker = UnitTracker(model).watch(optimizer)
...                                     # the training loop, untouched
tracker.sizes                           # (records, units)
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor, nn

from saddlescope._shared.arguments import shown
from saddlescope._shared.errors import InputError
from saddlescope.measure.singular_values import Spectrum
from saddlescope.measure.stages import Staircase, find_stages
from saddlescope.ranks.state_files import damage_refused
from saddlescope.ranks.tracker.scheduled_tracker import ScheduledTracker
from saddlescope.ranks.tracker.schedules import Geometric, Schedule
from saddlescope.ranks.units.active_units import WeightsNotFiniteError, exponentials, log_sizes
from saddlescope.ranks.units.unit_groups import UnitGroup, units_of


class UnitTracker(ScheduledTracker):
    """Recorder of the sizes of the distinct units of a model: neurons, kernels and heads, with duplicates merged.

    The callbacks for Transformers and Lightning take it in place of a `RankTracker`:
    `RankTrackerCallback(UnitTracker)`.

    Args:
        model: any model in which `units_of` finds units.
        schedule: function from the number of optimiser steps to whether to measure.
        pairs: further layers, as in `units_of`.
        tolerance: distance up to which two units are the same, as in `active_units`.

    Raises:
        InputError: no units found, a pair that does not fit, weights that are not finite, or tolerance out of range.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        schedule: Schedule = Geometric(),  # noqa: B008  (frozen)
        pairs: Mapping[str, str] | None = None,
        tolerance: float = 0.01,
    ) -> None:
        super().__init__(schedule)
        if not 0 < tolerance < 1:
            raise InputError(f"tolerance must be between 0 and 1; got {tolerance!r}.")
        self._groups = units_of(model, pairs=pairs)
        self._tolerance = tolerance
        self._sizes: list[np.ndarray] = []
        self.measure()

    def __repr__(self) -> str:
        kinds = ", ".join(f"{group.count} {group.kind}" for group in self._groups[:4])
        return f"UnitTracker({kinds}; {len(self._steps)} records in {self._made} steps)"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups of units."""
        return tuple(group.name for group in self._groups)

    @property
    def sizes(self) -> tuple[Float[np.ndarray, "records _"], ...]:
        """Sizes of the distinct units of each group at each record, descending; see `active_units`."""
        ends = np.cumsum([group.count for group in self._groups])[:-1]
        return tuple(np.split(np.array(self._sizes), ends, axis=1))

    def _trained(self) -> Mapping[str, Tensor]:
        return {}

    def _record(self) -> None:
        self._sizes.append(np.concatenate([self._sizes_of(group) for group in self._groups]))
        self._steps.append(self._made)

    def _sizes_of(self, group: UnitGroup) -> Float[np.ndarray, "_"]:
        try:
            return exponentials(log_sizes(group, self._tolerance))
        except WeightsNotFiniteError as error:
            if not self._steps:
                raise
            if group.name not in self._warned:
                self._warned.add(group.name)
                warnings.warn(f"{error} Its records are NaN from step {self._made} on.", stacklevel=4)
            return np.full(group.count, np.nan)

    def staircase(
        self, losses: Sequence[float] | Float[np.ndarray, "records"], *, level: float | None = None
    ) -> Staircase:
        """Return the stages of the run: the rank of a stage is the number of distinct active units of all groups.

        Args:
            losses: the loss at each record, in the order of `steps`.
            level: size from which a unit is active; None: a tenth of the largest of the run.

        Raises:
            InputError: not one loss per record, fewer than two records, records or losses that are not finite, or
                level is not positive.
        """
        if len(losses) != len(self._steps):
            raise InputError(
                f"losses must be {len(self._steps)} numbers, one per record; got {len(losses)}. Take those at "
                "tracker.steps."
            )
        values = np.sort(np.array(self._sizes), axis=1)[:, ::-1]
        if np.isnan(values).any():
            first = self._steps[int(np.argmax(np.isnan(values).any(axis=1)))]
            raise InputError(
                f"records must be finite; got NaN from step {first} on, where the training diverged. Lower the "
                "learning rate."
            )
        chosen = (0.1 * float(values.max()) or 1.0) if level is None else level
        spectrum = Spectrum(values, np.zeros(len(values)))
        return find_stages(
            np.array(self._steps, float), np.asarray(losses, float), spectrum, level=chosen, time_unit="steps"
        )

    def to_xarray(self) -> xr.Dataset:
        """Return size (step, unit), with the group of each unit."""
        groups = [group.name for group in self._groups for _ in range(group.count)]
        return xr.Dataset(
            {"size": (("step", "unit"), np.array(self._sizes))},
            {"step": np.array(self._steps), "group": ("unit", groups)},
        )

    def state_dict(self, *, folder: Any = None) -> dict[str, Any]:
        """Return all that a resumed run needs, as tensors and plain values."""
        return {
            "names": list(self.names),
            "made": self._made,
            "steps": torch.tensor(self._steps, dtype=torch.int64),
            "sizes": torch.tensor(np.array(self._sizes)),
        }

    def load_state_dict(self, state: dict[str, Any], *, folder: Any = None) -> None:
        """Restore `state_dict`.

        Raises:
            InputError: the state is of a model with other units, or of no `UnitTracker`.
        """
        if not isinstance(state, Mapping) or not {"names", "made", "steps", "sizes"} <= state.keys():
            raise InputError(f"state must be that of UnitTracker.state_dict(); got {shown(state)}.")
        with damage_refused(self):
            sizes = state["sizes"].numpy()
            if state["names"] != list(self.names) or sizes.shape[1] != len(self._sizes[0]):
                raise InputError(
                    f"state must be of the units {', '.join(self.names)}; got {', '.join(state['names'])}."
                )
            self._made, self._steps, self._sizes = int(state["made"]), state["steps"].tolist(), list(sizes)
