"""Entries: sizes, settings, the catalogue, and entries of your own files."""

import dataclasses
import os
import pickle
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import (
    Claims,
    Entry,
    EntryParams,
    catalogue,
    entry_names,
    find_entry,
    load_entries,
    param,
    reproduce,
)
from saddlescope.sweeps import sweep


class Params(EntryParams):
    scales: tuple[float, ...] = param((0.1, 0.01), "initial scales")
    seed: int = param(0, "seed of everything")


ENTRY = Entry(
    "p/e",
    "t",
    params=Params,
    quick={"scales": (0.5,)},
    paper={"seed": 7},
    run=lambda params, context: xr.Dataset(),
    claims=Claims(),
    figures=lambda run: [],
)


def params(**values: Any) -> Params:
    """Return parameters; fields have their default as the first argument, where type checkers do not look for it."""
    return Params(**values)


def test_only_some_entries_have_a_reduced_size():
    assert ENTRY.sizes == ("quick", "default", "paper")
    with pytest.raises(InputError, match=r"^p/e has no reduced size; take quick or default or paper\.$"):
        ENTRY.configure("reduced")
    reduced = dataclasses.replace(ENTRY, reduced={"seed": 3})
    assert reduced.sizes == ("quick", "default", "reduced", "paper")
    assert reduced.configure("reduced") == params(seed=3)


def test_the_reduced_size_says_what_is_scaled_down():
    paper = {"seed": 7, "scales": (0.3,)}
    reduced = dataclasses.replace(ENTRY, reduced={"seed": 3, "scales": (0.1, 0.2)}, paper=paper)
    assert reduced.scaling() == "scales 0.1,0.2 for 0.3, seed 3 for 7"
    assert dataclasses.replace(reduced, paper=paper | {"seed": 3}).scaling() == "scales 0.1,0.2 for 0.3"
    assert reduced.scaling({"seed": "5"}) == "scales 0.1,0.2 for 0.3, seed 5 for 7"


def test_unknown_entry_names_the_nearest():
    with pytest.raises(InputError) as caught:
        find_entry("gradual-rank/figure2")
    near = "gradual-rank/figure-2 or gradual-rank/figure-20 or gradual-rank/figure-12"
    assert str(caught.value) == f"There is no entry 'gradual-rank/figure2'; did you mean {near}?"
    with pytest.raises(InputError, match=r"no entry 'qqqq'.*saddlescope list.*--entry$"):
        find_entry("qqqq")


def test_names_and_headings_come_from_the_files():
    assert {"gradual-rank/figure-2", "gradual-rank/figure-4"} <= set(entry_names())
    for name in entry_names():
        found = find_entry(name)
        assert catalogue.entry_heading(name) == (found.title, found.source, found.citation)


OWN = """
from saddlescope.reproduction import Claims, Entry, EntryParams, param
class Params(EntryParams):
    seed: int = param(0, "seed")
def run(params, context): ...
one = Entry("own/{0}-one", "One", params=Params, run=run, claims=Claims(), figures=lambda run: [])
two = Entry("own/{0}-two", "Two", params=Params, run=run, claims=Claims(), figures=lambda run: [])
"""


def test_a_file_of_your_own_adds_its_entries(tmp_path, forgotten):
    file = tmp_path / "added.py"
    file.write_text(OWN.format("added"))
    assert load_entries(file) == ("own/added-one", "own/added-two") == load_entries(str(file))
    assert find_entry("own/added-two").title == "Two"
    assert catalogue.entry_heading("own/added-one") == ("One", "", "")
    assert "own/added-one" in entry_names()


LATER = 2**31 - 1  # seconds
INTERRUPTED_ONCE = """
import xarray as xr
from saddlescope.reproduction import Claims, Entry, EntryParams, param
class Params(EntryParams):
    seed: int = param(0, "seed")
def run(params, context):
    if not params.seed and not (context.scratch / "part").exists():
        (context.scratch / "part").touch()
        raise KeyboardInterrupt
    return xr.Dataset()
ENTRY = Entry("own/edited", "Edited", params=Params, run=run, claims=Claims(), figures=lambda run: [])
"""


def test_what_was_stored_before_its_file_was_saved_is_told(tmp_path, forgotten):
    file = tmp_path / "edited.py"
    file.write_text(INTERRUPTED_ONCE)
    load_entries(file)
    heard: list[str] = []

    def said(run, saved):
        os.utime(file, (saved, saved))
        heard.clear()
        run()
        return heard[0]

    once = {"out": tmp_path / "out", "say": heard.append}
    one = partial(reproduce, "own/edited", **once)
    with pytest.raises(KeyboardInterrupt):
        one()
    assert said(one, LATER).endswith("before edited.py was saved: pass --again to start over.")
    assert said(one, 0).endswith("stored already: judging it again. Pass --again to rerun it.")
    assert said(one, LATER).endswith("already, before edited.py was saved: judging it again. Pass --again to rerun it.")
    many = partial(sweep, "own/edited", ["seed=1,2"], processes=1, **once)
    many()
    assert said(many, 0) == "2 of 2 points are stored already. Pass --again to rerun."
    assert said(many, LATER) == "2 of 2 points are stored already, before edited.py was saved. Pass --again to rerun."


def test_two_files_of_one_name_are_two_modules(tmp_path, forgotten):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(OWN.format(folder))
        load_entries(tmp_path / folder / "same.py")
    first, second = find_entry("own/a-one").configure(), find_entry("own/b-one").configure()
    assert type(first) is not type(second)
    assert type(pickle.loads(pickle.dumps(first))) is type(first)


def test_its_parameters_reach_another_process(tmp_path, forgotten):
    file = tmp_path / "carried.py"
    file.write_text(OWN.format("carried"))
    load_entries(file)
    pickled = pickle.dumps(find_entry("own/carried-one").configure(settings={"seed": "5"}))
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer))"
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=True)
    assert done.stdout.decode().strip() == "Params(seed=5)"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("absent.py", None, "--entry must be an existing Python file; got '"),
        ("notes.txt", "", "--entry must be an existing Python file; got '"),
        ("broken.py", "1 / 0", "cannot be imported: ZeroDivisionError: division by zero"),
        ("empty.py", "x = 1", "must declare an entry, such as entry = Entry(...); got none."),
        ("taken.py", OWN.replace("own/{0}-one", "gradual-rank/figure-2"), "got 'gradual-rank/figure-2', which exists."),
        ("slash.py", OWN.replace("own/{0}-one", "../../etc"), "must be GROUP/NAME of letters, digits and -; got"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path, forgotten, name, text, sentence):
    if text is not None:
        (tmp_path / name).write_text(text)
    for _ in range(2):  # a file that was refused is refused again
        with pytest.raises(InputError) as refused:
            load_entries(tmp_path / name)
        assert sentence in str(refused.value)
    assert not [known for known in entry_names() if known.startswith(("own/", ".."))]


def test_an_entry_may_have_no_citation_though_its_folder_has_one():
    found = find_entry("gradual-rank/figure-2")
    assert found.citation
    assert dataclasses.replace(found, citation="").citation == ""
    assert dataclasses.replace(found, citation=None).citation == found.citation
