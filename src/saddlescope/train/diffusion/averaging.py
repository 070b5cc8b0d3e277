"""A moving average of a model's weights, which draws better images than the weights of any one step."""

import copy

from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from saddlescope.train.diffusion.bound import VariationalDiffusion


class WeightAverage:
    """The exponential moving average of a model's weights, in a copy of the model to draw images from.

    After step n the average moves towards the weights by 1 - min(decay, (1 + n) / (10 + n)): early on it reaches back
    over the last tenth of the steps made, later over the last 1 / (1 - decay) steps. So in the logarithm of the steps
    it lags by a tenth at most, and forgets the initial weights at once.

    Args:
        model: its weights are followed as they change in place; neither touched nor kept from training.
        decay: at least 0, which follows the weights exactly, and below 1.
    """

    def __init__(self, model: VariationalDiffusion, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self._model, self._decay = model, decay
        self._averages: list[Tensor] = list(self.model.parameters())
        self._weights: list[Tensor] = list(model.parameters())

    def update(self, step: int) -> None:
        """Moves the average; `step` is how many steps were made, from 1."""
        kept = min(self._decay, (1 + step) / (10 + step))
        # PyTorch's function for all weights at once; its `AveragedModel` around it waits for a GPU at every update.
        get_ema_multi_avg_fn(kept)(self._averages, self._weights, step)

    def newest(self) -> VariationalDiffusion:
        """A copy of the model with its weights as they are, not averaged."""
        now = copy.deepcopy(self.model)
        now.load_state_dict(self._model.state_dict())
        return now
