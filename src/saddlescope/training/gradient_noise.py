"""Accumulated gradient noise: the null of a statement on updates, in which nothing is learned.

    g_t         gradient of the loss of the minibatch of step t, at the initial weights, at every step
    s_t         random sign of that step, +1 or -1
    draw        weights that Adam reaches with the gradients s_t g_t; draws differ in their signs alone

The weights at which gradients are taken never change, and the signs leave no direction in which gradients add up.
Minibatches, learning rates and Adam are those of a training. So an update whose rank rises no more than here need not
have learned anything.

Adam works on each weight alone and its second moment does not depend on signs, so one pass over the minibatches serves
all draws and all of them share that moment.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.ranks.tracker.rank_tracker import RankTracker
from saddlescope.ranks.tracker.schedules import Schedule
from saddlescope.training.configuration import Adam, Bounds, TrainConfig
from saddlescope.training.data import ImageData
from saddlescope.training.image_training import ImageRun

_EPSILON = 1e-8  # of Adam, as in PyTorch


class SignedAdam(torch.optim.Optimizer):
    """Adam on many draws of weights, from gradients that are taken elsewhere and enter each draw with its sign.

    Parameters never change. The state of each has `moment` and `weights`, (draws, *shape), and `square`, the second
    moment without its correction, (*shape).

    Args:
        parameters: parameters with gradients.
        learning_rate: of the next step, in `param_groups` as for other optimisers.
        betas: decay of the first and second moment.
        draws: number of draws.
        seed: seed of the signs, which are a function of it and of the number of steps made.
    """

    def __init__(
        self,
        parameters: Iterator[nn.Parameter],
        *,
        learning_rate: float,
        betas: tuple[float, float],
        draws: int,
        seed: int,
    ) -> None:
        super().__init__(parameters, {"lr": learning_rate, "betas": betas, "made": 0})
        self.draws, self.seed = draws, seed
        for parameter in self.param_groups[0]["params"]:
            weights = parameter.detach().expand(draws, *parameter.shape).clone()
            self.state[parameter] = {
                "moment": torch.zeros_like(weights),
                "square": torch.zeros_like(parameter),
                "weights": weights,
            }

    def signs(self, step: int) -> Float[np.ndarray, " draws"]:
        """Return the sign of each draw at a step, numbered from 0."""
        bits = np.random.PCG64([self.seed, step]).random_raw(self.draws) >> np.uint64(63)
        return 1.0 - 2.0 * bits.astype(np.float64)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make one step of Adam in all draws."""
        group = self.param_groups[0]
        first, second = group["betas"]
        signs = torch.from_numpy(self.signs(group["made"]))
        group["made"] += 1
        rate = group["lr"] / (1 - first ** group["made"])
        correction = (1 - second ** group["made"]) ** 0.5
        for parameter in group["params"]:
            gradient, state = parameter.grad, self.state[parameter]
            state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
            deviation = state["square"].sqrt().div_(correction).add_(_EPSILON)
            columns = signs.to(parameter).view(-1, *(1,) * parameter.ndim)
            state["moment"].mul_(first).addcmul_(columns, gradient[None], value=1 - first)
            state["weights"].addcdiv_(state["moment"], deviation[None], value=-rate)

    @contextmanager
    def drawn(self, draw: int) -> Iterator[None]:
        """Give the parameters the values of one draw inside the `with` block."""
        values = [(parameter, self.state[parameter]["weights"]) for parameter in self.param_groups[0]["params"]]
        before = [parameter.detach().clone() for parameter, _ in values]
        with torch.no_grad():
            for parameter, weights in values:
                parameter.copy_(weights[draw])
            try:
                yield
            finally:
                for (parameter, _), value in zip(values, before, strict=True):
                    parameter.copy_(value)


def accumulate_noise(
    model: nn.Module,
    data: ImageData,
    config: TrainConfig,
    *,
    draws: int,
    seed: int,
    schedule: Schedule,
    checkpoint: Path | None = None,
    report: Report = silent,
) -> xr.Dataset:
    """Accumulate signed gradients at the initial weights of a model, or resume a killed run.

    Minibatches, their order and the learning rates are those of `fit` with the same configuration.

    Args:
        model: from images to logits; its attention is found as by `RankTracker`. Its weights are as before at the end.
        data: the images.
        config: with `Adam` as optimiser.
        draws: number of draws.
        seed: seed of the signs.
        schedule: steps at which all draws are measured; the last step always is.
        checkpoint: the file to resume from and to update; the folder of the file also receives the initial weights.
        report: called with the finished fraction and a note once per epoch.

    Returns:
        The variables of `RankTracker.to_xarray` with a further dimension `draw`, in float32.

    Raises:
        InputError: as `fit`, or another optimiser.
    """
    if not isinstance(config.optimizer, Adam):
        raise InputError(f"config.optimizer must be Adam; got {config.optimizer!r}.")
    Bounds(1).check("draws", draws)
    Bounds(0).check("seed", seed)
    was_trained = [one.requires_grad for one in model.parameters()]
    tracked = set(map(id, RankTracker(model).tracked))
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in tracked)  # the others never move here
    try:
        signed = SignedAdam(
            (one for one in model.parameters() if one.requires_grad),
            learning_rate=config.optimizer.learning_rate,
            betas=config.optimizer.betas,
            draws=draws,
            seed=seed,
        )
        run = _NoiseRun(model, data, config, signed, schedule, checkpoint)
        run.train(report)
    finally:
        for parameter, trained in zip(model.parameters(), was_trained, strict=True):
            parameter.requires_grad_(trained)
    return run.records()


class _NoiseRun(ImageRun):
    """State of one call of `accumulate_noise`; each draw has a tracker."""

    optimizer: SignedAdam

    def __init__(
        self,
        model: nn.Module,
        data: ImageData,
        config: TrainConfig,
        optimizer: SignedAdam,
        schedule: Schedule,
        checkpoint: Path | None,
    ) -> None:
        super().__init__(model, data, config, None, checkpoint, optimizer=optimizer)
        self._schedule, self._folder = schedule, None if checkpoint is None else checkpoint.parent
        self._trackers = [RankTracker(model, schedule=schedule) for _ in range(self.optimizer.draws)]

    def observe(self) -> str:
        """Measure all draws if due."""
        due = self._schedule(self.step)
        for draw, tracker in enumerate(self._trackers):
            if not (due or self.ended):
                tracker.step()
                continue
            with self.optimizer.drawn(draw):
                tracker.step()
                if self.ended:
                    tracker.measure()
        epoch, position = divmod(self.step, self.steps_per_epoch)
        return "" if position else f"gradient noise, epoch {epoch} of {self.config.epochs}"

    def records(self) -> xr.Dataset:
        """Return the records of all draws."""
        together = xr.concat([one.to_xarray().astype(np.float32) for one in self._trackers], dim="draw")
        return together.assign_coords(draw=np.arange(len(self._trackers)))

    def identity(self) -> dict[str, str]:
        """Return the properties that define this run."""
        draws = f"{self.optimizer.draws} of seed {self.optimizer.seed}"
        return super().identity() | {"tracker": self._trackers[0].identity(), "draws": draws}

    def state(self) -> dict[str, Any]:
        """Return what `ImageRun` does, with the trackers of all draws."""
        return super().state() | {"trackers": [one.state_dict(folder=self._folder) for one in self._trackers]}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        super().restore(state)
        for tracker, stored in zip(self._trackers, state["trackers"], strict=True):
            tracker.load_state_dict(stored, folder=self._folder)
