"""Device that an entry trains on."""

import os

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
