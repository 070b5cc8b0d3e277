import os
import pickle
import queue
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import parallel_tasks
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.process_pool import ProcessPool
from waiting import ended, until

_HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Make the cells of these tests importable in worker processes."""
    monkeypatch.setenv("PYTHONPATH", str(_HERE))


def _cells(context: RunContext, processes: int, *numbers: float):
    return context.cells({"n": numbers}, parallel_tasks.square, processes=processes)


@pytest.mark.parametrize("processes", [1, 2])
def test_cells_come_in_their_order_wherever_they_are_made(tmp_path, processes):
    reported = []
    context = RunContext(tmp_path, lambda fraction, note: reported.append((fraction, note)))
    numbers = (3, 1, 2, *range(4, 10), 0.1234567, 0.1234568)  # the last two are tasks of their own
    made = _cells(context, processes, *numbers)
    assert [float(part.square) for part in made] == [n**2 for n in numbers]
    assert [int(part.cell) for part in made] == list(range(len(numbers)))
    assert all((int(part.process) == os.getpid()) == (processes == 1) for part in made)
    assert len({int(part.process) for part in made}) <= 2, "a process makes one cell after another"
    halves = [(fraction, note) for fraction, note in reported if "half of" in note]
    assert sorted(note for _, note in halves) == sorted(f"n {n}, half of {n}" for n in numbers)
    assert all(0 < fraction < 1 for fraction, _ in halves)


def test_finished_cells_are_not_made_again(tmp_path):
    first = _cells(RunContext(tmp_path), 2, 3)[0]
    reported = []
    again = _cells(RunContext(tmp_path, lambda *news: reported.append(news)), 2, 3, 1, 2)
    assert int(again[0].process) == int(first.process)
    assert [note for _, note in reported if "half of 3" in note] == []
    assert min(fraction for fraction, _ in reported) >= (1 + 0.5) / 3, "the finished cell counts"


@pytest.mark.parametrize("processes", [1, 2])
def test_what_a_cell_refuses_is_said_here_and_the_finished_ones_stay(tmp_path, processes):
    context = RunContext(tmp_path)
    _cells(context, 1, 2)
    with pytest.raises(InputError, match=r"^n must be at least 1; got 0\.$"):
        _cells(context, processes, 2, 0, -1)
    assert [path.name for path in tmp_path.glob("*.nc")] == ["n=2.nc"]
    _all_end(tmp_path)  # the other process as well


def test_a_cell_that_fails_or_is_killed_is_no_result(tmp_path):
    with pytest.raises(RuntimeError, match="n -2 failed, ZeroDivisionError"):
        _cells(RunContext(tmp_path), 2, -2, -1)
    with pytest.raises(InputError, match=r"the process of n -3 was killed by signal 9\. Rerun the same command"):
        _cells(RunContext(tmp_path), 2, -3, -1)
    assert not list(tmp_path.glob("*.nc"))
    _all_end(tmp_path)


def test_processes_end_with_their_parent_however_it_ends(tmp_path):
    program = (
        "import sys; from pathlib import Path; import parallel_tasks\n"
        "from saddlescope.reproduction.context import RunContext\n"
        "RunContext(Path(sys.argv[1])).cells({'n': (-1, -4)}, parallel_tasks.square, processes=2)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) as parent:
        until(lambda: len(list(tmp_path.glob("*.process"))) == 2)
        parent.send_signal(signal.SIGKILL)
    _all_end(tmp_path)


def test_a_task_for_a_process_that_was_killed_a_moment_ago_goes_to_another():
    news = queue.Queue()
    with closing(ProcessPool(1, lambda *of: news.put(of))) as pool:

        def run(name):
            pool.submit(name, parallel_tasks.process_id)
            while (heard := news.get(timeout=60))[1] == "begun":
                pass
            return heard[1:]

        event, process = run("0")
        for again in range(10):
            os.kill(process, signal.SIGKILL)
            until(lambda killed=process: ended(killed))
            event, process = run(f"{again + 1}")
            assert event == "done"


def test_a_process_that_reports_to_nobody_ends_and_calls_it_no_failure(tmp_path):
    """Detect the end of the parent by a report within the task."""
    task = parallel_tasks.Reports(tmp_path / "failed")
    frame = pickle.dumps(task)
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "saddlescope.reproduction.process_pool"], stdin=subprocess.PIPE, stdout=write
    ) as process:
        os.close(write)
        os.close(read)
        process.stdin.write(len(frame).to_bytes(8) + frame)
        process.stdin.flush()
        assert process.wait(60) == 1
    assert not (tmp_path / "failed").exists()


def _all_end(folder: Path) -> None:
    """Wait for the end of all processes that left their number."""
    until(lambda: all(ended(int(file.stem)) for file in folder.glob("*.process")))
