"""The paper sizes that want a GPU: `make gpu` runs them all, its page lists them, and each path runs on a processor."""

import re
import subprocess
from pathlib import Path

import pytest

from saddlescope.reproduction import entry_names, find_entry, reproduce

ROOT = Path(__file__).parents[2]


def runs():
    """The entries of `make gpu`, in its order."""
    listed = subprocess.run(
        ["make", "--no-print-directory", "-f", "Makefile", "--eval=print:;@echo $(GPU_RUNS)", "print"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return listed.stdout.split()


def on_a_gpu():
    """The entries whose paper size asks for one."""
    sized = [name for name in entry_names() if "paper" in find_entry(name).sizes]
    return [name for name in sized if getattr(find_entry(name).configure("paper"), "device", None) == "cuda"]


def test_make_gpu_runs_every_entry_that_asks_for_one():
    assert set(on_a_gpu()) <= set(runs())
    assert all("paper" in find_entry(name).sizes for name in runs())
    assert len(runs()) == len(set(runs()))


def test_the_page_lists_them_in_that_order():
    page = (ROOT / "docs" / "training-runs.md").read_text().partition("## Costs on a GPU")[2]
    assert re.findall(r"^\| `([a-z0-9/-]+)` \|", page, flags=re.M) == runs()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # both of the compiler's own
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("name", [name for name in on_a_gpu() if hasattr(find_entry(name).configure(), "compiled")])
def test_the_quick_size_runs_compiled_on_a_processor(name, tmp_path, types_unchecked):
    entry = find_entry(name)
    with types_unchecked():  # the compiler cannot see through run-time checks
        found = reproduce(entry, out=tmp_path, size="quick", settings={"compiled": "true", "device": "cpu"})
    assert {record["claim"] for record in found.records()} == {claim.name for claim in entry.claims}
