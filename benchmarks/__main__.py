"""Runs the benchmarks, each in a process of its own, one after the other, and writes the board of all.

    python benchmarks [NAME ...] [--quick] [--again] [--out DIR] [--limit SECONDS]

What is finished lies in DIR, a file a benchmark, and is kept: a run that was stopped goes on with the next one, and one
whose code has changed is run again. At the end docs/benchmarks.json has the last figures of every benchmark, and
the page of the board and docs/scaling.png are made of it; `--quick` runs small versions and leaves the docs alone.

Exit status: 0, or 1 when a benchmark failed or took longer than the limit; what the others found is written.
"""

import argparse
import ast
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from page import STORED, write_page

from saddlescope.store import stopwatch

HERE = Path(__file__).resolve().parent
NOT_RUN = {"__main__", "board", "one_core", "page", "peak"}
PEERS = ("cvxpy", "clarabel", "diffrax", "weightwatcher", "transformers")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")


def names(here: Path = HERE) -> list[str]:
    """The benchmarks, by the names of their files."""
    return sorted(file.stem for file in here.glob("*.py") if file.stem not in NOT_RUN)


def processor() -> str:
    """Name of the processor, where the system reports it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    reported = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return reported[0] if reported else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Return the versions of the peers that are installed."""
    found = {}
    for package in PEERS:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def fingerprint(name: str, here: Path = HERE) -> str:
    """Return a digest of the code of a benchmark: a result with another one is out of date."""
    code = (here / f"{name}.py").read_bytes() + (here / "board.py").read_bytes()
    return hashlib.sha256(code).hexdigest()[:16]


def finished(name: str, out: Path, quick: bool, here: Path = HERE) -> dict[str, Any] | None:
    """The record of a finished run of this code, or None."""
    file = out / f"{name}.json"
    if not file.exists():
        return None
    record = json.loads(file.read_text())
    return record if (record["fingerprint"], record["quick"]) == (fingerprint(name, here), quick) else None


def run(name: str, out: Path, quick: bool, limit: float, here: Path = HERE) -> dict[str, Any]:
    """Runs one benchmark, its table on our own stdout, and keeps its record in a file.

    Raises:
        subprocess.CalledProcessError: it failed.
        subprocess.TimeoutExpired: it took longer than the limit.
    """
    rows = out / f"{name}.rows"
    rows.unlink(missing_ok=True)
    command = [sys.executable, str(here / f"{name}.py"), "--rows", str(rows), *(["--quick"] if quick else [])]
    load, began, stop = os.getloadavg()[0], time.perf_counter(), stopwatch()
    subprocess.run(command, env=os.environ | ONE_THREAD, check=True, timeout=limit)
    made = stop()
    record = {
        "benchmark": name,
        "quick": quick,
        "fingerprint": fingerprint(name, here),
        "title": _title(here / f"{name}.py"),
        **json.loads(rows.read_text()),
        **{key: made[key] for key in ("finished", "cpu_seconds", "commit")},
        "wall_seconds": round(time.perf_counter() - began, 1),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load_before": round(load, 2),
        "versions": made["versions"] | versions(),
    }
    part = out / f"{name}.part"
    part.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    part.replace(out / f"{name}.json")
    rows.unlink()
    return record


def _title(file: Path) -> str:
    """The first line of a script's docstring."""
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


def run_all(
    chosen: Iterable[str], out: Path, *, quick: bool, again: bool, limit: float, here: Path = HERE
) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of all that finished, now or before, and the names of those that failed."""
    out.mkdir(parents=True, exist_ok=True)
    records, failed = [], []
    for name in chosen:
        kept = None if again else finished(name, out, quick, here)
        if kept is not None:
            print(f"== {name}: kept from {kept['finished']}", flush=True)
            records.append(kept)
            continue
        print(f"== {name}", flush=True)
        try:
            records.append(run(name, out, quick, limit, here))
            print(f"== {name}: {records[-1]['wall_seconds']:.0f} s", flush=True)
        except subprocess.CalledProcessError as error:
            print(f"== {name} failed with status {error.returncode}", file=sys.stderr, flush=True)
            failed.append(name)
        except subprocess.TimeoutExpired:
            print(f"== {name} did not end within {limit:g} s", file=sys.stderr, flush=True)
            failed.append(name)
    return records, failed


def main() -> int:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; all when none is named")
    parser.add_argument("--quick", action="store_true", help="small versions: their timings mean nothing")
    parser.add_argument("--again", action="store_true", help="run what is finished, too")
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "bench", metavar="DIR")
    parser.add_argument("--limit", type=float, default=1200.0, metavar="SECONDS", help="for one benchmark")
    given = parser.parse_args()
    if wrong := sorted(set(given.names) - set(names())):
        parser.error(f"there is no benchmark {', '.join(wrong)}; known: {', '.join(names())}")
    out = given.out / "quick" if given.quick else given.out
    records, failed = run_all(given.names or names(), out, quick=given.quick, again=given.again, limit=given.limit)
    if not given.quick:
        write_page(records, names())
        print(f"== Written: {STORED}; make docs shows it")
    for name in failed:
        print(f"== {name} did not finish; the other figures are written", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted; what is finished is kept, and the same command goes on.")
