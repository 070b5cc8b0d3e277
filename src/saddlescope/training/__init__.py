"""What the papers train in PyTorch: architectures, data and training loops. Needs the extra `torch`."""

from saddlescope._shared.errors import MissingExtraError

with MissingExtraError.named("saddlescope.training"):
    import torch as _torch  # noqa: F401

from saddlescope.training.architectures.vit import ViT, ViTConfig
from saddlescope.training.configuration import SGD, Adam, TrainConfig
from saddlescope.training.data import ImageData, load
from saddlescope.training.image_training import History, fit

__all__ = ["SGD", "Adam", "History", "ImageData", "TrainConfig", "ViT", "ViTConfig", "fit", "load"]
