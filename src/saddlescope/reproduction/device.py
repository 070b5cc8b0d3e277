"""Device that an entry trains on, and the folder of code compiled for it."""

import hashlib
import os
import platform
from pathlib import Path

from saddlescope._shared.errors import InputError


def prepare_device(name: str) -> str:
    """Return a device by name, set up for reproducible training; call it before PyTorch computes anything there.

    Raises:
        InputError: a GPU is requested, but PyTorch found none.
    """
    import torch

    if name == "cuda":
        if not torch.cuda.is_available():
            raise InputError(
                "device='cuda' was requested, but PyTorch found no GPU. Take device=cpu, or a machine with a GPU and a "
                "build of PyTorch for it."
            )
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first product on the GPU
    return name


def compiled_code() -> dict[str, str]:
    """Return environment variables by which JAX keeps compiled code in this user's cache folder; none without one."""
    from platformdirs import user_cache_path

    try:
        folder = user_cache_path("saddlescope", appauthor=False, ensure_exists=True) / f"compiled-{_processor()}"
        folder.mkdir(exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: no home is known
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def _processor() -> str:
    """Return a digest of the processor's features: a home may be shared, and code compiled for others may not run."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    features = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return hashlib.sha256(repr([platform.machine(), features]).encode()).hexdigest()[:12]
