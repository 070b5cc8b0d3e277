"""Adapter files of PEFT, Diffusers, kohya's scripts, LyCORIS, torchtune and mlx.

Every tensor of a file is a part of an update that `adapter_updates` knows, or a parameter that replaces one of the
base, or is reported by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.adapter_settings import AdapterSettings, header_settings, of_part
from saddlescope.ranks.checkpoints.adapter_updates import (
    UNKNOWN,
    ModuleUpdate,
    is_decisive,
    not_understood,
    part_of,
    rank_of,
)
from saddlescope.ranks.checkpoints.files import Checkpoint, read_json, require_finite, unambiguous, weight_files
from saddlescope.ranks.module_names import first_few

CONFIG = "adapter_config.json"
WEIGHTS = (
    "adapter_model.safetensors",
    "adapter_model.bin",
    "adapters.safetensors",
    "adapter_model.pt",  # of torchtune
    "pytorch_lora_weights.safetensors",
)
LORA_OF_DIFFUSERS = WEIGHTS[-1]
PREFIX = "base_model.model."
INNER = ".base_layer.out_proj"  # of torch.nn.MultiheadAttention, after the name of the module
_OF_LORA = {"LORA", "LOHA", "LOKR"}  # methods of PEFT whose tensors have names of their own


@dataclass(frozen=True, eq=False)
class AdapterFile:
    """Adapter on disk.

    Attributes:
        path: the file or folder, as given.
        config: content of adapter_config.json, or settings in the header of the file; empty without either.
        stored: its tensors.
    """

    path: Path
    config: Mapping[str, Any]
    stored: Checkpoint

    @classmethod
    def open(cls, source: object, *, weights: str | None = None) -> "AdapterFile | None":
        """Open an adapter; None for anything else, such as a checkpoint.

        Args:
            source: a file or a folder.
            weights: as in `Checkpoint.open`.

        Raises:
            InputError: the folder has the configuration of an adapter, but no weights, or they cannot be read.
        """
        if not isinstance(source, str | Path):
            return None
        path = Path(source)
        folder = path if path.is_dir() else path.parent
        file = path
        if path.is_dir():
            if not (path / CONFIG).is_file() and not (path / LORA_OF_DIFFUSERS).is_file():
                whole = path / "model.safetensors"  # Accelerate writes that of PEFT's whole model
                inside = cls.open(whole, weights=weights) if whole.is_file() else None
                return inside if inside and any(".base_layer." in name for name in inside.stored.tensors) else None
            found = [path / name for name in WEIGHTS if (path / name).is_file()]
            if not found:
                raise InputError(f"{path} must hold {WEIGHTS[0]}; got {CONFIG} alone. Fetch the adapter again.")
            file = found[0]
        elif not path.is_file():
            return None
        stored = Checkpoint.open(file, weights=weights)
        if path.is_file() and not any((part := part_of(name)) and is_decisive(part[1]) for name in stored.tensors):
            if all(map(UNKNOWN.search, stored.tensors)):
                raise not_understood(path, stored.tensors)
            return None
        beside = folder / CONFIG
        config = read_json(beside) if beside.is_file() else {}
        if config.get("fine_tune_type") == "full":  # of mlx: whole weights
            return None
        return cls(path, config or header_settings(path, stored.header), stored)

    @property
    def method(self) -> str:
        """PEFT's name of the method."""
        return str(self.config.get("peft_type", "LORA")).upper()

    def settings(self, module: str) -> tuple[AdapterSettings, str]:
        """Return the settings of the part of a pipeline that a module belongs to, and the module's name in it."""
        values, own = of_part(self.config, module)
        return AdapterSettings(self.path, values), own

    @cached_property
    def _parts(self) -> dict[str, dict[str, str]]:
        """Stored names by module and role."""
        found: dict[str, dict[str, str]] = {}
        pairs = []
        for name in self.stored.tensors:
            part = part_of(name)
            if part is not None:
                module = part[0].removeprefix(PREFIX)
                found.setdefault(module, {})[part[1] if part[1] != "unread" else f"unread {name}"] = name
                pairs.append((f"{module}.{name[len(part[0]) + 1 :] if part[1] == 'unread' else part[1]}", name))
        unambiguous(self.path, pairs)
        # Lengths, alphas and biases alone are parameters that have such a name.
        decisive = {m for m, own in found.items() if any(map(is_decisive, own)) or "bias_difference" in own}
        return {module: own for module, own in found.items() if module in decisive}

    @cached_property
    def unread(self) -> tuple[str, ...]:
        """Names of stored tensors that no formula uses; their modules have no update."""
        return tuple(
            name
            for own in self._parts.values()
            if self.method in _OF_LORA and not _is_read(own)
            for role, name in own.items()
            if role != "alpha"
        )

    @cached_property
    def updates(self) -> dict[str, ModuleUpdate]:
        """Updates of weights by the name of the module.

        Raises:
            InputError: factors without their partner, or settings with which the update is unknown.
        """
        found = {}
        for module, own in self._parts.items():
            if not _is_read(own) or own.keys() <= {"bias_difference", "alpha"}:
                continue
            try:
                rank = rank_of({role: self.stored.tensors[name].shape for role, name in own.items()})
            except InputError as error:
                raise InputError(
                    f"{self.path} must hold {error} of {module}; got {first_few(own.values())}."
                ) from error
            name, count = self._experts(module, rank or 1)
            scale = self._scale(name, rank and rank // count, own.get("alpha"))
            for number in range(count):
                one = name if count == 1 else f"{name}[{number}]"
                found[one] = ModuleUpdate(one, own, scale, (number, count) if count > 1 else None)
        return found

    def _experts(self, module: str, rank: int) -> tuple[str, int]:
        """Return the parameter that factors of several experts belong to, and their number; else the module, and 1.

        PEFT wraps a module once for each of its parameters, in the order of the model, the last outermost. Its settings
        have them in any order, but experts multiply by `down_proj` last.
        """
        path, given = module.replace(".base_layer", ""), self.config.get("target_parameters")
        targets = [str(one).rpartition(".") for one in given] if isinstance(given, list) else []
        own = dict.fromkeys(name for parent, dot, name in targets if dot and f".{path}".endswith(f".{parent}"))
        at = len(own) - 1 - module.count(".base_layer")
        if not 0 <= at < len(own):
            return module, 1
        name = f"{path}.{sorted(own, key=lambda one: one.startswith('down'))[at]}"
        settings, inner = self.settings(name)
        count, rest = divmod(rank, settings.rank(inner))
        return (name, count) if count > 1 and not rest else (module, 1)

    def _scale(self, module: str, rank: int | None, alpha: str | None) -> float:
        if rank is None and alpha is None and self.method == "LOKR":  # PEFT scales two matrices, too
            settings, own = self.settings(module)
            rank = settings.rank(own)
        if rank is None:  # of LoKr without factors, and of differences
            return 1.0
        if alpha is not None:
            value = self.stored.read([alpha])[alpha]
            if value.numel() != 1 or value.is_complex() or not bool(value.isfinite().all()) or not float(value):
                kind = f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
                raise InputError(
                    f"{self.path} must have one number other than 0 as alpha of {module}; got "
                    f"{value.item() if value.numel() == 1 else kind}."
                )
            return float(value) / rank
        settings, own = self.settings(module)
        scale = settings.scale(own, rank)
        if scale is not None:
            return scale
        header = self.stored.header
        alpha_there, rank_there = header.get("ss_network_alpha"), header.get("ss_network_dim")
        if alpha_there is not None and alpha_there not in ("None", rank_there) and self._parts[module].get("down"):
            raise InputError(
                f"{self.path} must have an alpha of {module}; got none, and ss_network_alpha {alpha_there:.20} for "
                f"ss_network_dim {rank_there} in its header. Store it as {module}.alpha."
            )
        return 1.0

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences on what was read, and on a scale that nothing states."""
        own = [module for module, one in self.updates.items() if one.has_alpha and "alpha" not in one.parts]
        remarks = [*self.stored.remarks]
        beside = weight_files(self.path) if self.path.is_dir() else []
        if others := [file.name for file in beside if file.name != self.stored.path.name]:
            name = self.stored.path.name
            remarks.append(f"{self.path} also holds {first_few(others)}, which it may need: {name} alone was read.")
        if not all(self.settings(module)[0].values for module in own):
            remarks.append(f"{self.path} has no alpha, and no adapter_config.json beside it: B A is measured unscaled.")
        if any(module.endswith(INNER) for module in self.updates):
            remarks.append(
                f"{self.path}: updates of out_proj of torch.nn.MultiheadAttention count once; PEFT adds them twice "
                "(github.com/huggingface/peft/pull/3774)."
            )
        return tuple(remarks)

    def require_own_update(self) -> None:
        """Raise InputError for an adapter that needs its base model.

        Raises:
            InputError: the method changes the base, or the update depends on its weights, as of DoRA.
        """
        if self.method not in _OF_LORA:
            raise InputError(
                f"{self.path} must be LoRA to be used without its base; got {self.method}. Pass the base to spectra "
                "or to lora merge."
            )
        self.require_mergeable()
        if any(one.magnitude for one in self.updates.values()):
            raise InputError(
                f"{self.path} must be LoRA to be used without its base; got DoRA, which scales the rows of the weights "
                "of the base. Pass the base to spectra or to lora merge."
            )

    def require_mergeable(self) -> None:
        """Raise InputError for an adapter whose base is not the model on disk, or that lacks the lengths of DoRA."""
        for module in self.updates or ("",):
            self.settings(module)[0].require_stored_base()
        for module, one in self.updates.items():
            if one.magnitude is None and self.settings(module)[0].flag("use_dora"):
                raise InputError(
                    f"{self.path} must hold the lengths of DoRA, as its settings have use_dora; got none of {module}. "
                    "Fetch the adapter again."
                )

    def factors(self, module: str) -> tuple[Float[Tensor, "outputs rank"], Float[Tensor, "rank inputs"]] | None:
        """Read B and A of a module as matrices, in their stored types, those of a convolution flattened.

        None for a module with another formula.

        Raises:
            InputError: shapes that do not fit, or numbers that are not finite.
        """
        one = self.updates[module]
        if one.factors is None:
            return None
        A, B = (self._read(module, role) for role in one.factors)
        if "down_turned" in one.parts and A.ndim == B.ndim == 2:
            A, B = A.mT, B.mT
        if A.ndim < 2 or B.ndim < 2 or B.flatten(1).shape[1] != A.shape[0]:
            shapes = " and ".join(str(self.stored.tensors[one.parts[role]].shape) for role in one.factors[::-1])
            raise InputError(f"{self.path} must have factors B A of {module}; got shapes {shapes}.")
        return B.flatten(1), A.flatten(1)

    def update(self, module: str) -> Float[Tensor, "outputs ..."]:
        """Return the update of a weight in float64, in the shape of the weight."""
        if self.updates[module].factors is not None:
            self.factors(module)
        return self.updates[module].delta(lambda role: self._read(module, role).double())

    def _read(self, module: str, role: str) -> Tensor:
        one = self.updates[module]
        name = one.parts[role]
        tensor = one.own_part(role, self.stored.read([name])[name])
        require_finite(self.path, name, tensor)
        return tensor

    def additions(self) -> dict[str, tuple[str, float]]:
        """Return stored names and factors of what is added to biases, by the names of the biases."""
        found = {
            f"{m}.bias": (own["bias_difference"], 1.0) for m, own in self._parts.items() if "bias_difference" in own
        }
        factored = {m: own for m, own in self.updates.items() if "bias_up" in own.parts}
        return found | {f"{m}.bias": (own.parts["bias_up"], own.scale) for m, own in factored.items()}

    @cached_property
    def matrices(self) -> list[str]:
        """Names of the modules whose updates are matrices; those of norms are vectors."""
        full = {name: one.parts["difference"] for name, one in self.updates.items() if "difference" in one.parts}
        return [name for name in self.updates if name not in full or len(self.stored.tensors[full[name]].shape) > 1]

    @property
    def vectors(self) -> list[str]:
        """Stored names of changes of biases and norms, which have no spectrum."""
        norms = [one.parts["difference"] for name, one in self.updates.items() if name not in self.matrices]
        return [*(stored for stored, _ in self.additions().values()), *norms]

    def other_tensors(self) -> dict[str, str]:
        """Return stored names by the names of parameters that the adapter replaces: PEFT's `modules_to_save`."""
        used = {name for own in self._parts.values() for name in own.values()}
        others = [name for name in self.stored.tensors if name not in used]
        return unambiguous(self.path, ((_parameter(name), name) for name in others))

    def report(self, on_error: Callable[[str], None]) -> None:
        """Report by name the tensors that no formula uses."""
        if self.unread:
            on_error(
                f"{self.path} has tensors of adapters that saddlescope does not compute, and whose modules are left "
                f"out: {', '.join(self.unread)}. Merge the adapter with the program that trained it."
            )


def _is_read(parts: Mapping[str, str]) -> bool:
    """Return True if all parts of a module belong to an update whose formula is known."""
    return not any(role.startswith("unread") for role in parts)


def _parameter(stored: str) -> str:
    """Return the name in the base of a parameter that an adapter replaces."""
    return stored.removeprefix(PREFIX).replace(".modules_to_save.default.", ".").replace(".base_layer.", ".")
