"""In a notebook results are tables, figures pictures, and long calls have a bar."""

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.filterwarnings(
    "ignore:Jupyter is migrating its paths:DeprecationWarning",  # of jupyter_core, where none of its settings is made
)


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Run cells in a new kernel, in an empty folder."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(*cells, **named):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        client = NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}, **named
        )
        return client.execute()

    return run


def _shown(notebook, kind):
    """Return the outputs of cells of one kind: "text/plain", "text/html", "stderr" or that of widgets."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    if kind == "stderr":
        return [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    return [output.data[kind] for output in outputs if kind in output.get("data", {})]


def test_results_are_tables_figures_pictures_and_long_calls_have_bars(execute):
    done = execute(
        "import numpy as np, saddlescope as ss\n"
        "times = np.linspace(0.0, 10.0, 101)\n"
        "sizes = np.minimum(1e-8 * np.exp(4 * times), 1.0)[:, None]\n"
        "found = ss.find_stages(times, np.exp(-times), sizes, level=1e-4, time_unit='t')\n"
        "found",
        "ss.compare(found, found)",
        "from saddlescope.plot import Axis, Figure, Line, Panel\n"
        "panel = Panel(x=Axis('t'), y=Axis('loss'), marks=(Line(x=times, y=np.exp(-times)),))\n"
        "Figure(name='loss', title='A loss', caption='', panels=(panel,))",
        "with ss.show_progress('a <b>flow</b>') as report:\n"
        "    for k in range(2000):\n"
        "        report(k / 2000, f'step {k}')\n",
        "with ss.show_progress('it fails') as report:\n    report(0.5, '')\n    1 / 0",
        allow_errors=True,
    )
    lines = _shown(done, "text/plain")
    for name in ("Staircase(", "Comparison("):
        (line,) = (line for line in lines if line.startswith(name))
        assert len(line) < 400
    assert sum("<table" in page for page in _shown(done, "text/html")) >= 2
    assert _shown(done, "image/png")
    assert _shown(done, "application/vnd.jupyter.widget-view+json")
    assert not _shown(done, "stderr")
    (stored,) = done.metadata.widgets.values()
    widgets = [(one["model_name"], one["state"]) for one in stored["state"].values()]
    bars = [(state["value"], state["bar_style"]) for name, state in widgets if name == "FloatProgressModel"]
    assert sorted(bars) == [(0.5, "danger"), (1.0, "success")]
    labels = {state["value"] for name, state in widgets if name == "LabelModel"}
    assert {"a <b>flow</b>", "it fails"} < labels
    assert any(label.startswith("100%") and label.endswith("step 1999") for label in labels)
    assert [output.ename for cell in done.cells for output in cell.outputs if output.output_type == "error"] == [
        "ZeroDivisionError"
    ]


def test_without_widgets_there_are_lines_and_the_command_that_cures_it(execute):
    done = execute(
        "import sys\nsys.modules['ipywidgets'] = None\nimport saddlescope as ss\n"
        "with ss.show_progress('flow') as report:\n    report(0.5, 'half')"
    )
    assert not _shown(done, "application/vnd.jupyter.widget-view+json")
    text = "".join(_shown(done, "stderr"))
    assert "pip install ipywidgets" in text
    assert "flow:  50%  half\n" in text
