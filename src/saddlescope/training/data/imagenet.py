"""ImageNet, or your own images, in a folder for each class; decoded once into bytes on disk, then mapped.

    imagenet/train/n01440764/n01440764_10026.JPEG     any number of classes and images, JPEG or PNG
    imagenet/val/n01440764/ILSVRC2012_val_00000293.JPEG
    imagenet/decoded-224/{train,val}.npy              decoded: bytes (n, 3, 224, 224), 193 + 8 GB for all of ImageNet

Classes are numbered in the order of their folders' names. An image is scaled (bicubic) so that its shorter side has
256/224 of the final size, and its centre is cut out: the usual preprocessing for testing, here also for training, since
the paper names no augmentation.
"""

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from saddlescope._shared.atomic_files import write_atomically
from saddlescope._shared.errors import InputError
from saddlescope._shared.json_text import parse_json
from saddlescope._shared.progress import Report, silent
from saddlescope.training.data.labelled_images import ImageData, assemble

_ENDINGS = {".jpeg", ".jpg", ".png"}
_CHUNK = 1024  # images between two marks from which a killed decoding resumes
_OFFICIAL = {"train": 1_281_167, "val": 50_000}  # images of ILSVRC 2012


def read_image_folder(folder: Path, verify: bool, *, size: int = 224, report: Report = silent) -> ImageData:
    """Return the images below `folder`/imagenet, mapped from disk.

    Decoding takes one core about a minute for 10,000 images; after a kill it resumes.

    Args:
        folder: the folder of all data sets; decoded images are written there.
        verify: require 1,000 classes and the numbers of images of ILSVRC 2012. The publisher gives no checksums of
            single images.
        size: side length in pixels.
        report: called with the finished fraction and a note while images are decoded.

    Raises:
        InputError: folders or images that are absent, damaged or not the official ones, or a folder that cannot be
            written to.
    """
    home = folder / "imagenet"
    classes = sorted(path.name for path in _folders(home / "train"))
    if len(classes) < 2:
        raise InputError(f"folder must hold imagenet/train with a folder for each class; got {str(folder)!r}.")
    files = {part: _files(home / part, classes) for part in _OFFICIAL}
    if verify and (len(classes), *map(len, files.values())) != (1000, *_OFFICIAL.values()):
        raise InputError(
            f"{home} must hold the {_OFFICIAL['train']:,} + {_OFFICIAL['val']:,} images of ILSVRC 2012 in 1,000 "
            f"classes; got {len(files['train']):,} + {len(files['val']):,} in {len(classes):,}. Fetch the rest, or "
            "pass verify=False if they are your own."
        )
    parts, counts = {}, {}
    before, total = 0, sum(map(len, files.values()))
    for part, of_part in files.items():

        def decoded(done: int, before: int = before, part: str = part) -> None:
            report((before + done) / total, f"decoded {done:,} images of imagenet/{part}")

        images, counts[part] = _load_decoded(home, part, of_part, size, decoded)
        parts[part] = images, np.array([classes.index(file.parent.name) for file in of_part], dtype=np.int64)
        before += len(of_part)
    return assemble("imagenet", parts["train"], parts["val"], classes=len(classes), counts=counts["train"])


def _folders(home: Path) -> list[Path]:
    return [path for path in home.iterdir() if path.is_dir()] if home.is_dir() else []


def _files(home: Path, classes: list[str]) -> list[Path]:
    if strange := sorted({path.name for path in _folders(home)} - set(classes)):
        raise InputError(f"{home} must hold classes of imagenet/train alone; got {strange[0]!r}.")
    files = [file for name in classes for file in sorted((home / name).glob("*")) if file.suffix.lower() in _ENDINGS]
    if not files:
        flat = "; images must be in a folder for each class" if home.is_dir() and any(home.iterdir()) else ""
        raise InputError(f"{home} must hold images in folders named as those of imagenet/train{flat}.")
    return files


def _load_decoded(
    home: Path, part: str, files: list[Path], size: int, report: Callable[[int], None]
) -> tuple[UInt8[np.ndarray, "n 3 size size"], Int64[np.ndarray, "3 256"]]:
    """Return the images as bytes mapped from disk, and the count of each pixel value; decode missing images."""
    place = home / f"decoded-{size}"
    ready, unfinished, mark = place / f"{part}.npy", place / f"{part}.part", place / f"{part}.json"
    names = hashlib.sha256("\n".join(f"{file.parent.name}/{file.name}" for file in files).encode()).hexdigest()
    try:
        place.mkdir(exist_ok=True)
        known = parse_json(mark.read_text("ascii")) if mark.exists() else {}
        done, counts = 0, np.zeros((3, 256), np.int64)
        if known.get("files") == names and (unfinished.exists() or (known["done"] == len(files) and ready.exists())):
            done, counts = known["done"], counts + known["counts"]
        if done == len(files) and not unfinished.exists():
            return np.load(ready, mmap_mode="r", allow_pickle=False), counts
        if done == 0:
            ready.unlink(missing_ok=True)  # of other files: a mark must match its images
        shape = (len(files), 3, size, size)
        images = np.lib.format.open_memmap(unfinished, "r+" if done else "w+", None if done else np.uint8, shape)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while done < len(files):
                chunk = files[done : done + _CHUNK]
                for k, (pixels, histogram) in enumerate(pool.map(lambda file: _decode(file, size), chunk)):
                    images[done + k] = pixels
                    counts += histogram
                images.flush()
                done += len(chunk)
                content = {"files": names, "done": done, "counts": counts.tolist()}
                write_atomically(mark, json.dumps(content).encode())
                report(done)
        del images  # Windows renames no mapped file
        unfinished.replace(ready)
    except InputError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{place} must be a folder for decoded images that can be written; got: {error}. Free disk space or allow "
            "writing, or delete the folder if it is damaged; decoded images remain."
        ) from error
    return np.load(ready, mmap_mode="r", allow_pickle=False), counts


def _decode(file: Path, size: int) -> tuple[UInt8[np.ndarray, "3 size size"], Int64[np.ndarray, "3 256"]]:
    """Decode one image, and count the pixel values of each channel."""
    from PIL import Image

    try:
        with Image.open(file, formats=("JPEG", "PNG")) as image:  # no other decoder opens the file
            scaled = size * 256 // 224
            image.draft("RGB", (scaled, scaled))  # JPEG: decodes at a fraction of the size if that is enough
            ratio = scaled / min(image.size)
            sides = (max(scaled, round(image.width * ratio)), max(scaled, round(image.height * ratio)))
            resized = image.convert("RGB").resize(sides, Image.Resampling.BICUBIC)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{file} must be a complete JPEG or PNG image; got: {error}. Fetch it again.") from error
    left, top = (resized.width - size) // 2, (resized.height - size) // 2
    cropped = resized.crop((left, top, left + size, top + size))
    return np.asarray(cropped).transpose(2, 0, 1), np.array(cropped.histogram(), np.int64).reshape(3, 256)
