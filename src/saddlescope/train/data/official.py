"""Official files as they lie on disk: plain or compressed, and known by the MD5 of their unpacked content."""

import gzip
import hashlib
import lzma
import zlib
from pathlib import Path

from saddlescope._shared.errors import InputError

_LARGEST = 2**28  # bytes of one unpacked file; the largest official one, the training images of CIFAR-100, has 155 MB


def read_official(folder: Path, stem: str, md5: str | None) -> tuple[Path, bytes]:
    """The unpacked content of a file that is stored plain, as .gz or as .xz, and its path.

    Args:
        folder: where it lies, below the folder of all data sets.
        stem: its name without the ending of the compression.
        md5: of the unpacked content; None admits any.

    Raises:
        InputError: it is absent, damaged, too large, or not the official one.
    """
    path = next((p for ending in ("", ".gz", ".xz") if (p := folder / (stem + ending)).is_file()), None)
    if path is None:
        raise InputError(
            f"folder must hold {folder.name}/{stem} (or .gz, .xz); got {str(folder.parent)!r}, which does not."
        )
    try:
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
        with opener(path, "rb") as file:
            content = file.read(_LARGEST + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{path} must be a whole, readable file; got: {error}. Fetch it again.") from error
    if len(content) > _LARGEST:
        raise InputError(f"{path} must unpack to at most {_LARGEST} bytes. Fetch the official file again.")
    if md5 is not None and hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise InputError(
            f"{path} must be the official file; its MD5 differs, so it is damaged or another. Fetch it again, or pass "
            "verify=False if it holds your own data in this format."
        )
    return path, content
