"""Official data files on disk: plain or compressed, verified by the MD5 of their unpacked content."""

import gzip
import hashlib
import lzma
import zlib
from pathlib import Path

from saddlescope._shared.errors import InputError

_LARGEST = 2**28  # bytes of one unpacked file; the largest official one, the training images of CIFAR-100, has 155 MB


def read_official(folder: Path, stem: str, md5: str | None) -> tuple[Path, bytes]:
    """Return the path and unpacked content of a file that is stored plain, as .gz or as .xz.

    Args:
        folder: folder of the file, below the folder of all data sets.
        stem: name of the file without the suffix of the compression.
        md5: checksum of the unpacked content; None admits any.

    Raises:
        InputError: the file is absent, damaged, too large, or not the official one.
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
        raise InputError(f"{path} must be a complete, readable file; got: {error}. Fetch it again.") from error
    if len(content) > _LARGEST:
        raise InputError(f"{path} must unpack to at most {_LARGEST} bytes. Fetch the official file again.")
    if md5 is not None and hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise InputError(
            f"{path} must be the official file; its MD5 differs, so it is damaged or a different file. Fetch it "
            "again, or pass verify=False if it holds your own data in this format."
        )
    return path, content
