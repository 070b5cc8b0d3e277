"""A diffusion model and its training, small enough for a fraction of a second."""

from saddlescope.training.diffusion.circles import CircleProcess
from saddlescope.training.diffusion.training import DiffusionConfig
from saddlescope.training.diffusion.unet import UNetConfig

PROCESS = CircleProcess(pixels=8, color_signal=0.7, size_signal=0.35, diameter=0.625)
NETWORK = UNetConfig(pixels=8, channels=(8, 16), blocks=1, dropout=0.1)
CONFIG = DiffusionConfig(
    steps=9,
    batch=8,
    images=10,
    average=0.5,
    record_ratio=2.0,
    first_record=2,
    record_images=2,
    sampling_steps=2,
    threads=1,
)
