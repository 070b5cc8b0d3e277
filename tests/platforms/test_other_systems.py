"""Windows and macOS, imitated by sitecustomize.py: what it hides and refuses, and the store under it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def on(system, *words, folder):
    """Run Python on another system."""
    there = os.environ | {"SADDLESCOPE_LIKE": system, "PYTHONPATH": str(HERE)}
    return subprocess.run([sys.executable, *words], cwd=folder, env=there, capture_output=True, text=True, check=False)


IN_PACKAGE = "exec({code!r}, {{'__package__': 'saddlescope.store'}})"
OPEN = "from pathlib import Path; file = open('a', 'w'); "


@pytest.mark.parametrize(
    ("system", "code", "error"),
    [
        ("windows", IN_PACKAGE.format(code="import os; os.fsync(os.open('file', 0))"), "Bad file descriptor"),
        ("windows", OPEN + "Path('a').replace('b')", "has it open"),
        ("windows", OPEN + "Path('a').unlink()", "has it open"),
        ("windows", OPEN + "Path('file').replace('a')", "has it open"),
        ("windows", "import os; os.mkdir('a'); file = open('a/b', 'w'); os.rename('a', 'c')", "has it open"),
        ("windows", OPEN + "import subprocess, sys; subprocess.run([sys.executable, '-c', "
         "'import os; os.remove(\"a\")'], env={}, check=True)", "has it open"),
        ("windows", "import os; open('a', 'w').close(); os.rename('a', 'file')", "File exists"),
        ("windows", "open('a:b', 'w')", "Invalid argument"),
        ("windows", "open('a', 'w').write('α')", "'charmap' codec can't encode"),
        ("windows", "print('α')", "'charmap' codec can't encode"),
        ("macos", "open('FILE', 'w')", "FILE and file are one file on macos"),
        ("macos", "print(open('FILE').read()); import multiprocessing; raise Exception(multiprocessing.get_start_method"
         "())", "Exception: spawn"),
    ],
)  # fmt: skip
def test_the_imitation_refuses(system, code, error, tmp_path):
    (tmp_path / "file").write_text("content")
    done = on(system, "-c", code, folder=tmp_path)
    assert done.returncode == 1
    assert error in done.stderr


READ_AND_WRITTEN = """
import threading
from pathlib import Path
from saddlescope._shared.atomic_files import write_atomically

reader = open("file")
threading.Timer(0.2, reader.close).start()
write_atomically(Path("file"), b"new")
"""


def test_a_write_waits_until_a_reader_has_closed_the_file(tmp_path):
    (tmp_path / "file").write_text("content")
    done = on("windows", "-c", READ_AND_WRITTEN, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "new"


def test_the_store_on_windows():
    """Of `make test-platforms`, the files that are written, locked and replaced."""
    store = [f"tests/store/test_{name}.py" for name in ("netcdf", "record_log", "run_folder")]
    paths = [*store, "tests/_shared/test_atomic_files.py", "tests/_shared/test_replaced_folder.py"]
    words = ["-q", "-p", "no:cacheprovider", "-k", "not read_back_as_another and not values_that_do_not_fit"]
    done = on("windows", "-m", "pytest", *words, *paths, folder=HERE.parents[1])
    assert done.returncode == 0, done.stdout
