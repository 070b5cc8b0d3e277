"""Rerun the quick size of every entry, and the suites of theory and flow, under other arithmetic: what changes?

Each setting runs in its own processes and stores its runs in OUT/<digest of the sources>/<setting>; rerun to resume.
Rounding may leave a claim undecided, which is listed. The exit status is 1 if a claim is reproduced in one setting and
refuted in another, or if an entry or a suite fails.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__  # pyright: ignore[reportAttributeAccessIssue]

from saddlescope.reproduction import Verdict, entry_names, find_entry, reproduce
from saddlescope.reproduction.formatting import bounds, measured
from saddlescope.reproduction.runner import Reproduction

ROOT = Path(__file__).resolve().parents[1]
SUITES = ("theory", "flow")

Draw = Callable[..., Any]
Results = Mapping[str, Mapping[str, tuple[Verdict, ...]]]  # verdicts by setting and entry


@dataclass(frozen=True)
class Setting:
    """Arithmetic of one pass.

    Attributes:
        variables: environment variables beside those of the machine.
        ulps: largest noise of each random input, in units in its last place; suites run without it.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    ulps: int = 0

    def environment(self) -> dict[str, str]:
        return dict(os.environ) | {"OMP_NUM_THREADS": "1"} | dict(self.variables)


def settings() -> dict[str, Setting]:
    """Every setting by name; OpenBLAS keeps the kernels that it chooses for the machine."""
    faster = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
    wide = [name for name in faster if name.startswith(("AVX512", "X86_V4"))]

    def of(xla: str, numpy: list[str], torch: str) -> dict[str, str]:
        variables = {"XLA_FLAGS": f"--xla_cpu_max_isa={xla}", "ATEN_CPU_CAPABILITY": torch}
        return variables | ({"NPY_DISABLE_CPU_FEATURES": " ".join(numpy)} if numpy else {})

    return {
        "native": Setting(),
        "noise": Setting(ulps=4),
        "avx2": Setting(of("AVX2", wide, "avx2")),
        "baseline": Setting(of("SSE4_2", faster, "default")),
        "threads": Setting({"OMP_NUM_THREADS": "2"}),
        "noise-on-avx2": Setting(of("AVX2", [], "avx2"), ulps=1),
    }


def perturb_draws(ulps: int) -> None:
    """Add noise of a few ulp of their dtype to all random numbers that NumPy, JAX and PyTorch draw from now on.

    Entries make their inputs from such numbers. Equal draws get equal noise.
    """
    import jax
    import torch

    def of_numpy(draw: Draw) -> Draw:
        @wraps(draw)
        def drawn(*args, **options):
            x = draw(*args, **options)
            k = np.random.Generator(np.random.PCG64(0)).integers(-ulps, ulps, np.shape(x), endpoint=True)
            kind = np.asarray(x).dtype
            return x * (1 + k * np.finfo(kind).eps).astype(kind)

        return drawn

    def of_jax(draw: Draw) -> Draw:
        @wraps(draw)
        def drawn(key, *args, **options):
            x = draw(key, *args, **options)
            k = jax.random.randint(jax.random.fold_in(key, 0), x.shape, -ulps, ulps + 1)
            return x * (1 + k.astype(x.dtype) * jax.numpy.finfo(x.dtype).eps)

        return drawn

    def of_torch(draw: Draw) -> Draw:
        @wraps(draw)
        def drawn(*args, **options):
            x = draw(*args, **options)
            k = torch.randint(-ulps, ulps + 1, x.shape, generator=torch.Generator().manual_seed(0))
            return x.mul_(1 + k.to(x.dtype) * torch.finfo(x.dtype).eps)

        return drawn

    class Perturbed(np.random.Generator):
        pass

    for name in ("exponential", "normal", "random", "standard_normal", "uniform"):
        setattr(Perturbed, name, of_numpy(getattr(np.random.Generator, name)))
    default_rng = np.random.default_rng
    np.random.default_rng = lambda seed=None: Perturbed(default_rng(seed).bit_generator)
    for place, names, of in (
        (jax.random, ("normal", "uniform"), of_jax),
        (torch, ("randn", "rand"), of_torch),
        (torch.Tensor, ("normal_", "uniform_"), of_torch),
    ):
        for name in names:
            setattr(place, name, of(getattr(place, name)))


def run_entries(names: list[str], out: Path) -> int:
    """Run those entries that are not stored, and return the number of failures."""
    failed = 0
    for name in names:
        try:
            reproduce(find_entry(name), out=out, size="quick")
        except Exception as error:  # an entry that fails is reported, and the others are run
            print(f"{out.name}: {name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failed += 1
        else:
            print(f"{out.name}: {name}", flush=True)
    return failed


def run_suite(name: str, setting: Setting, out: Path) -> None:
    """Run a suite, unless it has passed, and store its report."""
    report = suite_report(out, name)
    if report.exists() and not failed_tests(report):
        return
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", f"--junitxml={report}", f"tests/{name}"]
    with (out / f"{name}.txt").open("w") as text:
        subprocess.run(command, cwd=ROOT, env=setting.environment(), stdout=text, stderr=text, check=False)
    print(f"{out.name}: suite of {name}", flush=True)


def suite_report(out: Path, name: str) -> Path:
    return out / f"{name}.xml"


def failed_tests(report: Path) -> list[str]:
    """The names of the tests that failed, from a JUnit file."""
    cases = ET.parse(report).iter("testcase")  # our own file
    return [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]


def missing_jobs(name: str, entries: list[str], suites: tuple[str, ...], out: Path) -> Iterator[Callable[[], object]]:
    """Yield what is left to do under one setting: its suites, and the entries of each paper in a process."""
    out.mkdir(parents=True, exist_ok=True)
    setting = settings()[name]
    if not setting.ulps:
        yield from (partial(run_suite, suite, setting, out) for suite in suites)
    missing = [entry for entry in entries if not stored_run(out, entry).exists()]
    for _, own in groupby(missing, key=lambda entry: entry.partition("/")[0]):
        command = [sys.executable, __file__, "--one", name, "--out", str(out), "--entries", *own]
        yield partial(subprocess.run, command, env=setting.environment(), check=False)


def stored_run(out: Path, entry: str) -> Path:
    return out / entry / "quick.nc"


def stored_verdicts(out: Path, names: list[str]) -> dict[str, tuple[Verdict, ...]]:
    files = {name: stored_run(out, name) for name in names}
    return {name: Reproduction.open(file).verdicts for name, file in files.items() if file.exists()}


def changes(results: Results) -> Iterator[tuple[str, bool]]:
    """Yield a sentence for each claim that arithmetic changes, and True if it may not be left as it is.

    That is so if it is inside its bounds in one setting and outside in another, or decided although its value moves by
    more than a tenth of its distance to the bound and by more than its uncertainty.
    """
    by_claim: dict[tuple[str, str], dict[str, Verdict]] = {}
    for setting, entries in results.items():
        for entry, verdicts in entries.items():
            for verdict in verdicts:
                by_claim.setdefault((entry, verdict.claim), {})[setting] = verdict
    for (entry, claim), found in by_claim.items():
        outcomes = {verdict.outcome for verdict in found.values()}
        contradicted = {outcome.inside for outcome in outcomes} >= {True, False} or _moves(list(found.values()))
        if len(outcomes) > 1 or contradicted:
            values = "; ".join(
                f"{setting} {v.outcome} ({measured(v.value, v.uncertainty, v.unit)})" for setting, v in found.items()
            )
            some = next(iter(found.values()))
            yield f"{entry}, {claim}, bound {bounds(some.low, some.high, some.unit)}: {values}", contradicted


def _moves(found: list[Verdict]) -> bool:
    """Whether a decided value moves by more than a tenth of its distance to the bound and its uncertainty."""
    decided = [v for v in found if v.outcome.inside is not None]
    if len(decided) < 2:
        return False
    values = [v.value for v in decided]
    distance = min(min(abs(v.value - v.low), abs(v.value - v.high)) for v in decided)
    return max(values) - min(values) > max(distance / 10, *(v.uncertainty for v in decided))


def sources_digest() -> str:
    """Digest of what the results depend on, so that none are kept after a change."""
    digest = hashlib.sha256()
    for folder in ("src", *(f"tests/{suite}" for suite in SUITES)):
        for file in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "portable")
    parser.add_argument("--settings", nargs="+", choices=list(settings()), default=list(settings()))
    parser.add_argument("--entries", nargs="+", choices=entry_names(), metavar="ENTRY", help="these alone, no suites")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # the setting of this process
    given = parser.parse_args()
    if given.one:
        if ulps := settings()[given.one].ulps:
            perturb_draws(ulps)
        return 1 if run_entries(given.entries, given.out) else 0

    names = given.entries or list(entry_names())
    suites = () if given.entries else SUITES
    out = given.out / sources_digest()
    with ThreadPoolExecutor(given.processes) as pool:
        jobs = [pool.submit(job) for name in given.settings for job in missing_jobs(name, names, suites, out / name)]
        for job in jobs:
            job.result()

    results = {name: stored_verdicts(out / name, names) for name in given.settings}
    problems = [f"{name}: {entry} has no result" for name in results for entry in names if entry not in results[name]]
    for name in given.settings:
        for suite in () if settings()[name].ulps else suites:
            report = suite_report(out / name, suite)
            failed = failed_tests(report) if report.exists() else [f"no report; see {report.with_suffix('.txt')}"]
            problems += [f"{name}: suite of {suite}: {test}" for test in failed]
    open_ = []
    for sentence, contradicted in changes(results):
        (problems if contradicted else open_).append(sentence)
    for title, sentences in (("Undecided or not tested in some settings", open_), ("Failed or contradicted", problems)):
        print(f"{title}: {len(sentences)}", *sentences, sep="\n  ")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
