"""The numerics of a training run, set while it lasts and put back afterwards: determinism, threads, precision."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from saddlescope._shared.errors import InputError

Precision = Literal["float32", "tf32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "bf16")
"""Of matrix products and convolutions: float32 throughout; float32 rounded to TensorFloat-32 where the hardware has it;
bfloat16 with weights, sums and loss in float32."""


def available(device: torch.device | str) -> torch.device:
    """The device, once it is known to be there.

    Raises:
        InputError: a GPU that PyTorch does not see, or a name that is none of a device.
    """
    try:
        place = torch.device(device)
    except RuntimeError:
        raise InputError(f"device must be cpu or cuda, or cuda:1 and so on; got {str(device)!r}.") from None
    seen = torch.cuda.device_count()
    if place.type == "cuda" and (place.index or 0) >= seen:
        raise InputError(
            f"device must be there; got {str(device)!r}, and PyTorch sees {seen or 'no'} GPU{'s' if seen > 1 else ''}. "
            "Take device='cpu'."
        )
    return place


@contextlib.contextmanager
def reproducible(seed: int, threads: int | None, device: torch.device, precision: Precision) -> Iterator[None]:
    """Seeds the global random state, sets threads and precision, and asks for deterministic algorithms.

    Args:
        seed: of layers that draw random numbers.
        threads: of PyTorch on the processor; None leaves them as they are.
        device: that is trained on.
        precision: of matrix products and convolutions in float32; bfloat16 is `autocast`'s matter.

    Raises:
        InputError: a GPU without the setting that makes its matrix products reproducible.
    """
    on_cuda = device.type == "cuda"
    if on_cuda and "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
        raise InputError(
            "CUBLAS_WORKSPACE_CONFIG must be set for reproducible training on a GPU; got nothing. Set it to :4096:8 "
            "in the environment before Python starts."
        )
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory
    threads_before, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    convolutions = torch.backends.cudnn.allow_tf32  # on by default, unlike that of matrix products
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
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


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """The context in which the model runs forward."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def check_losses(losses: Float[Tensor, " steps"], made: int, *, checked: int, learning_rate: float, cure: str) -> int:
    """Refuses a loss that is not finite among those of the steps before `made`, of which `checked` were looked at.

    On a GPU this waits for it, so not to be called at every step there.

    Returns:
        `made`, the next call's `checked`.

    Raises:
        InputError: training diverges, with the learning rate, the loss and the step it was found at.
    """
    finite = torch.isfinite(losses[checked:made])
    if not bool(finite.all()):
        first = checked + int(finite.logical_not().int().argmax())
        raise InputError(
            f"learning_rate must be small enough for a finite loss; got {learning_rate!r}, and the loss is "
            f"{losses[first].item()} at step {first}. {cure}"
        )
    return made
