"""Commands killed at every system call that writes: program of `test_killed_writes.py`, with kill_at_write.c preloaded.

Each command runs once undisturbed. Then it is killed at its first write, at its second, and so on, each time in a fresh
folder and a fork of this process, and repeated. Afterwards the folder must equal that of the undisturbed command: the
same files with the same bytes, except that stored runs have other times.
"""

import contextlib
import ctypes
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import tiny  # noqa: E402
from saddlescope import cli, store  # noqa: E402
from saddlescope.reproduction import reproduce  # noqa: E402

_WHEN = ("started", "finished", "cpu_seconds", "resumed")
_COUNTER = ctypes.CDLL(None)


def nothing(folder: Path) -> None:
    """Begin in an empty folder."""


def with_run(folder: Path) -> None:
    """Begin with a stored run."""
    reproduce(tiny.ENTRY, out=folder / "out", size="quick")


def with_earlier_run(folder: Path) -> None:
    """Begin with a run that was stored under other parameters of its size, which is replaced."""
    with_run(folder)
    file = folder / "out/tiny/staircase/quick.nc"
    run = store.read(file)
    store.write(run.assign_attrs(params=run.attrs["params"].replace('"seed": 0', '"seed": 1')), file)


def with_site(folder: Path) -> None:
    """Begin with a gallery of another run."""
    with_run(folder)
    call(folder, "gallery out --site site")
    reproduce(tiny.ENTRY, out=folder / "out", settings={"stages": "3"})


def with_adapter(folder: Path) -> None:
    """Begin with another adapter, which is replaced."""
    tiny.save_pair(folder)
    call(folder, "extract-lora base.pt tuned.pt --rank 1 --no-logits --out adapter")


ADAPTER = "extract-lora base.pt tuned.pt --rank 2 --no-logits --out adapter"
COMMANDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "run": (nothing, "run tiny/staircase --size quick --out out"),
    "run of other parameters": (with_earlier_run, "run tiny/staircase --size quick --out out"),
    "run --again": (with_run, "run tiny/staircase --size quick --again --out out"),
    "sweep": (nothing, "sweep tiny/staircase --size quick --seeds 0:2 --processes 1 --out out"),
    "sweep --again": (with_run, "sweep tiny/staircase --size quick --seeds 0:2 --processes 1 --again --out out"),
    "gallery": (with_run, "gallery out --site site"),
    "gallery in place of another": (with_site, "gallery out --site site"),
    "extract-lora": (tiny.save_pair, ADAPTER),
    "extract-lora in place of another": (with_adapter, ADAPTER),
    "spectra": (tiny.save_pair, "spectra base.pt tuned.pt --heads 2 --out spectra.nc --site site"),
}


def call(folder: Path, line: str) -> tuple[int, str]:
    """Run a command in a folder, in this process; return its status and output."""
    os.chdir(folder)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = cli.main(line.split())
    return status, said.getvalue()


def forked(folder: Path, line: str, at: int) -> tuple[int, str]:
    """Run a command in a fork that is killed at a write; return its wait status, and its own status with its output."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        with contextlib.suppress(BaseException):
            os.close(reader)
            _COUNTER.kill_at(str(folder).encode(), ctypes.c_long(at))
            status, said = call(folder, line)
            os.write(writer, f"{_COUNTER.kill_count()} {status} {said}".encode()[:60000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    return os.waitpid(child, 0)[1], text


def content(folder: Path) -> dict[str, object]:
    """Return all files below a folder by name, links and pipes by kind, and stored runs without their times."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[name] = "folder"
        elif path.suffix == ".nc" and not path.name.startswith("."):
            run = store.read(path)
            found[name] = run.assign_attrs(dict.fromkeys(_WHEN, "")).drop_vars("cpu_seconds", errors="ignore")
        elif path.suffix == ".html":
            found[name] = "".join(line for line in path.read_text().splitlines(True) if not _tells_time(line))
        else:
            found[name] = path.read_bytes()
    return found


def _tells_time(line: str) -> bool:
    return any(word in line for word in ("CPU", "Finished", " MB"))


def different(one: dict[str, object], other: dict[str, object]) -> list[str]:
    """Return the names whose contents differ."""
    return sorted(name for name in one.keys() | other.keys() if not _equal(one.get(name), other.get(name)))


def _equal(one: object, other: object) -> bool:
    if isinstance(one, xr.Dataset) and isinstance(other, xr.Dataset):
        return one.identical(other)
    return type(one) is type(other) and bool(np.all(one == other))


def attack(name: str, folder: Path, most: int) -> tuple[int, list[str]]:
    """Kill a command at its writes, or evenly at most so many; return the number of kills and the faults found."""
    prepare, line = COMMANDS[name]
    start, undisturbed, here = folder / "start", folder / "undisturbed", folder / "here"
    start.mkdir(parents=True)
    prepare(start)
    shutil.copytree(start, undisturbed)
    _, text = forked(undisturbed, line, 0)
    writes, expected = int(text.split()[0]), content(undisturbed)
    faults, kills = [] if "Traceback" not in text else [f"undisturbed: {text}"], 0
    for at in sorted({round(1 + k * (writes - 1) / (min(most, writes) - 1)) for k in range(min(most, writes))}):
        shutil.copytree(start, here)
        ended, text = forked(here, line, at)
        if not os.WIFSIGNALED(ended) or os.WTERMSIG(ended) != signal.SIGKILL:
            faults.append(f"write {at} of {writes}: not killed, {text!r}")
        kills += 1
        _, text = forked(here, line, 0)
        if "Traceback" in text:
            faults.append(f"write {at} of {writes}: {text}")
        try:
            faults += [f"write {at} of {writes}: {one} differs" for one in different(expected, content(here))]
        except Exception as error:
            faults.append(f"write {at} of {writes}: {error}")
        shutil.rmtree(here)
    return kills, faults


if __name__ == "__main__":
    tiny.install(blank=True)
    with_run(Path(sys.argv[1]) / "first")  # loads and finds out what every fork would otherwise do anew
    folder, most, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    results = {name: attack(name, folder / name.replace(" ", "-"), most) for name in names}
    print(json.dumps(results))  # noqa: T201
