"""Invalid command lines of every command, generated: one sentence on standard error, status 2, no traceback or file.

That no parameter of an entry takes a value out of its range is in tests/reproduction/test_parameters.py.
"""

import contextlib
import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import typer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from saddlescope import cli
from tiny import save_pair

_EXAMPLES = 150
_CLEAR = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]*")  # of control characters
WORDS = ("", "x", "-1", "0", "1.5", "nan", "inf", "1e400", "9" * 30, "9" * 6000, "a" * 5000, "\x1b[31m", "\u202e", "٣")
PATHS = ("", "missing/below", "/dev/null/x", "a" * 300, "file/below", "\x1b[31m", "\udcff", "/proc/self/mem/x")

NAMES = st.one_of(
    st.sampled_from(
        ["tiny", "tiny/", "/", "../../etc/passwd", "tiny/../tiny", "<script>x</script>", "{{7*7}}", "%s", ""]
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12),
).filter(lambda name: not name.startswith("-"))
MISSING = st.sampled_from(["missing", "missing/below", "file/below", "ünïcode ☃", "a" * 300, "~", "//"])
NO_FOLDER = MISSING.filter(lambda name: name != "//") | st.just("file")
NO_CHECKPOINT = MISSING | st.sampled_from(
    ["file", "empty", "junk.bin", "junk.safetensors", "long.safetensors", "junk.pt", "folder", "index"]
)
NO_TOKENS = MISSING | st.sampled_from(["file", "empty", "junk.npz", "other.npz", "one.npy", "objects.npz", "folder"])
SETTINGS = st.one_of(
    st.sampled_from(
        ["seed", "=", "=1", "seed=", "seed=x", "seed=1.5", "stages=0", "stages=-1", "scales=,", "scales=a,b"]
    ),
    st.tuples(NAMES, NAMES).map("=".join).filter(lambda text: text.partition("=")[0].strip() not in {"words"}),
)
GRIDS = st.one_of(
    SETTINGS.filter(lambda text: "=" not in text or text.partition("=")[0].strip() != "seed"),
    st.sampled_from(
        ["seed=3:3", "seed=5:1", "seed=a:b", "seed=1:2:3:4", "stages=log:1:2", "scales=log:-1:1:3", "seed=:"]
    ),
)


def line(*words):
    """Draw a command line of fixed and drawn words."""
    return st.tuples(*(st.just(word) if isinstance(word, str) else word for word in words)).map(list)


LINES = st.one_of(
    line(NAMES),
    line("run", NAMES),
    line("run", "tiny/staircase", "--size", NAMES),
    line("run", "tiny/staircase", "--set", SETTINGS),
    line("run", "tiny/staircase", "--data", NO_FOLDER),
    line("run", "tiny/staircase", "--out", st.sampled_from(["file", "file/below", "/proc/none", "/dev/null/x"])),
    line("run", "tiny/staircase", NAMES),
    line("show", NAMES),
    line("check", NO_FOLDER | st.sampled_from(["damaged", "folder"])),
    line("gallery", NO_FOLDER | st.sampled_from(["damaged", "folder"]), "--site", st.sampled_from(["site", "file"])),
    line("sweep", NAMES),
    line("sweep", "tiny/staircase", "--grid", GRIDS),
    line("sweep", "tiny/staircase", "--seeds", st.sampled_from(["x", "3:3", "1:", ":", "1.5", "-1:-3", "0:4:0"])),
    line("sweep", "tiny/staircase", "--seeds", "0:2", "--processes", st.sampled_from(["0", "-3", "many"])),
    line("spectra", NO_CHECKPOINT, NO_CHECKPOINT),
    line("spectra", NO_CHECKPOINT, "missing", "--top", st.sampled_from(["x", "1.5"])),
    line("extract-lora", NO_CHECKPOINT, NO_CHECKPOINT, "--out", "adapter", "--energy", "0.9"),
    line("extract-lora", "missing", "missing", "--out", "file", "--rank", st.sampled_from(["0", "-1", "x"])),
    line("attention", NO_TOKENS),
    line("attention", "tokens.npz", "--log-until", st.sampled_from(["0", "-1", "nan", "inf", "1e300", "soon"])),
    line("attention", "tokens.npz", "--log-scale", st.sampled_from(["1e4", "-1e4", "nan", "inf", "big"])),
    line("attention", "tokens.npz", "--seed", st.sampled_from(["-1", "1.5", "x"])),
    line("data", "get", NAMES),
    line("data", NAMES),
    line(st.sampled_from(["run", "check", "gallery", "spectra", "sweep"]), NAMES.map("--".__add__)),
)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """Folder of unrelated and damaged files and folders."""
    here = tmp_path_factory.mktemp("shelf")
    noise = np.random.default_rng(0).bytes(3000)
    (here / "folder").mkdir()
    (here / "index").mkdir()
    (here / "index" / "model.safetensors.index.json").write_text('{"weight_map": {"w": "../../../etc/passwd"}}')
    (here / "damaged").mkdir()
    for name in ("damaged/quick.nc", "junk.bin", "junk.safetensors", "junk.pt", "junk.npz"):
        (here / name).write_bytes(noise)
    (here / "long.safetensors").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    (here / "file").write_text("words")
    (here / "empty").write_bytes(b"")
    np.save(here / "one.npy", np.zeros(3))
    np.savez(here / "other.npz", a=np.zeros(3))
    np.savez(here / "objects.npz", **{name: np.array([{}], object) for name in "XzyV"})
    rng = np.random.default_rng(1)
    np.savez(
        here / "tokens.npz",
        **{"X": rng.normal(size=(2, 3, 6)), "z": rng.normal(size=(2, 6)), "y": [1.0, -1.0], "v": rng.normal(size=6)},
    )
    return here


@pytest.fixture
def on_shelf(tiny, shelf, tmp_path, monkeypatch):
    """Work in a copy of the shelf."""
    monkeypatch.delenv("SADDLESCOPE_DATA", raising=False)
    shutil.copytree(shelf, tmp_path / "shelf")
    monkeypatch.chdir(tmp_path / "shelf")
    return tmp_path


def call(words):
    """Run a command line; return its status, output and standard error, which is one line without control signs."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(words)
    message = err.getvalue().strip()
    if status == 2:
        assert message, words
        assert "Traceback" not in message, message
        more = sum(map(message.count, ("progress", "%", "Skipped: ")))  # a gallery names each file that it skips
        assert message.count("\n") <= more, message
        assert len(message) < 12_000, message
        assert _CLEAR.fullmatch(message), message
        assert out.getvalue() == "", out.getvalue()
    return status


def test_invalid_lines_print_one_sentence_and_exit_with_status_2(on_shelf):
    before = sorted(on_shelf.rglob("*"))

    @settings(
        max_examples=_EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(LINES)
    @example(["extract-lora", "junk.pt", "junk.safetensors", "--out", "adapter"])
    @example(["spectra", "index", "index"])
    @example(["gallery", "damaged", "--site", "site"])
    @example(["sweep", "tiny/staircase", "--grid", "words=" + "x" * 5000, "--grid", "words=y"])
    def examples(words: list[str]) -> None:
        assert call(words) == 2, words

    examples()
    assert sorted(on_shelf.rglob("*")) == before


def option_lines():
    """Yield each command with each option or argument at values that may be bad."""
    valid = {
        "run": ["tiny/staircase", "--out", "out"],
        "sweep": ["tiny/staircase", "--seeds", "0:2", "--processes", "1", "--out", "out"],
        "check": ["missing"],
        "show": ["tiny/staircase"],
        "gallery": ["missing"],
        "spectra": ["base.pt", "tuned.pt", "--heads", "2", "--out", "out.nc"],
        "extract-lora": ["base.pt", "tuned.pt", "--out", "out", "--rank", "1", "--no-logits"],
        "attention": ["missing.npz"],
    }
    commands = typer.main.get_command(cli.app)
    for name, words in valid.items():
        for parameter in commands.commands[name].params:  # type: ignore[attr-defined]
            flag = next((each for each in parameter.opts if each.startswith("--")), None)
            if flag in (None, "--help") or getattr(parameter, "is_flag", False):
                continue
            for value in PATHS if flag in ("--out", "--site", "--data", "--entry") else WORDS:
                yield [name, *words, flag, value]
        for value in PATHS:
            yield [name, value, *words[1:]]
    yield from ([word] for word in ("", "x", "--x", "-", "--", "\x1b[31m", "runn", "a" * 5000))
    yield from (["data", *words] for words in (["get"], ["x"], ["get", "x", "--data", "d"], ["get", "--data", "d"]))


class WorkBeganError(BaseException):
    """A command began its work: it took the words as valid."""


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_bad_options_are_refused_before_any_work_or_valid(step, on_shelf, monkeypatch):
    save_pair(Path())

    def begin(*_, **__):
        raise WorkBeganError

    for place in (
        "reproduction.runner.stamped_run",
        "sweeps.run._run_here",
        "ranks.lora.extract._decompose",
        "sweeps.dask_workers.run_on_cluster",
        "gallery.build_spectra",
    ):
        monkeypatch.setattr(f"saddlescope.{place}", begin)
    before, count = sorted(on_shelf.rglob("*")), 0
    for words in list(option_lines())[::step]:
        count += 1
        status = None
        with contextlib.suppress(WorkBeganError):
            status = call(words)
        assert status in (0, 2, None), (words, status)
        if status != 2:  # valid, and may write
            before = sorted(on_shelf.rglob("*"))
        assert sorted(on_shelf.rglob("*")) == before, words
    assert count >= 400 // step
