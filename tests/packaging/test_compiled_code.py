"""Compiled code that is kept: one variable of the environment, whichever package is imported first."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import {first}
import {second}
import jax
jax.jit(lambda x: x + 1)(1.0)
print(jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.parametrize("imports", [("jax", "saddlescope"), ("saddlescope", "jax")])
def test_compiled_code_is_kept_in_the_folder_that_the_environment_names(imports, tmp_path):
    folder = tmp_path / "kept"
    mine = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    command = [sys.executable, "-c", PROGRAM.format(first=imports[0], second=imports[1])]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env=mine | {"SADDLESCOPE_COMPILED": str(folder)}
    )
    assert run.stdout.strip() == str(folder)
    assert any(folder.iterdir())


def test_what_jax_itself_was_told_stays(monkeypatch):
    from saddlescope._shared.compiled_code import keep_compiled_code

    monkeypatch.setenv("SADDLESCOPE_COMPILED", "elsewhere")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "here")
    for name in ("MIN_COMPILE_TIME_SECS", "MIN_ENTRY_SIZE_BYTES"):
        monkeypatch.setenv(f"JAX_PERSISTENT_CACHE_{name}", "7")
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    keep_compiled_code()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "here"
