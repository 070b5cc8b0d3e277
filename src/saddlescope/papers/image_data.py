"""Images that entries of several papers train on, from the embedded digits or the official files of a data folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.reproduction import DataSets

if TYPE_CHECKING:
    from saddlescope.training.data import ImageData


def read_images(name: str, folder: Path | None, report: Report) -> "ImageData":
    """Return the images of that name.

    Raises:
        InputError: there is no data folder for a data set that is not embedded, it lacks the data set, or its files are
            damaged.
    """
    from saddlescope.training.data import EMBEDDED, load

    if name not in EMBEDDED and folder is None:
        raise InputError(
            f"dataset {name!r} needs the folder of its official files: give --data or set SADDLESCOPE_DATA, "
            "or take dataset=digits, which is embedded."
        )
    return load(name, folder, report=report)


IMAGES = DataSets(read_images, parameters=("dataset",))
"""Data of the entries that have the parameter `dataset`."""
