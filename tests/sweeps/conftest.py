"""The tiny walk in place of all entries, here and in the processes that sweeps start."""

import os
import sys
from pathlib import Path

import pytest

from saddlescope.sweeps import Grid, sweep

_HERE = Path(__file__).parent


@pytest.fixture
def walk(tmp_path, monkeypatch):
    """Return the entry; its runs leave a trace in tmp_path."""
    import tiny_sweep

    monkeypatch.setattr("saddlescope.reproduction.entry.find_entry", tiny_sweep.find_entry)
    monkeypatch.setattr("saddlescope.reproduction.catalogue.entry_names", lambda: (tiny_sweep.ENTRY.name,))
    monkeypatch.setenv("TINY_HERE", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(_HERE), *filter(None, [os.environ.get("PYTHONPATH")])]))
    return tiny_sweep.ENTRY


@pytest.fixture
def heard():
    return []


@pytest.fixture
def swept(walk, tmp_path, heard):
    """Sweep the walk over words, below tmp_path/out, by default in this process."""

    def call(*words, seeds="", size="quick", settings=None, **options):
        grid = Grid.parse(walk, words, seeds=seeds, size=size, settings=settings)
        options = ({"processes": 1} if "scheduler" not in options else {}) | {"out": tmp_path / "out"} | options
        return sweep(walk, grid, say=heard.append, **options)

    return call


@pytest.fixture
def begun(tmp_path):
    """Return the runs that began so far: process, kind, seed and dimension."""
    file = tmp_path / "begun"
    return lambda: [tuple(line.split()) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def command():
    """Return the words that start the command line with the walk installed."""
    return [sys.executable, str(_HERE / "tiny_sweep.py")]
