from .minibatches import FiniteSumLoss as FiniteSumLoss
