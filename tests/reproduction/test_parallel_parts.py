import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import parallel_tasks
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.parallel_parts import run_parallel_parts

_HERE = Path(__file__).parent
_PARTS = {f"part-{n}": parallel_tasks.Square(n) for n in (3, 1, 2)}


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Make the parts of these tests importable in worker processes."""
    monkeypatch.setenv("PYTHONPATH", str(_HERE))


@pytest.mark.parametrize("processes", [1, 2])
def test_parts_come_in_their_order_wherever_they_are_made(tmp_path, processes):
    reported = []
    context = RunContext(tmp_path, lambda fraction, note: reported.append((fraction, note)))
    made = run_parallel_parts(context, _PARTS, processes=processes)
    assert [int(part.square) for part in made] == [9, 1, 4]
    assert all((int(part.process) == os.getpid()) == (processes == 1) for part in made)
    halves = [(fraction, note) for fraction, note in reported if "half of" in note]
    assert sorted(note.rpartition(", ")[2] for _, note in halves) == ["half of 1", "half of 2", "half of 3"]
    assert all(0 < fraction < 1 for fraction, _ in halves)


def test_a_process_makes_one_part_after_another(tmp_path):
    parts = {f"part-{n}": parallel_tasks.Square(n) for n in range(1, 13)}
    made = run_parallel_parts(RunContext(tmp_path), parts, processes=2)
    assert [int(part.square) for part in made] == [n**2 for n in range(1, 13)]
    assert len({int(part.process) for part in made}) <= 2


def test_finished_parts_are_not_made_again(tmp_path):
    context = RunContext(tmp_path)
    first = run_parallel_parts(context, {"part-3": _PARTS["part-3"]}, processes=2)[0]
    reported = []
    again = run_parallel_parts(RunContext(tmp_path, lambda *news: reported.append(news)), _PARTS, processes=2)
    assert int(again[0].process) == int(first.process)
    assert [note for _, note in reported if "half of 3" in note] == []
    assert min(fraction for fraction, _ in reported) >= (1 + 0.5) / 3, "the finished part counts"


def test_what_a_part_refuses_is_said_here_and_the_finished_ones_stay(tmp_path):
    context = RunContext(tmp_path)
    with pytest.raises(InputError, match=r"^n must be at least 1; got 0\.$"):
        run_parallel_parts(context, {"part-2": _PARTS["part-2"], "other": parallel_tasks.refused}, processes=1)
    with pytest.raises(InputError, match=r"^n must be at least 1; got 0\.$"):
        run_parallel_parts(context, {"a": parallel_tasks.refused, "b": parallel_tasks.endless}, processes=2)
    assert context.has("part-2")
    assert _gone(tmp_path), "the other process ends as well"


def test_a_part_that_fails_or_is_killed_is_no_result(tmp_path):
    context = RunContext(tmp_path)
    with pytest.raises(RuntimeError, match="a failed, ZeroDivisionError"):
        run_parallel_parts(context, {"a": parallel_tasks.failing, "b": parallel_tasks.endless}, processes=2)
    with pytest.raises(InputError, match=r"the process of a was killed by signal 9\. Rerun the same command to resume"):
        run_parallel_parts(context, {"a": parallel_tasks.killed, "b": parallel_tasks.endless}, processes=2)
    assert not any(context.has(name) for name in "ab")
    assert _gone(tmp_path)


def test_processes_end_with_their_parent_however_it_ends(tmp_path):
    program = (
        "import sys; from pathlib import Path; import parallel_tasks\n"
        "from saddlescope.reproduction.context import RunContext\n"
        "from saddlescope.reproduction.parallel_parts import run_parallel_parts\n"
        "parts = {'a': parallel_tasks.endless, 'b': parallel_tasks.endless}\n"
        "run_parallel_parts(RunContext(Path(sys.argv[1])), parts, processes=2)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) as parent:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("*.process"))) < 2:
            assert time.monotonic() < deadline, "the parts never began"
            time.sleep(0.05)
        parent.send_signal(signal.SIGKILL)
    assert _gone(tmp_path)


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


def _gone(folder: Path) -> bool:
    """Return True once all processes that left their number have ended."""
    numbers = [int(file.stem) for file in folder.glob("*.process")]
    for _ in range(200):
        if not any(_runs(number) for number in numbers):
            return True
        time.sleep(0.05)
    return False


def _runs(number: int) -> bool:
    """Return True if a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
