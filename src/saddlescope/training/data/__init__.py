"""Image data in the official formats of MNIST, CIFAR and ImageNet, and the digits that come with scikit-learn.

Each set has a name, images for training and for testing, and files::

    name           images                          files in the data folder
    digits         1,500 + 297, 1 x 8 x 8          none (embedded)
    digit-pairs    6,000 + 1,000, 1 x 16 x 16      none (embedded); 100 classes
    mnist          60,000 + 10,000, 1 x 28 x 28    mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte
    cifar10        50,000 + 10,000, 3 x 32 x 32    cifar-10-batches-py/{data_batch_1..5,test_batch}
    cifar10-pairs  50,000 + 10,000, 3 x 32 x 32    those of cifar10; 100 classes
    cifar100       50,000 + 10,000, 3 x 32 x 32    cifar-100-python/{train,test}; 100 classes
    imagenet       1.28 million + 50,000, 3 x 224 x 224   imagenet/{train,val}/CLASS/*.JPEG; 1,000 classes
    mnist-small    2,000 + 500, 1 x 28 x 28        mnist-small.npz
    cifar10-small  2,000 + 500, 3 x 32 x 32        cifar10-small.npz

The official files may be plain or compressed (.gz, .xz); `saddlescope data get NAME` downloads them. The small
sets are the first 200 + 50 images of each class. Digits are split as scikit-learn orders them: the first 1,500 images
are for training, the last 297 for testing. A pair is two images side by side, of class 10 a + b.
"""

from collections.abc import Callable
from pathlib import Path

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.progress import Report, silent
from saddlescope.training.data.image_files import (
    Split,
    read_cifar10,
    read_cifar10_pairs,
    read_cifar100,
    read_digit_pairs,
    read_digits,
    read_mnist,
    read_small,
)
from saddlescope.training.data.imagenet import read_image_folder
from saddlescope.training.data.labelled_images import ImageData, assemble

__all__ = ["EMBEDDED", "ImageData", "load"]

EMBEDDED: dict[str, Callable[[], Split]] = {"digits": read_digits, "digit-pairs": read_digit_pairs}
"""Readers of the data sets that need no files."""
_READERS: dict[str, Callable[[Path, bool], Split]] = {
    "mnist": read_mnist,
    "cifar10": read_cifar10,
    "cifar10-pairs": read_cifar10_pairs,
    "cifar100": read_cifar100,
    "mnist-small": lambda folder, verify: read_small(folder / "mnist-small.npz"),
    "cifar10-small": lambda folder, verify: read_small(folder / "cifar10-small.npz"),
}
_CLASSES = {"digit-pairs": 100, "cifar10-pairs": 100, "cifar100": 100}  # 10 in all others but ImageNet


@validate_arguments
def load(name: str, folder: Path | str | None = None, *, verify: bool = True, report: Report = silent) -> ImageData:
    """Read a data set; see the module for the names, their files and splits.

    Images are not standardised; standardise them by (pixel / white - mean) / deviation for each channel.

    Args:
        name: one of the names above.
        folder: the folder that holds the data sets; digits need none.
        verify: require the official files, byte for byte once unpacked (for ImageNet: the numbers of classes and
            images). False admits your own data in the same formats.
        report: called with the finished fraction and a note while ImageNet is decoded, the first time.

    Raises:
        InputError: an unknown name, or files that are absent, damaged or not the official ones.

    >>> load("digits").train_images.shape
    (1500, 1, 8, 8)
    """
    classes = _CLASSES.get(name, 10)
    if name in EMBEDDED:
        return assemble(name, *EMBEDDED[name](), classes=classes, white=16)
    if name not in _READERS and name != "imagenet":
        raise unknown("data set", name, [*EMBEDDED, *_READERS, "imagenet"])
    if folder is None:
        raise InputError(
            f"folder must be the folder with the data set {name!r}; got None. Only {' and '.join(EMBEDDED)} need no "
            "files."
        )
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"folder must be an existing folder of data sets; got {str(folder)!r}.")
    if name == "imagenet":
        return read_image_folder(folder, verify, report=report)
    return assemble(name, *_READERS[name](folder, verify), classes=classes)
