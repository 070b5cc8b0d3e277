"""The device that an entry trains on."""

import os

from saddlescope._shared.errors import InputError


def prepare_device(name: str) -> str:
    """A device by name, made ready for reproducible training; to be called before PyTorch computes anything there.

    Raises:
        InputError: a GPU is asked for, and there is none.
    """
    import torch

    if name == "cuda":
        if not torch.cuda.is_available():
            raise InputError(
                "device must be there; got 'cuda', and PyTorch sees no GPU. Take device=cpu, or a machine with a GPU "
                "and the PyTorch made for it."
            )
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first product on the GPU
    return name
