"""Trainable adapters with a rank per matrix: PEFT's LoRA around a model, from a table of ranks.

LoRA (Hu et al. 2022) trains W + s B A in place of W, with B (outputs x r) zero at first and A (r x inputs) random. Here
s is the same for all matrices, whatever their rank: PEFT's own s = alpha / r would slow down wide adapters.
"""

import copy
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope.ranks.attention.linear_weights import is_conv1d
from saddlescope.ranks.lora.adapter import peft_ranks

if TYPE_CHECKING:
    from peft import PeftModel


@validate_arguments
def with_adapters(model: nn.Module, ranks: Mapping[str, int], *, scale: float = 1.0, seed: int = 0) -> "PeftModel":
    """Return a copy of the model in which only adapters of these ranks are trainable.

    Args:
        model: a causal language model of Transformers; it is not changed.
        ranks: ranks by name of the matrix, such as those of `allocate_ranks`: the name of the parameter
            ("...c_fc.weight") or of its module. Matrices of rank 0 get no adapter.
        scale: s, above 0.
        seed: seed of the initial A; the random state is restored.

    Raises:
        InputError: no rank above 0, a name that the model lacks, or PEFT is not installed.
    """
    with MissingExtraError.named("with_adapters"):
        from peft import LoraConfig, get_peft_model

    modules = dict(model.named_modules())
    by_module = {name.removesuffix(".weight"): rank for name, rank in ranks.items() if rank > 0}
    if not by_module or min(ranks.values()) < 0:
        raise InputError(f"ranks must be at least 0, and one above 0; got {dict(ranks)!r}.")
    if absent := [name for name in by_module if name not in modules]:
        raise InputError(f"ranks must be of matrices of the model; got {absent[0]!r}, which it does not have.")
    transposed = {is_conv1d(modules[name]) for name in by_module}
    if len(transposed) > 1:
        raise InputError("ranks must be of matrices stored one way; got both nn.Linear's and Conv1D's.")
    settings = peft_ranks(by_module)
    settings["lora_alpha"] *= scale  # scaling alpha / r = s
    settings["alpha_pattern"] = {name: scale * rank for name, rank in settings["rank_pattern"].items()}
    config = LoraConfig(
        **settings, fan_in_fan_out=transposed.pop(), lora_dropout=0.0, bias="none", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # PEFT 0.21 asks for it by the name that Transformers 5 is about to drop.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        torch.manual_seed(seed)
        return get_peft_model(copy.deepcopy(model), config)  # type: ignore[arg-type,return-value]
