"""The entry that docs/contributing.md shows: from a file to a page of the gallery, by the commands of the page."""

import re
import shlex
from pathlib import Path

import pytest

import snippets
from saddlescope import cli
from saddlescope._shared.errors import InputError
from saddlescope.reproduction import Outcome, Reproduction, catalogue, find_entry, load_entries, reproduce

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "contributing.md").read_text()
SHOWN, _ = (one.code for one in snippets.snippets("docs/contributing.md"))
(COMMANDS,) = re.findall(r"```bash\n(.*?)```", PAGE, re.S)
NAME = "mine/independent-coordinates"


@pytest.fixture
def own(forgotten, tmp_path, monkeypatch):
    """Return the entry of the page, loaded from its file in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("independent_coordinates.py").write_text(SHOWN)
    load_entries("independent_coordinates.py")
    return find_entry(NAME)


def test_the_commands_of_the_page_make_a_page_of_the_gallery(own, types_unchecked, capsys):
    with types_unchecked():
        for command in COMMANDS.splitlines():
            assert cli.main(shlex.split(command)[1:]) == 0
    stored = Reproduction.open(f"results/{NAME}/default.nc")
    assert [verdict.outcome for verdict in stored.verdicts] == [Outcome.HOLDS]
    page = Path(f"gallery/{NAME}/default.html").read_text()
    for shown in (own.title, own.claims[0].statement, own.claims[0].quantity, "curvature a of each coordinate"):
        assert shown in page
    assert Path(f"gallery/{NAME}/default/figure-1.png").stat().st_size > 5000


def test_without_the_option_its_run_is_refused_with_the_cure(own, types_unchecked, monkeypatch, capsys):
    with types_unchecked():
        reproduce(own, out="results", size="quick")
    monkeypatch.setattr(catalogue, "_loaded", {})
    find_entry.cache_clear()
    assert cli.main(["check", "results"]) == 2
    assert "give the file of your own with --entry" in capsys.readouterr().err


def test_its_claim_can_fail(own, types_unchecked):
    with types_unchecked():
        made = reproduce(own, out="out", settings={"log_scale": "-3"})
    assert made.verdicts[0].outcome is Outcome.FAILS


@pytest.mark.parametrize("wrong", [{"curvatures": "0,0"}, {"log_scale": "nan"}])
def test_bad_parameters_are_refused(own, wrong):
    with pytest.raises(InputError, match="must be"):
        own.configure("quick", wrong)
