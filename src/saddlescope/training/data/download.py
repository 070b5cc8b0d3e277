"""Downloads of data sets from their publishers: resumable, verified by checksum, and written atomically."""

import hashlib
import http.client
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saddlescope._shared.errors import InputError, unknown
from saddlescope._shared.output_paths import output_file
from saddlescope._shared.progress import Report, silent
from saddlescope.training.data.download_sources import NOT_FREE, SOURCES, Source
from saddlescope.training.data.image_files import stored_file

_BLOCK = 2**20  # bytes read at once
_TIMEOUT = 30.0  # seconds without a byte


def download(
    name: str, folder: Path | str, *, sources: Mapping[str, tuple[Source, ...]] = SOURCES, report: Report = silent
) -> tuple[Path, ...]:
    """Download a data set into the folder of data sets; existing files are not changed.

    An interrupted download leaves a file ending in .part, and the next call resumes after its last byte (if the server
    supports ranges). Only the required members of an archive are unpacked.

    Args:
        name: a name of `sources`.
        folder: the folder of data sets; created if absent.
        sources: files of each data set.
        report: called with the finished fraction and a note.

    Returns:
        The files.

    Raises:
        InputError: unknown name, no connection, a file that is not the publisher's, or a folder that cannot be written.
    """
    if name in NOT_FREE:
        raise InputError(NOT_FREE[name])
    if name not in sources:
        raise unknown("data set to download", name, [*sources, *NOT_FREE])
    home = Path(folder)
    chosen = sources[name]
    files = []
    for k, source in enumerate(chosen):
        start, share = k / len(chosen), 1 / len(chosen)

        def part(fraction: float, note: str, start: float = start, share: float = share) -> None:
            report(start + share * fraction, note)

        if not all(stored_file(home, place) for place in source.places):
            try:
                _fetch(source, home, part)
            except OSError as error:
                raise InputError(
                    f"folder must be one that can be written to; got {str(home)!r} ({error.strerror or error}). "
                    "Free disk space or allow writing, then rerun the command to resume."
                ) from error
        files += [file for place in source.places if (file := stored_file(home, place)) is not None]
        part(1.0, f"{source.file} is complete")
    return tuple(files)


def _fetch(source: Source, home: Path, report: Report) -> None:
    """Download one file, verify it, and store it or the required members."""
    home.mkdir(parents=True, exist_ok=True)
    part = output_file(home / f"{source.file}.part")
    failures = []
    for url in source.urls:
        try:
            _receive(url, part, report)
            break
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            failures.append(f"{url}: {getattr(error, 'reason', None) or error}")
    else:
        raise InputError(f"{source.file} could not be downloaded ({'; '.join(failures)}). Rerun the command to resume.")
    report(0.9, f"checking {source.file}")
    with part.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != source.md5:
        part.unlink()
        raise InputError(
            f"{source.file} must have the MD5 {source.md5} of the publisher; got {found}, and it was removed. Retry, "
            "or download it by other means."
        )
    if [Path(place).name for place in source.places] == [source.file]:
        place = output_file(home / source.places[0])
        place.parent.mkdir(parents=True, exist_ok=True)
        part.replace(place)
    else:
        try:
            _unpack(part, source, home)
        finally:
            part.unlink()


def _receive(url: str, part: Path, report: Report) -> None:
    """Receive a file, or its missing part."""
    received = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "saddlescope"})  # noqa: S310  (from the table)
    if received:
        request.add_header("Range", f"bytes={received}-")
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and received:
            return  # it is complete; the checksum decides
        raise
    with answer:
        resumes = answer.headers.get("Content-Range", "").startswith(f"bytes {received}-")
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT or not resumes:
            received = 0  # a server without ranges sends all of it
        length = answer.headers.get("Content-Length")
        total = received + int(length) if length else None
        with part.open("ab" if received else "wb") as file:
            while block := answer.read(_BLOCK):
                file.write(block)
                received += len(block)
                report(0.9 * received / total if total else 0.0, f"{part.stem}, {received / 1e6:.0f} MB")
    if total is not None and received < total:
        raise ConnectionError(f"the connection broke after {received} of {total} bytes")


def _unpack(archive: Path, source: Source, home: Path) -> None:
    """Unpack the required members of an archive as plain files: no links, devices or paths from the archive."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                for place in source.places:
                    with packed.open(place) as member:
                        _write(member, home / place)
            return
        with tarfile.open(archive) as packed:
            for place in source.places:
                member = packed.extractfile(place)
                if member is None:
                    raise KeyError(f"{place} is not a file")
                with member:
                    _write(member, home / place)
    except (KeyError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{source.file} must be an archive with {', '.join(source.places)}; got: {error}.") from error


def _write(member: Any, place: Path) -> None:
    place = output_file(place)
    part = output_file(place.with_name(place.name + ".part"))
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("wb") as file:
        shutil.copyfileobj(member, file, _BLOCK)
    part.replace(place)
