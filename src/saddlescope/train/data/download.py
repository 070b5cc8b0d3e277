"""Downloads from the publishers: resumed where they were broken off, checked, and put in place whole or not at all."""

import hashlib
import http.client
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from saddlescope._shared.errors import InputError, unknown
from saddlescope.train.data.sources import NOT_FREE, SOURCES, Source

_BLOCK = 2**20  # bytes read at once
_PATIENCE = 30.0  # seconds without a byte until a connection is given up

Report = Callable[[float, str], None]


def get(
    name: str,
    folder: Path | str,
    *,
    sources: Mapping[str, tuple[Source, ...]] = SOURCES,
    report: Report = lambda fraction, note: None,
) -> tuple[Path, ...]:
    """Downloads a data set into the folder of data sets; what lies there already is left as it is.

    A broken download leaves a file ending in .part, and the next call goes on behind its last byte (where the server
    knows ranges). Of an archive the members that are wanted are unpacked, and nothing else.

    Args:
        name: a name of `sources`.
        folder: the folder of data sets; made when absent.
        sources: where the files are.
        report: called with the finished fraction and a note.

    Returns:
        The files.

    Raises:
        InputError: unknown name, no connection, a file that is not the publisher's, or a folder that cannot be written
            to.
    """
    if name in NOT_FREE:
        raise InputError(NOT_FREE[name])
    if name not in sources:
        raise unknown("data set to download", name, [*sources, *NOT_FREE])
    home = Path(folder)
    wanted = sources[name]
    files = []
    for k, source in enumerate(wanted):
        start, share = k / len(wanted), 1 / len(wanted)

        def part(fraction: float, note: str, start: float = start, share: float = share) -> None:
            report(start + share * fraction, note)

        if not all(_present(home, source)):
            try:
                _fetch(source, home, part)
            except OSError as error:
                raise InputError(
                    f"folder must be one that can be written to; got {str(home)!r} ({error.strerror or error}). Make "
                    "room or give rights; the same command goes on where it was."
                ) from error
        files += [file for file in _present(home, source) if file is not None]
        part(1.0, f"{source.file} is there")
    return tuple(files)


def _present(home: Path, source: Source) -> list[Path | None]:
    """Where each of the places lies, be it compressed by hand; None where it does not."""
    stored = [[home / f"{place}{ending}" for ending in ("", ".gz", ".xz")] for place in source.places]
    return [next((file for file in files if file.is_file()), None) for files in stored]


def _fetch(source: Source, home: Path, report: Report) -> None:
    """Downloads one file, checks it, and puts it, or what is wanted of it, in place."""
    home.mkdir(parents=True, exist_ok=True)
    part = home / f"{source.file}.part"
    failures = []
    for url in source.urls:
        try:
            _receive(url, part, report)
            break
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            failures.append(f"{url}: {getattr(error, 'reason', None) or error}")
    else:
        raise InputError(
            f"{source.file} could not be downloaded ({'; '.join(failures)}). The same command goes on where it was."
        )
    report(0.9, f"checking {source.file}")
    with part.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != source.md5:
        part.unlink()
        raise InputError(
            f"{source.file} must have the MD5 {source.md5} of the publisher; got {found}, and it was removed. Try "
            "again, or fetch it by other means."
        )
    if [Path(place).name for place in source.places] == [source.file]:
        place = home / source.places[0]
        place.parent.mkdir(parents=True, exist_ok=True)
        part.replace(place)
    else:
        try:
            _unpack(part, source, home)
        finally:
            part.unlink()


def _receive(url: str, part: Path, report: Report) -> None:
    """Receives a file, or what is missing of it."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "saddlescope"})  # noqa: S310  (from the table)
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = urllib.request.urlopen(request, timeout=_PATIENCE)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            return  # it is all there; the checksum tells
        raise
    with answer:
        goes_on = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT or not goes_on:
            have = 0  # a server that knows no ranges sends all of it
        length = answer.headers.get("Content-Length")
        whole = have + int(length) if length else None
        with part.open("ab" if have else "wb") as file:
            while block := answer.read(_BLOCK):
                file.write(block)
                have += len(block)
                report(0.9 * have / whole if whole else 0.0, f"{part.stem}, {have / 1e6:.0f} MB")
    if whole is not None and have < whole:
        raise ConnectionError(f"the connection broke after {have} of {whole} bytes")


def _unpack(archive: Path, source: Source, home: Path) -> None:
    """The wanted members of an archive, each read as a plain file: no links, devices or paths of the archive's own."""
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
                    raise KeyError(f"{place} is no file")
                with member:
                    _write(member, home / place)
    except (KeyError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{source.file} must be an archive with {', '.join(source.places)}; got: {error}.") from error


def _write(member: Any, place: Path) -> None:
    part = place.with_name(place.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("wb") as file:
        shutil.copyfileobj(member, file, _BLOCK)
    part.replace(place)
