"""Errors whose cause is outside the program: memory, the range of numbers, settings in the environment."""

import os
import subprocess
import sys
import traceback
from pathlib import PurePath

from saddlescope._shared.errors import InputError
from saddlescope._shared.memory_limit import exhausted


def outside_cause(error: BaseException) -> InputError | None:
    """Return the sentence for an error whose cause is outside the program; None for any other."""
    return exhausted(error) or _refused_setting(error)


def require_xla_flags() -> None:
    """Raise InputError if XLA_FLAGS cannot be read: XLA would abort the process, which no handler sees.

    Raises:
        InputError: XLA refuses the flags.
    """
    if not os.environ.get("XLA_FLAGS"):
        return
    client = "import jaxlib.xla_client as client; client.make_cpu_client()"
    probe = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-P", "-c", client], capture_output=True, text=True, errors="replace", check=False
    )
    said = [line.partition("] ")[2] for line in probe.stderr.splitlines() if "XLA_FLAGS" in line]
    if probe.returncode and said:
        raise _refused("XLA_FLAGS", said[-1])


def _refused_setting(error: BaseException) -> InputError | None:
    if isinstance(error, ValueError) and _raised_by_settings(error):
        message = str(error)
        named = [name for name in os.environ if name.startswith("JAX_") and name.lower() in message.lower()]
        return _refused(named[0], message.splitlines()[0]) if named else None
    if isinstance(error, AssertionError | RuntimeError) and "jax" in sys.modules:  # raised by the first computation
        platforms = next((name for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME") if os.environ.get(name)), None)
        return None if platforms is None or _has_devices() else _refused(platforms, "it finds no such device")
    return None


def _has_devices() -> bool:
    try:
        return bool(sys.modules["jax"].devices())
    except (AssertionError, RuntimeError):
        return False


def _raised_by_settings(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and PurePath(frames[-1].filename).parts[-3:] == ("jax", "_src", "config.py")


def _refused(name: str, reason: str) -> InputError:
    return InputError(
        f"JAX refuses the environment variable {name}={os.environ.get(name)!r} ({reason.rstrip('.')[:200]}). "
        f"Correct it, or run `unset {name}`."
    )
