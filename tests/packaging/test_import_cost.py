"""Import cost: an allow-list of the modules that are loaded, since times depend on the machine."""

import subprocess
import sys

import pytest

OURS = {"saddlescope", "lazy_loader"}
TERMINAL = OURS | {"typer", "rich", "pygments", "markdown_it", "mdurl", "shellingham"}
TERMINAL |= {"annotated_doc", "annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
TERMINAL |= {"attr"}  # rich.pretty takes it where it is installed
NAMED = "plot, reproduction, store, sweeps"
ARRAYS = TERMINAL | {"numpy", "xarray", "pandas", "dateutil", "six", "packaging", "cython_runtime"}


def loaded(code):
    """Return the names of the top-level modules outside the standard library that some code loads."""
    ask = f"import sys; before = set(sys.modules)\n{code}\nprint('loaded', *sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", ask], capture_output=True, text=True, check=True)
    names = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()[1:]}
    return {name for name in names if name not in sys.stdlib_module_names and not name.startswith("_")}


@pytest.mark.parametrize("code", ["import saddlescope; dir(saddlescope)", f"from saddlescope import {NAMED}"])
def test_naming_the_package_figures_entries_and_sweeps_loads_nothing(code):
    assert loaded(code) <= OURS


@pytest.mark.parametrize("words", [["list"], ["--help"], ["run", "--help"], ["--version"], ["lst"]])
def test_the_light_commands_load_only_what_a_terminal_needs(words):
    assert loaded(f"from saddlescope.cli import main; main({words!r})") <= TERMINAL


def test_counting_claims_by_kind_computes_nothing():
    assert loaded("from saddlescope.cli import main; main(['list', '--json'])") <= ARRAYS | {"jaxtyping"}


def test_showing_an_entry_computes_nothing(tmp_path):
    from saddlescope.reproduction import entry_names

    words = ["show", entry_names()[0], "--out", str(tmp_path)]
    assert loaded(f"from saddlescope.cli import main; main({words!r})") <= ARRAYS


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ("run grad", TERMINAL),
        ("show gradual-rank/figure-2 --out r", ARRAYS),
        ("run gradual-rank/figure-2 --set s", ARRAYS),
    ],
)
def test_completing_at_the_tab_key_computes_nothing(words, allowed):
    code = (
        "import os; from saddlescope.cli import main\n"
        f"words = 'saddlescope {words}'; number = str(len(words.split()) - 1)\n"
        "os.environ |= {'COMP_WORDS': words, 'COMP_CWORD': number, '_SADDLESCOPE_COMPLETE': 'complete_bash'}\n"
        "try:\n    main([])\nexcept SystemExit as left:\n    assert not left.code"
    )
    assert loaded(code) <= allowed


FLOW = """
import sys, jax, numpy as np, saddlescope as ss
from saddlescope.flow import DiagonalInit
with jax.enable_x64(True):
    start = DiagonalInit(np.ones(1), np.ones(1), log_scale=-4.0)
    ss.gradient_flow(lambda beta: (beta[0] - 1) ** 2, start, until=1.0, tolerance=1e-3)
"""
PREDICTION = "import sys, saddlescope as ss; ss.incremental_learning; ss.find_plateaus; ss.compare"
DRAWING = """
import sys, numpy as np
from saddlescope.plot import *
panel = Panel(x=Axis("x"), y=Axis("y"), marks=(Line(x=np.arange(3.), y=np.arange(3.)),))
drawn = Figure(name="f", title="", caption="", panels=(panel,))
draw_matplotlib(drawn), draw_plotly(drawn)
"""


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        (FLOW, {"diffrax", "pandas", "matplotlib", "scipy.optimize", "scipy.integrate", "scipy.sparse"}),
        (PREDICTION, {"diffrax", "xarray", "pandas", "cvxpy", "scipy.signal", "scipy.stats"}),
        (DRAWING, {"matplotlib.pyplot", "plotly", "jax", "torch"}),
    ],
    ids=["a flow without a level", "a prediction", "a drawing"],
)
def test_work_loads_nothing_heavy_but_its_own(code, heavy):
    command = [sys.executable, "-I", "-c", f"{code}\nprint(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not heavy & set(done.stdout.split())
