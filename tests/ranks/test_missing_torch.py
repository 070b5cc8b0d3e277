"""Without PyTorch the error names the extra to install."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["torch"] = None
from saddlescope._shared.errors import InputError
try:
    {statement}
except InputError as error:
    assert isinstance(error, ImportError)
    print(error)
"""


@pytest.mark.parametrize("statement", ["import saddlescope.ranks", "from saddlescope.ranks import RankTracker"])
def test_the_extra_is_named(statement):
    program = PROGRAM.format(statement=statement)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "saddlescope.ranks needs PyTorch: pip install 'saddlescope[torch]'; without it the tracker, spectra"
        " of checkpoints and LoRA cannot be used.\n"
    )
