"""Moving average of a model's weights, which draws better images than the weights of any one step."""

import copy

from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from saddlescope.training.diffusion.variational_diffusion import VariationalDiffusion


class WeightAverage:
    """Exponential moving average of a model's weights, in a copy of the model to draw images from.

    After step n the average moves towards the weights by 1 - min(decay, (1 + n) / (10 + n)): early on it averages over
    the last tenth of the steps made, later over the last 1 / (1 - decay) steps. So in the logarithm of the steps it
    lags by a tenth at most, and forgets the initial weights at once.

    Args:
        model: model in training; its weights are read after each step and never changed.
        decay: decay per step, at least 0 (no averaging) and below 1.
    """

    def __init__(self, model: VariationalDiffusion, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self._model, self._decay = model, decay
        self._averages: list[Tensor] = list(self.model.parameters())
        self._weights: list[Tensor] = list(model.parameters())

    def update(self, step: int) -> None:
        """Update the average; `step` is the number of steps made, from 1."""
        decay = min(self._decay, (1 + step) / (10 + step))
        # PyTorch's function for all weights at once; its `AveragedModel` waits for a GPU at every update.
        get_ema_multi_avg_fn(decay)(self._averages, self._weights, step)

    def unaveraged(self) -> VariationalDiffusion:
        """Return a copy of the model with the present weights, not averaged."""
        copied = copy.deepcopy(self.model)
        copied.load_state_dict(self._model.state_dict())
        return copied
