from .abstract_loss import AbstractLoss as AbstractLoss
from .minibatches import FiniteSumLoss as FiniteSumLoss
