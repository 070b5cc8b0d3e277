"""Adapters on disk, in the formats of three programs, written atomically.

    peft        adapter_model.safetensors and adapter_config.json; base_model.model.MODULE.lora_A.weight
    diffusers   pytorch_lora_weights.safetensors with the settings in its header; PART.MODULE.lora_A.weight
    kohya       FOLDER.safetensors with an alpha per module; lora_PART_MODULE.lora_down.weight, with _ for each dot

In the first two alpha is the rank, so the update is B A: programs that ignore alpha apply the same update. In the last
all modules have one alpha, since Diffusers misreads several.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope._shared.replaced_folder import recover_folder, replaced_folder
from saddlescope.ranks.checkpoints.adapted import KOHYA
from saddlescope.ranks.checkpoints.adapter_files import CONFIG, INNER, LORA_OF_DIFFUSERS, PREFIX, WEIGHTS, AdapterFile
from saddlescope.ranks.checkpoints.adapter_updates import STORED_NAMES
from saddlescope.ranks.checkpoints.files import unambiguous
from saddlescope.ranks.lora.pipeline_parts import KOHYA_PARTS

Format: TypeAlias = Literal["peft", "diffusers", "kohya"]
_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, eq=False)
class LoraFactors:
    """Adapter of one linear layer: x is mapped to x W^T + x A^T B^T; or of an embedding, whose inputs are its entries.

    Attributes:
        A: lora_A, (rank, inputs); of a convolution (rank, inputs, *kernel); of experts (experts * rank, inputs).
        B: lora_B, (outputs, rank); of a convolution (outputs, rank, 1, ...); of experts (outputs, rank * experts), with
            the experts last.
        embedding: True for an embedding.
        experts: number of experts, of a parameter with a matrix for each; 0 for a layer.
    """

    A: Float[Tensor, "rank inputs ..."]
    B: Float[Tensor, "outputs rank ..."]
    embedding: bool = False
    experts: int = 0

    @property
    def rank(self) -> int:
        """Rank of the update, of each expert."""
        return self.A.shape[0] // max(1, self.experts)

    def parts(self, form: Format, alpha: int) -> dict[str, Tensor]:
        """Return tensors by the names that a format gives them in their module; `alpha` is that of all modules."""
        names, kind = STORED_NAMES[form], "embedding_" if self.embedding else ""
        if "alpha" not in names:
            return {names[f"{kind}down"]: self.A, names[f"{kind}up"]: self.B}
        size = math.sqrt(self.rank / alpha)
        return {names["down"]: size * self.A, names["up"]: size * self.B, names["alpha"]: torch.tensor(float(alpha))}


def with_both_projections(factors: Mapping[str, LoraFactors], attention: Iterable[str]) -> dict[str, LoraFactors]:
    """Return factors with those of both projections of some `torch.nn.MultiheadAttention`, of one rank, by zeros.

    PEFT adapts in_proj_weight, under the name of the module, and out_proj together.
    """
    found = dict(factors)
    for name in attention:
        own = {name: found.get(name), name + INNER: found.get(name + INNER)}
        given = [one for one in own.values() if one is not None]
        rank = max((one.rank for one in given), default=0)
        for (key, one), size in zip(own.items(), (3, 1), strict=True):
            if one is None and given:
                width = given[0].A.shape[1]
                one = LoraFactors(torch.zeros(0, width), torch.zeros(size * width, 0))
            if one is not None:
                more = rank - one.rank
                found[key] = LoraFactors(nn.functional.pad(one.A, (0, 0, 0, more)), nn.functional.pad(one.B, (0, more)))
    return found


def require_format(given: str) -> Format:
    """Return a format; raise InputError for one that does not exist."""
    for form in get_args(Format):
        if form == given:
            return form
    raise InputError(f"format must be {', '.join(get_args(Format))}; got {given!r}.")


def require_type(given: str | None) -> torch.dtype | None:
    """Return the type of stored numbers; raise InputError for another one."""
    if given is not None and given not in _TYPES:
        raise InputError(f"dtype must be {', '.join(_TYPES)}; got {given!r}.")
    return None if given is None else _TYPES[given]


def single_precision(path: object, name: str, factors: LoraFactors, kind: torch.dtype) -> LoraFactors:
    """Return factors in float32.

    Raises:
        InputError: they are 0, or the type in which they are stored does not hold them to its rounding.
    """
    for side in (factors.A, factors.B):
        unit = side / side.abs().max()  # NaN where nothing is held
        error = (side.to(kind) - side) / side.abs().max()
        if not error.norm() <= torch.finfo(kind).eps * unit.norm():
            raise InputError(
                f"{path}: {name} must have a change whose factors {str(kind).removeprefix('torch.')} can hold; got "
                "larger or smaller ones. Choose another dtype."
            )
    return replace(factors, A=factors.A.float(), B=factors.B.float())


def adapter_path(folder: Path, form: Format) -> Path:
    """Return the path to load an adapter from: its folder, or its only file."""
    if form == "peft":
        return folder
    return folder / (LORA_OF_DIFFUSERS if form == "diffusers" else f"{folder.absolute().name}.safetensors")


def refuse_foreign(folder: Path) -> None:
    """Raise InputError for a folder that holds anything but an adapter; undo a killed replacement."""
    recover_folder(folder)
    held = list(folder.iterdir()) if folder.exists() else []
    own = {CONFIG, "README.md", *(adapter_path(folder, form).name for form in ("diffusers", "kohya")), WEIGHTS[0]}
    foreign = any(one.name not in own or not one.is_file() for one in held)
    if held and (foreign or not any(one.name == CONFIG or _is_adapter(one) for one in held)):
        raise InputError(
            f"{folder} must be a new folder or an adapter; got something else. Name a new folder with --out."
        )


def _is_adapter(file: Path) -> bool:
    try:
        return file.suffix == ".safetensors" and AdapterFile.open(file) is not None
    except InputError:
        return False


def write_adapter(
    folder: Path,
    factors: Mapping[str, LoraFactors],
    *,
    form: Format = "peft",
    base: str | None,
    transposed: bool,
    task: str | None,
    modules: Sequence[str] | None = None,
    whole: Mapping[str, Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write an adapter; an existing one is replaced at the end.

    Args:
        folder: folder of the adapter.
        factors: factors by the name of the module in the model, or of the parameter of experts; in the formats of
            Diffusers and kohya after the name of its part of the pipeline, "unet.conv_in", or as kohya stores it.
        form: format.
        base: name or path of the base model, for PEFT.
        transposed: True if the modules store their weights as (inputs, outputs), as in GPT-2.
        task: PEFT's type of the task, such as "CAUSAL_LM".
        modules: names of all modules of the model; None if they are unknown.
        whole: weights that replace those of the base, by the names of the parameters: those of PEFT's
            `modules_to_save`, those of the adapted layers themselves, and biases alone.
        dtype: type of the stored numbers; None stores factors in float32, and whole weights in their own type.

    Raises:
        InputError: the folder holds something else, or cannot be written; two modules have one name in the format.
    """
    from safetensors.torch import save_file

    refuse_foreign(folder)
    whole = whole or {}
    usual = _usual(one.rank for one in factors.values())
    parts = {name: one.parts(form, usual) for name, one in factors.items()}
    stems = {name: _stored_module(form, module, factors) for name, module in _modules(factors).items()}
    stored = unambiguous(folder, ((f"{stems[name]}.{part}", name) for name in factors for part in parts[name]))
    tensors = {}
    for key, name in stored.items():
        part = parts[name][key.removeprefix(f"{stems[name]}.")]
        tensors[key] = part.to(dtype if dtype and part.ndim else torch.float32).contiguous()  # alpha may be no half
    for name, tensor in whole.items():
        module, _, own = name.rpartition(".")
        stored_name = f"{module}.base_layer.{own}" if module in factors else name
        tensors[PREFIX + stored_name] = tensor.to(dtype or tensor.dtype).clone().contiguous()
    with written_folder(folder) as new:
        file = new / (WEIGHTS[0] if form == "peft" else adapter_path(folder, form).name)
        save_file(tensors, file, metadata={"format": "pt"} | _header(form, factors))
        if form == "peft":
            config = {"base_model_name_or_path": base, "fan_in_fan_out": transposed, "task_type": task}
            config |= _peft_config(factors, whole, modules)
            (new / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


@contextmanager
def written_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder that replaces another at the end, when its files are on the disk.

    Raises:
        InputError: it cannot be written.
    """
    from safetensors import SafetensorError

    try:
        with replaced_folder(folder) as new:
            yield new
            for file in new.iterdir():
                with file.open("r+b") as written:  # Windows writes no file to disk that is open for reading alone
                    os.fsync(written.fileno())
    except (OSError, SafetensorError) as error:  # safetensors raises its own error on a full disk
        raise InputError(
            f"Cannot write {folder}: {getattr(error, 'strerror', None) or error}. Free disk space, or name another "
            "folder with --out."
        ) from error


def _stored_module(form: Format, name: str, names: Iterable[str]) -> str:
    if form == "peft":
        return PREFIX + name
    if form == "diffusers" or KOHYA.match(name):
        return name
    part, _, own = name.partition(".")
    first = part == "text_encoder" and any(other.startswith("text_encoder_2.") for other in names)
    return f"{KOHYA_PARTS[part]}{'1' if first else ''}_{own.replace('.', '_')}"


def _modules(factors: Mapping[str, LoraFactors]) -> dict[str, str]:
    """Return the modules of adapters; PEFT wraps a module with experts once for each parameter, the last outermost."""
    found: dict[str, str] = {}
    for name, one in reversed([*factors.items()]):
        module = name.rpartition(".")[0] if one.experts else name
        while module in found.values():
            module += ".base_layer"
        found[name] = module
    return found


def _usual(ranks: Iterable[int]) -> int:
    """Return the most frequent rank."""
    return Counter(ranks).most_common(1)[0][0]


def _header(form: Format, factors: Mapping[str, LoraFactors]) -> dict[str, str]:
    """Return the settings in the header of the file."""
    if form == "peft":
        return {}
    ranks = {name: one.rank for name, one in factors.items()}
    if form == "kohya":
        alpha = str(_usual(ranks.values()))
        stated = alpha if len(set(ranks.values())) == 1 else "Dynamic"
        return {"ss_network_module": "networks.lora", "ss_network_dim": stated, "ss_network_alpha": alpha}
    parts: dict[str, dict[str, int]] = {}
    for name, rank in ranks.items():
        part, _, own = name.partition(".")
        parts.setdefault(part, {})[own] = rank
    settings = {f"{part}.{key}": one for part, own in parts.items() for key, one in peft_ranks(own).items()}
    return {"lora_adapter_metadata": json.dumps(settings, indent=2, sort_keys=True)}


def _peft_config(
    factors: Mapping[str, LoraFactors], whole: Mapping[str, Tensor], modules: Sequence[str] | None
) -> dict[str, Any]:
    experts = [name for name, one in factors.items() if one.experts]
    saved = {name.rpartition(".")[0] for name in whole if not name.endswith(".bias")} - factors.keys()
    biases = any(name.endswith(".bias") and name.rpartition(".")[0] not in saved for name in whole)
    config = {
        "peft_type": "LORA",
        "inference_mode": True,
        **peft_ranks({name: one.rank for name, one in factors.items() if not name.endswith(INNER)}, modules, experts),
        "modules_to_save": sorted(saved) or None,
        "lora_dropout": 0.0,
        "bias": "all" if biases else "none",
    }
    return config | ({"target_parameters": experts} if experts else {})


def peft_ranks(
    ranks: Mapping[str, int], modules: Sequence[str] | None = None, experts: Sequence[str] = ()
) -> dict[str, Any]:
    """Return PEFT's settings of ranks.

    Args:
        ranks: ranks by name.
        modules: names of all modules of the model; None if they are unknown.
        experts: those of the names that are of parameters.
    """
    usual = _usual(ranks.values())
    # PEFT finds a name at the end of others, too: where one ends in another, names are anchored.
    ambiguous = modules is None or any(
        other != name and other.endswith(f".{name}") for name in ranks for other in modules
    )
    keys = {name: f"^{re.escape(name)}" if ambiguous else name for name in ranks}
    pattern = {keys[name]: ranks[name] for name in ranks if ranks[name] != usual}
    targets = sorted(name for name in ranks if name not in experts)
    return {
        "r": usual,
        "lora_alpha": usual,  # scaling alpha / r = 1
        "rank_pattern": pattern,
        "alpha_pattern": pattern,
        "target_modules": "|".join(map(re.escape, targets)) if ambiguous and targets else targets,
    }
