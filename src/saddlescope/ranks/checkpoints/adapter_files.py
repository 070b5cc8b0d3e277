"""Adapter files: low-rank factors, as PEFT, Diffusers and kohya's scripts store them, and other adapters of PEFT.

    PEFT            a folder with adapter_config.json; MODULE.lora_A.weight, MODULE.lora_B.weight
    Diffusers       MODULE.lora_A.weight, or MODULE.lora.down.weight
    kohya           MODULE.lora_down.weight, MODULE.lora_up.weight, MODULE.alpha

An update is scale * B A. The scale is alpha / rank, or alpha / sqrt(rank) in rsLoRA; alpha is in the configuration of
PEFT, or beside the factors. Without either, alpha is the rank.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.files import Checkpoint, read_json, require_finite, unambiguous
from saddlescope.ranks.checkpoints.tensor_files import first_few

CONFIG = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin", "pytorch_lora_weights.safetensors")
_DOWN = ("lora_A", "lora_embedding_A", "lora_down", "lora.down")
_UP = ("lora_B", "lora_embedding_B", "lora_up", "lora.up")
_PARTS = (*_DOWN, *_UP, "lora_magnitude_vector", "dora_scale", "alpha")
_NAME = re.compile(rf"(?P<module>.+?)\.(?P<part>{'|'.join(map(re.escape, _PARTS))})(\.default)?(\.weight)?")
_PREFIX = "base_model.model."
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq")  # initialisations that subtract the first factors from the base


@dataclass(frozen=True)
class LowRank:
    """Stored factors of the update of one module.

    Attributes:
        down, up: names of A, (rank, inputs), and B, (outputs, rank).
        scale: factor of B A.
        magnitude: name of DoRA's lengths of the rows of the weight, or None.
        embedding: True if B A is the transpose of the update of an embedding.
    """

    down: str
    up: str
    scale: float
    magnitude: str | None
    embedding: bool


@dataclass(frozen=True, eq=False)
class AdapterFile:
    """Adapter on disk.

    Attributes:
        path: the file or folder, as given.
        config: content of adapter_config.json; empty without one.
        stored: its tensors.
    """

    path: Path
    config: Mapping[str, Any]
    stored: Checkpoint

    @classmethod
    def open(cls, path: str | Path) -> "AdapterFile | None":
        """Open an adapter; None for anything else, such as a checkpoint.

        Raises:
            InputError: the folder has the configuration of an adapter, but no weights, or they cannot be read.
        """
        path = Path(path)
        folder = path if path.is_dir() else path.parent
        file = path
        if path.is_dir():
            if not (path / CONFIG).is_file() and not (path / _WEIGHTS[-1]).is_file():
                return None
            found = [path / name for name in _WEIGHTS if (path / name).is_file()]
            if not found:
                raise InputError(f"{path} must hold {_WEIGHTS[0]}; got {CONFIG} alone. Fetch the adapter again.")
            file = found[0]
        elif not path.is_file():
            return None
        stored = Checkpoint.open(file)
        if path.is_file() and not any(_NAME.fullmatch(name) for name in stored.tensors):
            return None
        beside = folder / CONFIG
        config = read_json(beside) if beside.is_file() and file.name in _WEIGHTS else {}
        return cls(path, config, stored)

    @property
    def method(self) -> str:
        """PEFT's name of the method."""
        return str(self.config.get("peft_type", "LORA"))

    @cached_property
    def low_rank(self) -> dict[str, LowRank]:
        """Factors by the name of the module.

        Raises:
            InputError: factors without their partner, or settings of LoRA with which the update is not scale * B A.
        """
        parts: dict[str, dict[str, str]] = {}
        matches = [found for name in self.stored.tensors if (found := _NAME.fullmatch(name)) is not None]
        unambiguous(self.path, ((f"{m['module'].removeprefix(_PREFIX)}.{m['part']}", m.string) for m in matches))
        for found in matches:
            parts.setdefault(found["module"], {})[found["part"]] = found.string
        factors = {}
        for module, own in parts.items():
            down, up = (next((own[part] for part in side if part in own), None) for side in (_DOWN, _UP))
            if down is None or up is None:
                raise InputError(f"{self.path} must hold both factors of {module}; got {first_few(own.values())}.")
            magnitude = own.get("lora_magnitude_vector", own.get("dora_scale"))
            embedding = "lora_embedding_A" in own
            name = module.removeprefix(_PREFIX)
            factors[name] = LowRank(down, up, self._scale(name, down, own.get("alpha")), magnitude, embedding)
        return factors

    def _scale(self, module: str, down: str, alpha: str | None) -> float:
        rank = self.stored.tensors[down].shape[0]
        if alpha is not None:
            return float(self.stored.read([alpha])[alpha]) / rank
        if not self.config:
            return 1.0
        stated = _of_module(self.config.get("rank_pattern"), module, self.config.get("r"))
        given = _of_module(self.config.get("alpha_pattern"), module, self.config.get("lora_alpha"))
        if stated != rank or not isinstance(given, int | float):
            raise InputError(
                f"{self.path} must have rank and lora_alpha of {module} in {CONFIG}; got rank {stated!r} for factors "
                f"of rank {rank}, and lora_alpha {given!r}."
            )
        return given / (math.sqrt(rank) if self.config.get("use_rslora") else rank)

    @property
    def scale_is_stated(self) -> bool:
        """True if the file or its configuration has alpha."""
        return bool(self.config) or any(name.endswith(".alpha") for name in self.stored.tensors)

    def require_own_update(self) -> None:
        """Raise InputError for an adapter that needs its base model.

        Raises:
            InputError: the adapter is not LoRA, or DoRA, whose update depends on the weights of the base.
        """
        if self.method != "LORA":
            raise InputError(
                f"{self.path} must be LoRA to be measured without its base; got {self.method}. Pass the base first."
            )
        if self.config.get("use_dora") or any(one.magnitude for one in self.low_rank.values()):
            raise InputError(
                f"{self.path} must be LoRA to be measured without its base; got DoRA, which scales the rows of the "
                "weights of the base. Pass the base first."
            )

    def require_mergeable(self) -> None:
        """Raise InputError for an adapter whose base is not the model on disk."""
        start = self.config.get("init_lora_weights")
        if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
            raise InputError(
                f"{self.path} must be an adapter of the stored base; got init_lora_weights={start!r}, which changes "
                "the base before training. Convert it by path_initial_model_for_weight_conversion= of save_pretrained."
            )

    def factors(self, module: str) -> tuple[Float[Tensor, "outputs rank"], Float[Tensor, "rank inputs"]]:
        """Read B and A of a module as matrices, in their stored types; those of a convolution are flattened.

        Raises:
            InputError: shapes that do not fit, or numbers that are not finite.
        """
        one = self.low_rank[module]
        read = self.stored.read([one.up, one.down])
        for name, tensor in read.items():
            require_finite(self.path, name, tensor)
        B, A = (read[name].flatten(1) for name in (one.up, one.down))
        if B.ndim != 2 or A.ndim != 2 or B.shape[1] != A.shape[0]:
            raise InputError(
                f"{self.path} must have factors B A of {module}; got shapes {tuple(read[one.up].shape)} and "
                f"{tuple(read[one.down].shape)}."
            )
        return B, A

    def update(self, module: str) -> Float[Tensor, "outputs inputs"]:
        """Return scale * B A in float64, as (outputs, inputs); for an embedding as its weight."""
        one = self.low_rank[module]
        B, A = self.factors(module)
        delta = one.scale * (B.double() @ A.double())
        return delta.T if one.embedding else delta

    def other_tensors(self) -> dict[str, str]:
        """Return stored names by the names of parameters that the adapter replaces: PEFT's `modules_to_save`."""
        others = [name for name in self.stored.tensors if _NAME.fullmatch(name) is None]
        return unambiguous(self.path, ((_parameter(name), name) for name in others))


def _parameter(stored: str) -> str:
    """Return the name in the base of a parameter that an adapter replaces."""
    return stored.removeprefix(_PREFIX).replace(".modules_to_save.default.", ".").replace(".base_layer.", ".")


def _of_module(patterns: object, module: str, default: object) -> object:
    """Return the value of the first pattern that PEFT finds in the name of a module."""
    if isinstance(patterns, dict):
        for pattern, value in patterns.items():
            try:
                if re.match(rf"(.*\.)?({pattern})$", module):
                    return value
            except re.error:
                continue
    return default


def merged_rows(weight: Tensor, update: Tensor, magnitude: Tensor) -> Tensor:
    """Return DoRA's weight, (outputs, inputs): rows of weight + update, scaled to the lengths in `magnitude`."""
    rows = weight + update
    return rows * (magnitude.double().flatten() / torch.linalg.norm(rows, dim=1))[:, None]
