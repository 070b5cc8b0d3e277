"""ImageNet, or one's own pictures, in a folder for each class; decoded once into bytes on disk, then mapped.

    imagenet/train/n01440764/n01440764_10026.JPEG     any number of classes and images, JPEG or PNG
    imagenet/val/n01440764/ILSVRC2012_val_00000293.JPEG
    imagenet/decoded-224/{train,val}.npy              made here: bytes (n, 3, 224, 224), 193 + 8 GB for all of ImageNet

Classes are numbered in the order of their folders' names. An image is scaled (bicubic) so that its shorter side has
256/224 of the wanted size, and cut in its middle: the usual way to test, taken for training, too, since the paper names
no augmentation.
"""

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from saddlescope._shared.errors import InputError
from saddlescope.train.data.images import ImageData, assemble

_ENDINGS = {".jpeg", ".jpg", ".png"}
_CHUNK = 1024  # images between two marks from which a killed decoding goes on
_OFFICIAL = {"train": 1_281_167, "val": 50_000}  # images of ILSVRC 2012


def read_image_folder(
    folder: Path, verify: bool, *, size: int = 224, report: Callable[[float, str], None] | None = None
) -> ImageData:
    """The images below `folder`/imagenet, mapped from disk.

    Decoding takes a core about a minute for 10,000 images; where it was killed, it goes on.

    Args:
        folder: the folder of all data sets; decoded images are written there.
        verify: whether there must be 1,000 classes and as many images as in ILSVRC 2012. The publisher gives no
            checksums of single images.
        size: pixels a side.
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
    before, whole = 0, sum(map(len, files.values()))
    for part, of_part in files.items():

        def told(done: int, before: int = before, part: str = part) -> None:
            if report is not None:
                report((before + done) / whole, f"decoded {done:,} images of imagenet/{part}")

        images, counts[part] = _decoded(home, part, of_part, size, told)
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
        flat = "; images must lie in a folder for each class" if home.is_dir() and any(home.iterdir()) else ""
        raise InputError(f"{home} must hold images in folders named as those of imagenet/train{flat}.")
    return files


def _decoded(
    home: Path, part: str, files: list[Path], size: int, told: Callable[[int], None]
) -> tuple[UInt8[np.ndarray, "n 3 size size"], Int64[np.ndarray, "3 256"]]:
    """The images as bytes mapped from disk, and how often each pixel value is there; decoded where that is missing."""
    place = home / f"decoded-{size}"
    ready, unfinished, mark = place / f"{part}.npy", place / f"{part}.part", place / f"{part}.json"
    names = hashlib.sha256("\n".join(f"{file.parent.name}/{file.name}" for file in files).encode()).hexdigest()
    try:
        place.mkdir(exist_ok=True)
        known = json.loads(mark.read_text()) if mark.exists() else {}
        done, counts = 0, np.zeros((3, 256), np.int64)
        if known.get("files") == names and (unfinished.exists() or (known["done"] == len(files) and ready.exists())):
            done, counts = known["done"], counts + known["counts"]
        if done == len(files) and not unfinished.exists():
            return np.load(ready, mmap_mode="r", allow_pickle=False), counts
        if done == 0:
            ready.unlink(missing_ok=True)  # of other files, so that a mark and what it is of cannot be mistaken
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
                _write_mark(mark, {"files": names, "done": done, "counts": counts.tolist()})
                told(done)
        unfinished.replace(ready)
    except InputError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{place} must be a folder that decoded images can be kept in; got: {error}. Make room or give rights, or "
            "delete it if it is damaged; what was decoded is kept."
        ) from error
    return np.load(ready, mmap_mode="r", allow_pickle=False), counts


def _write_mark(mark: Path, content: dict[str, object]) -> None:
    part = mark.with_suffix(".json.part")
    part.write_text(json.dumps(content))
    part.replace(mark)


def _decode(file: Path, size: int) -> tuple[UInt8[np.ndarray, "3 size size"], Int64[np.ndarray, "3 256"]]:
    """One image, and how often each of its channels has each pixel value."""
    from PIL import Image

    try:
        with Image.open(file, formats=("JPEG", "PNG")) as image:  # no other decoder ever sees the file
            scaled = size * 256 // 224
            image.draft("RGB", (scaled, scaled))  # JPEG: decodes at a fraction of the size where that is enough
            ratio = scaled / min(image.size)
            sides = (max(scaled, round(image.width * ratio)), max(scaled, round(image.height * ratio)))
            whole = image.convert("RGB").resize(sides, Image.Resampling.BICUBIC)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{file} must be a whole JPEG or PNG image; got: {error}. Fetch it again.") from error
    left, top = (whole.width - size) // 2, (whole.height - size) // 2
    cut = whole.crop((left, top, left + size, top + size))
    return np.asarray(cut).transpose(2, 0, 1), np.array(cut.histogram(), np.int64).reshape(3, 256)
