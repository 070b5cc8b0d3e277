"""Batches of standardised images on the device of the model.

If they fit, all images are stored on the device as bytes, and a batch is an index into them. Otherwise, as with
ImageNet, a thread reads the next batch from memory or disk while the device computes with this one.
"""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from saddlescope.training.data import ImageData

_SHARE = 0.4  # of the device's memory that images may take


class DeviceBatches:
    """Standardised images and labels of one half of a data set, in a given order.

    Args:
        data: the data set.
        half: "train" or "test".
        device: device of the batches.
        dtype: floating-point type of the images.
        resident: store all images on the device; None: on any but the processor, if they take at most 40 % of its
            memory.
    """

    def __init__(
        self, data: ImageData, half: str, device: torch.device, dtype: torch.dtype, *, resident: bool | None = None
    ) -> None:
        self._images = data.train_images if half == "train" else data.test_images
        labels = data.train_labels if half == "train" else data.test_labels
        self._labels = torch.from_numpy(labels).to(device)
        self._device, self._dtype, self._white = device, dtype, data.white
        columns = (1, -1, 1, 1)
        self._mean = torch.from_numpy(data.mean).to(device, dtype).view(columns)
        self._deviation = torch.from_numpy(data.deviation).to(device, dtype).view(columns)
        if resident is None:
            resident = self._images.nbytes <= _capacity(device)
        self._resident = torch.tensor(self._images, device=device) if resident else None
        self._ahead: tuple[tuple[int, int], Future[Tensor]] | None = None
        self._reader = ThreadPoolExecutor(1) if device.type != "cpu" and not resident else None
        self._order: Int64[Tensor, " n"] | None = None
        self._host_order: Int[np.ndarray, " n"] | None = None

    def set_order(self, order: Int[np.ndarray, " n"]) -> None:
        """Set the order of the images; the initial order is that of the data set."""
        self._host_order, self._order = order, torch.from_numpy(order).to(self._device)
        self._ahead = None

    def batch(
        self, start: int, stop: int
    ) -> tuple[Float[Tensor, "batch channels height width"], Int64[Tensor, " batch"]]:
        """Return the images from `start` to before `stop` in the order set, standardised, and their labels."""
        chosen = slice(start, stop) if self._order is None else self._order[start:stop]
        pixels = self._read(start, stop) if self._resident is None else self._resident[chosen]
        return (pixels.to(self._dtype) / self._white - self._mean) / self._deviation, self._labels[chosen]

    def _read(self, start: int, stop: int) -> Tensor:
        """Return bytes from the host; with a reading thread, also start to read the next batch."""
        if self._reader is None:
            return self._from_host(start, stop).to(self._device)
        if self._ahead is not None and self._ahead[0] == (start, stop):
            pixels = self._ahead[1].result()
        else:
            pixels = self._from_host(start, stop)
        following = stop, min(2 * stop - start, len(self._images))
        self._ahead = (
            (following, self._reader.submit(self._from_host, *following)) if following[0] < following[1] else None
        )
        return pixels.to(self._device, non_blocking=True)

    def _from_host(self, start: int, stop: int) -> Tensor:
        stored, order = self._images, self._host_order
        pixels = torch.from_numpy(stored[start:stop].copy() if order is None else stored[order[start:stop]])
        return pixels.pin_memory() if self._device.type == "cuda" else pixels


def _capacity(device: torch.device) -> float:
    """Return the bytes that images may take on a device; on the processor they are in memory or mapped already."""
    if device.type != "cuda":
        return 0.0 if device.type == "cpu" else float("inf")
    return _SHARE * torch.cuda.get_device_properties(device).total_memory


def epoch_order(count: int, seed: int, epoch: int) -> Int64[np.ndarray, " count"]:
    """Return the order of the images in an epoch: a function of the arguments alone, the same on every machine."""
    return np.argsort(np.random.PCG64([seed, epoch]).random_raw(count), kind="stable")
