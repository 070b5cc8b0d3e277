"""Stored runs, checkpoints, pickles and archives from an attacker: one sentence, in bounded memory and time.

Nothing is executed, no control character reaches the terminal, and harmless files stay readable.
"""

import json
import os
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope._shared.json_text import parse_json
from saddlescope._shared.npz_files import read_npz
from saddlescope._shared.visible_text import visible, visible_json

PROGRAM = Path(__file__).with_name("hostile_files.py")
_MEMORY = 300  # MiB beyond those of a harmless file
_TIME = 10  # seconds of CPU time
_CLEAR = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]*")


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.slow)])
def outcomes(request, tmp_path_factory):
    """Return what came of each attack, and what it took."""
    step = "16" if request.param == "some" else "1"
    command = [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp("attacks")), step]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) >= {"some": 30, "all": 300}[request.param]
    return found


def test_all_attacks_end_in_one_sentence_or_do_no_harm(outcomes):
    faults = {name: message for name, (what, message, *_) in outcomes.items() if what == "error"}
    assert not faults
    for name, (what, message, *_) in outcomes.items():
        if what == "refused":
            assert 20 < len(message) < 1500, (name, message)
            assert _CLEAR.fullmatch(message), (name, message)
            assert message.strip().count("\n") == 0, (name, message)


def test_memory_and_time_are_bounded(outcomes):
    harmless = outcomes["nothing at all"][2]
    costs = {name: (memory - harmless, seconds) for name, (_, _, memory, seconds) in outcomes.items()}
    assert not {name: cost for name, cost in costs.items() if cost[0] > _MEMORY or cost[1] > _TIME}


@pytest.mark.parametrize("word", ["garbage", "written", "terabytes", ": a key", "73 TiB", "compressed"])
def test_what_would_fill_the_memory_or_never_end_is_refused(outcomes, word):
    found = {name: what for name, (what, *_) in outcomes.items() if word in name}
    assert found
    assert set(found.values()) == {"refused"}, found


def test_what_is_written_can_always_be_read(tmp_path):
    """Zeros deflate by a factor of 1000, more than a file from others may expand."""
    zeros = xr.Dataset({"zeros": ("n", np.zeros(12_000_000))})
    assert store.read(store.write(zeros, tmp_path / "zeros.nc")).identical(zeros)
    words = xr.Dataset({"words": ("n", np.array(["", "a"] * 50_000, object))}, attrs={"names": ["x" * 200] * 200})
    assert store.read(store.write(words, tmp_path / "words.nc")).identical(words)


def test_nested_json_is_no_json():
    assert parse_json('{"a": [1, {"b": 2}]}') == {"a": [1, {"b": 2}]}
    for depth in (100, 100_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json("[" * depth + "]" * depth)


def test_control_characters_are_shown_escaped():
    attack = "\x1b]0;owned\x07 \x9b2J \u202e \ud800 é ☃\n"
    assert visible(attack) == r"\x1b]0;owned\x07 \x9b2J \u202e \ud800 é ☃" + "\n"
    text = json.dumps({"words": attack}, ensure_ascii=False)
    assert json.loads(visible_json(text)) == {"words": attack}
    assert _CLEAR.fullmatch(visible_json(text))
    assert str(InputError(f"got {attack!s}")).startswith(r"got \x1b]0;owned")


def test_a_compressed_npz_of_a_usual_kind_is_read(tmp_path):
    images = np.random.default_rng(0).integers(0, 9, (50, 28, 28), np.uint8)
    np.savez_compressed(tmp_path / "a.npz", images=images, labels=np.arange(50))
    found = read_npz(tmp_path / "a.npz")
    np.testing.assert_array_equal(found["images"], images)
    assert list(read_npz(tmp_path / "a.npz", ["labels"])) == ["labels"]


def test_pages_restrict_scripts_and_images():
    text = files("saddlescope.gallery").joinpath("templates", "base.html").read_text("utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == ["'self'"]
    assert not {"*", "http:", "https:", "'unsafe-eval'"} & {source for sources in rules.values() for source in sources}
    assert "'unsafe-inline'" not in rules["script-src"]
