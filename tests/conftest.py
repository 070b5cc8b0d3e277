"""Fixtures of all tests: float64 in JAX, strict promotion, the data folder, a browser, and quick runs of entries."""

import gc
import hashlib
import os
import pickle
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer

import jax
import jaxtyping
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


# Unoptimised code gives the same numbers to rounding and is compiled in a third of the time; most of it runs once.
COMPILED_QUICKLY = (
    "--xla_backend_optimization_level=0",
    *(["--xla_cpu_use_fusion_emitters=false"] if jax.__version_info__ < (0, 11) else []),  # XLA aborts on flags it lost
    "--xla_cpu_parallel_codegen_split_count=1",
)


def pytest_configure(config: pytest.Config) -> None:
    """Take interrupts; let XLA compile as for users in `make test-all`, and without optimising in `make test`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores them, and so do its processes
    if config.option.markexpr != "not slow":
        return
    with pytest.MonkeyPatch.context() as patch:  # our commands try out given flags, which would take every test longer
        patch.setenv("XLA_FLAGS", " ".join([*COMPILED_QUICKLY, os.environ.get("XLA_FLAGS", "")]))
        jax.devices()  # XLA reads them once


# What tools keep between runs; `git status` names no folder above them.
KEPT = re.compile(r"(^|/)(\.hypothesis|\.pytest_cache|\.import_linter_cache|__pycache__)/$")
UNTRACKED = pytest.StashKey[set[str]]()


def untracked(checkout: Path) -> set[str]:
    """Return the files of the checkout that git does not track; none where there is no git."""
    asked = ["git", "-C", str(checkout), "status", "--porcelain", "--ignored"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return set()
    return {line[3:] for line in said.splitlines() if line[:2] in ("??", "!!") and not KEPT.search(line[3:])}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remember what is in the checkout."""
    session.config.stash[UNTRACKED] = untracked(session.config.rootpath)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if files were left in the checkout."""
    if left := untracked(session.config.rootpath) - session.config.stash[UNTRACKED]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        sys.stderr.write(f"\nNew in the checkout since the tests began: {', '.join(sorted(left))}\n")


def pytest_collection_finish() -> None:
    """Spare garbage collections, one after every Trainer, what is loaded by now."""
    gc.collect()
    gc.freeze()


CHECKED = 0.3  # seconds of each test in which `make test` checks types: later calls are mostly those of a loop


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Check types at run time: in `make test-all` throughout; in `make test`, for its speed, as each test begins."""
    if item.config.option.markexpr != "not slow":
        return (yield)
    timer = Timer(CHECKED, jaxtyping.config.update, ("jaxtyping_disable", True))
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()
        timer.join()
        jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def types_unchecked() -> Callable[[], AbstractContextManager[None]]:
    """Return a context without run-time checks of types, as for users: small right-hand sides are much faster."""

    @contextmanager
    def context() -> Iterator[None]:
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            yield
        finally:
            jaxtyping.config.update("jaxtyping_disable", False)

    return context


@pytest.fixture
def tiny(monkeypatch):
    """Replace all entries by the tiny entry of tests/tiny.py."""
    import tiny

    monkeypatch.setattr("saddlescope.reproduction.entry.find_entry", tiny.find_entry)
    monkeypatch.setattr("saddlescope.reproduction.catalogue.entry_names", lambda: tiny.NAMES)
    monkeypatch.setattr("saddlescope.reproduction.catalogue.entry_heading", lambda name: tiny.HEADING)
    return tiny.ENTRY


@pytest.fixture
def forgotten(monkeypatch):
    """Forget the entries of other files that a test loads."""
    from saddlescope.reproduction import catalogue, find_entry

    monkeypatch.setattr(catalogue, "_loaded", {})
    yield
    find_entry.cache_clear()


@pytest.fixture
def disk_full() -> Callable[[], AbstractContextManager[None]]:
    """Return a context in which no file grows beyond 5000 bytes."""
    import resource  # not on Windows

    @contextmanager
    def context() -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return context


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """Run a line of the command line in tmp_path; return the status, stdout and stderr."""
    from saddlescope import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SADDLESCOPE_DATA", raising=False)

    def call(line: str) -> tuple[int, str, str]:
        status = cli.main(shlex.split(line))
        reported = capsys.readouterr()
        return status, reported.out, reported.err

    return call


@pytest.fixture
def call(tiny, typed):
    """Run a line of the command line with the tiny entry; return the status and stderr."""

    def run(line: str) -> tuple[int, str]:
        status, _, err = typed(line)
        return status, err.strip()

    return run


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of official data sets; tests that need it skip if it is absent, except in CI."""
    given = os.environ.get("SADDLESCOPE_DATA", str(Path(__file__).parents[2] / "shared" / "data"))
    folder = Path(given)
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"CI needs the official data; there is no folder {folder}. Set SADDLESCOPE_DATA.")
        pytest.skip("official data absent: set SADDLESCOPE_DATA")
    return folder


SWITCHES = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="module")  # a session's browser would leave its event loop running for the tests of others
def chromium():
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs a Chromium: apt-get install chromium")
        pytest.skip("no Chromium: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=SWITCHES)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser_context(chromium):
    """Return the browser's context with some options: one for all tests of a module, since it keeps read scripts."""
    contexts = {}

    def get(**options):
        key = repr(sorted(options.items()))
        contexts[key] = contexts.get(key) or chromium.new_context(**options)
        return contexts[key]

    yield get
    for context in contexts.values():
        context.close()


@pytest.fixture
def trouble():
    """Return the list of what went wrong in pages, which must stay empty."""
    found = []
    yield found
    assert found == []


@pytest.fixture
def new_page(browser_context, trouble):
    """Open a page that is closed after the test; its console must stay empty."""
    pages = []

    def open_page(*, quiet=True, **options):
        page = browser_context(**options).new_page()
        pages.append(page)
        if quiet:
            page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        return page

    yield open_page
    for page in pages:
        page.close()


@dataclass
class QuickRun:
    entry: object
    run: object
    reports: list = field(default_factory=list)


@pytest.fixture(scope="session")
def quick_run(tmp_path_factory, types_unchecked):
    """Run each entry once at its quick size, as users run it, for all tests and all workers of xdist."""
    from saddlescope.reproduction import RunContext, find_entry  # not above: types are checked in later imports alone

    done: dict[tuple, tuple] = {}  # by function and parameters, since two entries may share a run
    own = tmp_path_factory.getbasetemp()
    among_workers = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def make(entry) -> tuple:
        reports: list = []
        context = RunContext(scratch=tmp_path_factory.mktemp("scratch"), report=lambda *report: reports.append(report))
        with types_unchecked():
            return entry.run(entry.configure("quick"), context), reports

    def shared(entry, file: Path) -> tuple:
        """Return the run of another worker; two that start at once both compute it, and the last one stays."""
        if file.exists():
            return pickle.loads(file.read_bytes())
        made = make(entry)
        part = own / file.name
        part.write_bytes(pickle.dumps(made))
        part.replace(file)
        return made

    def get(name: str) -> QuickRun:
        entry = find_entry(name)
        key = entry.run, entry.configure("quick")
        if key not in done:
            reported = repr((entry.run.__module__, entry.run.__qualname__, entry.configure("quick")))
            done[key] = shared(entry, among_workers / f"quick-run-{hashlib.sha256(reported.encode()).hexdigest()}")
        return QuickRun(entry, *done[key])

    return get


@pytest.fixture
def outcomes():
    """Return the outcomes of an entry on a data set by claim."""
    return lambda entry, run: {verdict.claim: str(verdict.outcome) for verdict in entry.judge(run)}


@pytest.fixture
def inside():
    """Return the claims of an entry whose values are within their bounds, even if the trials are too few to decide."""
    return lambda entry, run: {v.claim for v in entry.judge(run) if v.low <= v.value <= v.high}


@pytest.fixture
def undrawn(monkeypatch):
    """Build pages without drawing, for tests of folders and text."""
    from tiny import Blank

    for name in ("draw_matplotlib", "draw_thumbnail"):
        monkeypatch.setattr(f"saddlescope.gallery.site.{name}", lambda *_, **__: Blank())
