"""Small data sets: the first 200 + 50 images of each class of MNIST and CIFAR-10, in one .npz file each."""

from pathlib import Path

import numpy as np

from saddlescope._shared.errors import InputError
from saddlescope._shared.npz_files import read_npz
from saddlescope.training.data.labelled_images import ImageData, assemble


def read_small(name: str, folder: Path) -> ImageData:
    """Read 2,000 + 500 images of `folder`/`name`.npz, whose arrays have the channels last."""
    path = folder / f"{name}.npz"
    try:
        stored = read_npz(path, ("x_train", "y_train", "x_test", "y_test"))
    except FileNotFoundError:
        raise InputError(f"folder must hold {path.name}; got {str(folder)!r}, which does not.") from None
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} must be a complete .npz file of images; it is damaged ({error}). Copy it again."
        ) from error
    x_train, y_train, x_test, y_test = stored.values()
    if any(images.dtype != np.uint8 or images.ndim not in (3, 4) for images in (x_train, x_test)):
        raise InputError(f"{path} must hold images of bytes, shape (n, height, width[, channels]).")
    if any(labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer) for labels in (y_train, y_test)):
        raise InputError(f"{path} must hold integer labels, shape (n,).")

    def channels_first(images: np.ndarray) -> np.ndarray:
        return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)

    return assemble(name, (channels_first(x_train), y_train), (channels_first(x_test), y_test))
