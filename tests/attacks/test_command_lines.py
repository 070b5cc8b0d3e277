"""Bad and extreme command lines over all commands, options, entries and parameters, generated from their own records.

Each is refused in one sentence with status 2, before any work and within two seconds, and no file appears.
"""

import contextlib
import io
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import typer

from saddlescope import cli
from saddlescope.reproduction import catalogue
from saddlescope.reproduction.entry import find_entry

HUGE = (10**14, 10**19, 10**40)
SECONDS = 2.0
WORDS = ("", "x", "-1", "0", "1.5", "nan", "inf", "1e400", "9" * 30, "9" * 6000, "a" * 5000, "\x1b[31m", "\u202e", "٣")
_CLEAR = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]*")
PATHS = ("", "missing/below", "/dev/null/x", "a" * 300, "file/below", "\x1b[31m", "\udcff", "/proc/self/mem/x")


class WorkBeganError(BaseException):
    """A command began its work: it took the words as valid."""


def parameter_lines() -> Iterator[list[str]]:
    """Yield lines with values that no parameter of an entry can have."""
    for name in catalogue.entry_names():
        entry = find_entry(name)
        yield ["run", name, "--set", "nosuch=1"]
        yield ["run", name, "--size", "huge"]
        for parameter in entry.parameters.values():
            values = {int: ["x", "1.5", "", *HUGE[1:], -HUGE[2]], float: ["x", "nan", "inf", "-1e400"], bool: ["maybe"]}
            bad = values.get(parameter.type, ["nosuch"] if parameter.choices else [])
            for value in bad[len(name) % 3 :: 3] if len(bad) > 3 else bad:  # a third: there are many parameters
                yield ["run", name, "--set", f"{parameter.name}={value}"]
            if parameter.type is int:
                yield ["sweep", name, "--grid", f"{parameter.name}=0:{10**20}"]
                yield ["run", name, "--set", f"{parameter.name}={HUGE[0]}"]
            if parameter.type is float:
                yield ["sweep", name, "--grid", f"{parameter.name}=linear:0:1:{10**12}"]


def grid_lines() -> Iterator[list[str]]:
    """Yield sweeps with bad grids."""
    grids = (
        "seed=0:99999999999999999999", "seed=0:-1", "seed=0:1:0", "seed=0:8:9:9", "seed=:", "seed", "=", "seed=",
        "seed=0:100001", "dim=99999999999", f"seed={10**30}", "log10_scales=-inf", "log10_scales=log:0:1:9",
        "log10_scales=linear:-1:-1e400:3", "seed=linear:0:1:3", "seed=1,1", f"seed={'9' * 6000}", "seed=\x1b[31m",
    )  # fmt: skip
    for grid in grids:
        yield ["sweep", "gradual-rank/figure-2", "--grid", grid]
    yield ["sweep", "gradual-rank/figure-2", "--grid", "seed=0:1000", "--grid", "dim=2:1002"]
    for seeds in ("x", "1:1", "0:99999999999999999999999", "-5", str(10**30), ":", "1.5", "٣"):
        yield ["sweep", "gradual-rank/figure-2", "--seeds", seeds]


def option_lines() -> Iterator[list[str]]:
    """Yield each command with each option or argument at values that may be bad."""
    valid = {
        "run": ["gradual-rank/figure-2", "--out", "out"],
        "sweep": ["gradual-rank/figure-2", "--seeds", "0:2", "--processes", "1", "--out", "out"],
        "check": ["missing"],
        "show": ["gradual-rank/figure-2"],
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


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder with two checkpoints, where the start of any work is an error."""
    draw = torch.Generator().manual_seed(0)
    base = {f"layers.0.{name}_proj.weight": torch.randn(6, 6, generator=draw) for name in "qkvo"}
    torch.save(base, tmp_path / "base.pt")
    torch.save({name: 2 * one for name, one in base.items()}, tmp_path / "tuned.pt")
    np.savez(tmp_path / "tokens.npz", X=np.ones((2, 2, 2)))
    (tmp_path / "file").write_text("words")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SADDLESCOPE_DATA", raising=False)

    def begin(*_, **__):
        raise WorkBeganError

    for place in (
        "reproduction.runner.stamped_run",
        "sweeps.run.run_in_processes",
        "sweeps.dask_workers.run_on_cluster",
        "ranks.lora.extract._decompose",
        "gallery.build_spectra",
    ):
        monkeypatch.setattr(f"saddlescope.{place}", begin)
    return tmp_path


def call(words: list[str]) -> tuple[int | None, str, str, float]:
    """Run a command line; return its status (None if its work began), output, standard error and CPU time."""
    out, err, began = io.StringIO(), io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main(words)
        except WorkBeganError:
            status = None
    return status, out.getvalue(), err.getvalue().strip(), time.process_time() - began


def faults(lines: Iterator[list[str]], folder: Path, allowed: set[int | None]) -> tuple[int, list[object]]:
    """Run command lines; return their number, and those that are not refused as they should be."""
    before, found, count = sorted(folder.rglob("*")), [], 0
    for words in lines:
        count += 1
        status, out, err, seconds = call(words)
        bare = [len(word) < 200 and word for word in words]
        if status in (0, None):  # valid, and may write
            before = sorted(folder.rglob("*"))
        if status not in allowed or "Traceback" in err or seconds > SECONDS:
            found.append((bare, status, err[-500:], seconds))
        elif status == 2:
            sentence = [line for line in err.splitlines() if "%" not in line]
            if out or len(sentence) != 1 or not _CLEAR.fullmatch(err) or len(err) > 12_000:
                found.append((bare, status, err[-500:], out[:200]))
    if (after := sorted(folder.rglob("*"))) != before:
        found.append(sorted(set(after) ^ set(before)))
    return count, found


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_impossible_parameters_are_refused_at_once(step, folder):
    for name in catalogue.entry_names():
        find_entry(name)  # so that no line is charged for imports
    count, found = faults(islice(parameter_lines(), 0, None, step), folder, {2})
    assert count >= 2100 // step
    assert not found, found[:10]


def test_impossible_grids_are_refused_at_once(folder):
    _, found = faults(grid_lines(), folder, {2})
    assert not found, found


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_bad_options_are_refused_at_once_or_valid(step, folder):
    for words in (["spectra", "missing", "missing"], ["attention", "missing.npz"]):
        call(words)  # so that no line is charged for imports
    count, found = faults(islice(option_lines(), 0, None, step), folder, {0, 2, None})
    assert count >= 500 // step
    assert not found, found[:10]
