"""Compiled code that outlives its process: JAX's persistent cache, switched on by one variable of the environment."""

import os
import sys

VARIABLE = "SADDLESCOPE_COMPILED"
"""Folder in which compiled code is kept, read when saddlescope is imported; unset or empty: nothing is kept."""

_ALL = {  # JAX keeps only code that took a second to compile: a flow consists of smaller pieces
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def keep_compiled_code() -> None:
    """Make JAX keep all compiled code in the folder that the environment names, for this process and those it starts.

    What the environment or the program has set for JAX itself stays. JAX is not loaded.
    """
    if not (folder := os.environ.get(VARIABLE)):
        return
    from pathlib import Path  # it would take as long to load as this package

    settings = {"jax_compilation_cache_dir": str(Path(folder).expanduser().absolute())} | _ALL
    if "jax" not in sys.modules:
        for name, value in settings.items():
            os.environ.setdefault(name.upper(), str(value))
        return
    import jax

    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        for name, value in settings.items():
            jax.config.update(name, value)
