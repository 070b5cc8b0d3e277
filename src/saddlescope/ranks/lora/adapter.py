"""Adapters on disk in the format of PEFT: a configuration and a safetensors file, written atomically."""

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope._shared.replaced_folder import recover_folder, replaced_folder

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True, eq=False)
class LoraFactors:
    """Adapter of one linear layer: x is mapped to x W^T + x A^T B^T; or of an embedding, whose inputs are its entries.

    Attributes:
        A: lora_A, (rank, inputs).
        B: lora_B, (outputs, rank).
        embedding: True for an embedding.
    """

    A: Float[Tensor, "rank inputs"]
    B: Float[Tensor, "outputs rank"]
    embedding: bool = False


def refuse_foreign(folder: Path) -> None:
    """Raise InputError for a folder that holds something other than an adapter; undo a killed replacement."""
    recover_folder(folder)
    if folder.exists() and any(folder.iterdir()) and not (folder / _CONFIG).exists():
        raise InputError(
            f"{folder} must be a new folder or an adapter; got something else. Name a new folder with --out."
        )


def write_adapter(
    folder: Path,
    factors: Mapping[str, LoraFactors],
    *,
    modules: Sequence[str],
    base: str,
    transposed: bool,
    whole: Mapping[str, Tensor] | None = None,
    task: str | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write an adapter; an existing one is replaced at the end.

    Args:
        folder: folder of the adapter.
        factors: factors by the name of the module in the model.
        modules: names of all modules of the model.
        base: name or path of the base model.
        transposed: True if the modules store their weights as (inputs, outputs), as in GPT-2.
        whole: weights that replace those of the base, by the names of the parameters; PEFT's `modules_to_save`.
        task: PEFT's type of the task, such as "CAUSAL_LM".
        dtype: type of the stored numbers; None stores factors in float32, and whole weights in their own type.

    Raises:
        InputError: the folder holds something else, or cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    refuse_foreign(folder)
    ranks = {name: one.A.shape[0] for name, one in factors.items()}
    usual = Counter(ranks.values()).most_common(1)[0][0]
    # PEFT finds a name at the end of others, too: where one ends in another, names are anchored.
    ambiguous = any(other != name and other.endswith(f".{name}") for name in ranks for other in modules)
    keys = {name: f"^{re.escape(name)}" if ambiguous else name for name in ranks}
    pattern = {keys[name]: ranks[name] for name in ranks if ranks[name] != usual}
    whole = whole or {}
    config = {
        "peft_type": "LORA",
        "task_type": task,
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": usual,
        "lora_alpha": usual,  # scaling alpha / r = 1
        "rank_pattern": pattern,
        "alpha_pattern": pattern,
        "target_modules": "|".join(re.escape(name) for name in sorted(ranks)) if ambiguous else sorted(ranks),
        "modules_to_save": sorted({name.rpartition(".")[0] for name in whole}) or None,
        "fan_in_fan_out": transposed,
        "lora_dropout": 0.0,
        "bias": "none",
    }
    tensors = {}
    for name, one in factors.items():
        a, b = ("lora_embedding_A", "lora_embedding_B") if one.embedding else ("lora_A.weight", "lora_B.weight")
        tensors[f"base_model.model.{name}.{a}"] = one.A.to(dtype or torch.float32).contiguous()
        tensors[f"base_model.model.{name}.{b}"] = one.B.to(dtype or torch.float32).contiguous()
    for name, tensor in whole.items():
        tensors[f"base_model.model.{name}"] = tensor.to(dtype or tensor.dtype).clone().contiguous()
    try:
        with replaced_folder(folder) as new:
            save_file(tensors, new / _WEIGHTS, metadata={"format": "pt"})
            (new / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
            for file in new.iterdir():
                with file.open("r+b") as written:  # Windows writes no file to disk that is open for reading alone
                    os.fsync(written.fileno())
    except (OSError, SafetensorError) as error:  # safetensors raises its own error on a full disk
        raise InputError(
            f"Cannot write {folder}: {getattr(error, 'strerror', None) or error}. Free disk space, or name another "
            "folder with --out."
        ) from error
