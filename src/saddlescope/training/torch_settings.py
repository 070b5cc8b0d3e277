"""PyTorch settings of a training run, restored afterwards: device, determinism, threads and precision."""

import contextlib
import os
import random
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch

from saddlescope._shared.errors import InputError

Precision = Literal["float32", "tf32", "bf16"]
"""Precision of matrix products and convolutions: float32 throughout; float32 rounded to TensorFloat-32 where the
hardware has it; bfloat16 with weights, sums and loss in float32."""


def available_device(device: torch.device | str) -> torch.device:
    """Return the device if PyTorch can use it.

    Raises:
        InputError: PyTorch does not find the GPU, or the name is not that of a device.
    """
    try:
        place = torch.device(device)
    except RuntimeError:
        raise InputError(f"device must be cpu or cuda, or cuda:1 and so on; got {str(device)!r}.") from None
    seen = torch.cuda.device_count()
    if place.type == "cuda" and (place.index or 0) >= seen:
        raise InputError(
            f"device={str(device)!r} was requested, but PyTorch found {seen or 'no'} GPU{'s' if seen > 1 else ''}. "
            "Pass device='cpu'."
        )
    return place


@contextlib.contextmanager
def reproducible(seed: int, threads: int | None, device: torch.device, precision: Precision) -> Iterator[None]:
    """Seed the random states of Python, NumPy and PyTorch, set threads and precision; use deterministic algorithms.

    Args:
        seed: seed of layers that draw random numbers.
        threads: number of PyTorch threads on the processor; None leaves it unchanged.
        device: device of the training.
        precision: of matrix products and convolutions in float32; `autocast` handles bfloat16.

    Raises:
        InputError: the setting that makes matrix products on a GPU reproducible is missing.
    """
    on_cuda = device.type == "cuda"
    if on_cuda and "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
        raise InputError(
            "CUBLAS_WORKSPACE_CONFIG must be set for reproducible training on a GPU; got nothing. Set it to :4096:8 "
            "in the environment before you start Python."
        )
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory
    threads_before, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    convolutions = torch.backends.cudnn.allow_tf32  # on by default, unlike that of matrix products
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  (that of layers that draw from it)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        torch.manual_seed(seed)
        try:
            torch.use_deterministic_algorithms(True)
            torch.set_num_threads(threads or threads_before)
            torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
            torch.backends.cudnn.allow_tf32 = precision == "tf32"
            memory.fill_uninitialized_memory = False  # no effect on results, only on time
            yield
        finally:
            torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
            torch.set_num_threads(threads_before)
            torch.set_float32_matmul_precision(products)
            torch.backends.cudnn.allow_tf32 = convolutions
            memory.fill_uninitialized_memory = fill
            np.random.set_state(numpy)  # noqa: NPY002
            random.setstate(python)


def has_bfloat16(device: str) -> bool:
    """Return True if a device multiplies matrices in bfloat16 itself; other processors take ten times as long."""
    capabilities = torch.cpu.get_capabilities()
    return device != "cpu" or any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Return the context of forward passes in this precision."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
