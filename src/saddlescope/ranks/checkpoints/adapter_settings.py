"""Settings of an adapter: rank, alpha and start, from adapter_config.json, or from the header of its file.

    PEFT        adapter_config.json beside the weights
    mlx         adapter_config.json with lora_parameters, whose scale is that of B A
    Diffusers   `lora_adapter_metadata` in the header: the settings of PEFT, for each part of a pipeline under its name
    others      `lora_alpha`, `network_alpha` or `alpha`, and `r` or `rank`, in the header as they are
    kohya       `ss_network_alpha` and `ss_network_dim` in the header, beside an alpha per module

Every value is checked: a file of a stranger states what it likes.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saddlescope._shared.errors import InputError
from saddlescope._shared.json_text import parse_json
from saddlescope.ranks.module_names import first_few

_LONGEST = 512  # characters of a pattern, and of a name that it is matched with
_MOST = 10**7  # steps that matching one pattern may take
_IN_HEADERS = {"lora_alpha": "lora_alpha", "network_alpha": "lora_alpha", "alpha": "lora_alpha", "r": "r", "rank": "r"}
_LARGEST = 3.4e38  # number of float32
# Starts that leave the base as stored; PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA subtract the first factors from it.
_KEEPS_BASE = ("gaussian", "eva", "orthogonal", "mica", "true", "false")
_PLAIN = {  # PEFT's fields for LoRA with which the update is s B A, or that are checked elsewhere
    "alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "corda_config", "ensure_weight_tying",
    "eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode", "init_lora_weights", "layers_pattern",
    "layers_to_transform", "loftq_config", "lora_alpha", "lora_bias", "lora_dropout", "lora_ga_config",
    "megatron_config", "megatron_core", "modules_to_save", "peft_type", "peft_version", "qalora_group_size", "r",
    "rank_pattern", "revision", "runtime_config", "target_modules", "target_parameters", "task_type",
    "trainable_token_indices", "use_dora", "use_rslora",
}  # fmt: skip


@dataclass(frozen=True)
class AdapterSettings:
    """Settings of the adapter of one model, or of one part of a pipeline.

    Attributes:
        path: the adapter, for messages.
        values: settings by PEFT's names; empty if nothing states any.
    """

    path: Path
    values: Mapping[str, Any]

    def scale(self, module: str, rank: int) -> float | None:
        """Return the factor of B A of a module; None if nothing states it.

        Raises:
            InputError: settings without rank and alpha, or that do not fit the factors, or that are no numbers.
        """
        if not self.values:
            return None
        parameters = self.values.get("lora_parameters")
        if isinstance(parameters, dict):  # of mlx
            if "scale" in parameters and parameters.get("alpha", rank) != rank:
                raise InputError(
                    f"{self.path} must have scale or alpha in lora_parameters; got scale {parameters['scale']!r:.20} "
                    f"and alpha {parameters['alpha']!r:.20} for factors of rank {rank}, whose product was the scale in "
                    "older versions of mlx alone. Remove alpha, after multiplying scale by alpha / rank if it counted."
                )
            if "scale" not in parameters and "alpha" in parameters:
                return self._number(parameters["alpha"], "alpha") / rank
            return self._number(parameters.get("scale"), "scale")
        stated = self._of_module("rank_pattern", module, self.values.get("r", rank))
        given = self._of_module("alpha_pattern", module, self.values.get("lora_alpha", self.values.get("alpha")))
        if isinstance(stated, bool) or stated != rank or given is None:
            raise InputError(
                f"{self.path} must have rank and lora_alpha of {module} in its settings; got rank {stated!r} for "
                f"factors of rank {rank}, and lora_alpha {given!r}."
            )
        return self._number(given, "lora_alpha") / (math.sqrt(rank) if self.flag("use_rslora") else rank)

    def rank(self, module: str) -> int:
        """Return the stated rank of a module.

        Raises:
            InputError: it is no positive whole number.
        """
        stated = self._of_module("rank_pattern", module, self.values.get("r"))
        if not isinstance(stated, int) or isinstance(stated, bool) or stated < 1:
            raise InputError(f"{self.path} must have a positive whole number as rank of {module}; got {stated!r:.80}.")
        return stated

    def flag(self, name: str) -> bool:
        """Return a setting that is true or false; false if it is absent.

        Raises:
            InputError: another value, such as the string "false".
        """
        value = self.values.get(name) or False
        if not isinstance(value, bool):
            raise InputError(f"{self.path} must have {name} true or false; got {value!r:.80}. Correct its settings.")
        return value

    def require_stored_base(self) -> None:
        """Raise InputError for an adapter that is not s B A on the stored base, as far as its settings are known.

        Raises:
            InputError: the start subtracts the first factors from the base (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA), or
                is not known to leave it; or a variant of PEFT is on, such as copies of layers, or an unknown switch.
        """
        switched = {name for name, value in self.values.items() if value and isinstance(value, bool | dict | list)}
        if str(self.values.get("peft_type")).upper() == "LORA" and (variants := sorted(switched - _PLAIN)):
            raise InputError(
                f"{self.path} must be LoRA of the layers of its base; got {first_few(variants)}, with which the update "
                "is not known to be s B A. Merge it by PEFT's merge_and_unload, where PEFT can."
            )
        start = self.values.get("init_lora_weights")
        if isinstance(start, str) and start.lower() not in _KEEPS_BASE:
            raise InputError(
                f"{self.path} must be an adapter of the stored base; got init_lora_weights={start!r:.40}, which "
                "changes the base before training. Convert it by path_initial_model_for_weight_conversion= of "
                "save_pretrained."
            )

    def _number(self, value: object, name: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
            raise InputError(f"{self.path} must have a finite number of float32 as {name}; got {value!r:.80}.")
        return float(value)

    def _of_module(self, patterns: str, module: str, default: object) -> object:
        """Return the value of the first pattern that PEFT finds in the name of a module."""
        given = self.values.get(patterns) or {}
        if not isinstance(given, dict):
            raise InputError(f"{self.path} must have {patterns} from names to numbers; got {given!r:.80}.")
        for pattern, value in given.items():
            _require_quick(self.path, pattern, module)
            try:
                if re.match(rf"(.*\.)?({pattern})$", module):
                    return value
            except (re.error, RecursionError, OverflowError) as error:
                raise InputError(f"{self.path} must have regular expressions as {patterns}; got {error}.") from error
        return default


def _require_quick(path: Path, pattern: object, name: str) -> None:
    """Raise InputError for a pattern that may backtrack for longer than a moment.

    Steps are bounded by the ways to divide the name among repetitions, times those to choose alternatives. A repeated
    group may take exponentially many, and is refused.
    """
    plain = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", str(pattern))
    repeats = 1 + len(re.findall(r"[*+{]", plain))  # PEFT adds one
    choices = math.prod(2 + group.count("|") for group in re.findall(r"[^()]*\|[^()]*", plain)) * 2 ** plain.count("?")
    steps = len(name) ** (repeats + 1) // math.factorial(repeats + 1) * choices
    grouped = re.search(r"\)[*+{]|\(\?[^:]|\\\d", str(pattern))
    if not isinstance(pattern, str) or len(pattern) > _LONGEST or len(name) > _LONGEST or grouped or steps > _MOST:
        raise InputError(
            f"{path} must have patterns that are matched quickly; got {pattern!r:.80}. Replace it by the names that it "
            "stands for."
        )


def header_settings(path: Path, header: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in the header of a safetensors file, as Diffusers writes them; empty without any.

    Raises:
        InputError: they are no JSON object.
    """
    text = header.get("lora_adapter_metadata")
    if text is None:
        return _plain_settings(header)
    try:
        found = parse_json(text)
    except ValueError as error:
        raise InputError(f"{path} must have JSON as lora_adapter_metadata in its header; got {error}.") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must have a JSON object as lora_adapter_metadata; got {type(found).__name__}.")
    return found


def _plain_settings(header: Mapping[str, str]) -> dict[str, Any]:
    """Return alpha and rank that stand in a header as they are, such as `transformer.lora_alpha`."""
    found: dict[str, Any] = {}
    for key, value in header.items():
        part, dot, own = key.rpartition(".")
        name = _IN_HEADERS.get(own)
        if name is not None and re.fullmatch(r"\d+(\.\d+)?", value):
            found[f"{part}{dot}{name}"] = int(value) if value.isdecimal() else float(value)
    return found if any(key.endswith("lora_alpha") for key in found) else {}


def of_part(settings: Mapping[str, Any], module: str) -> tuple[dict[str, Any], str]:
    """Return the settings of the part of a pipeline that a module belongs to, and the module's name in that part.

    Settings without parts are those of all modules.
    """
    part, _, own = module.partition(".")
    if any(key.startswith(f"{part}.") for key in settings):
        found = {key.removeprefix(f"{part}."): value for key, value in settings.items() if key.startswith(f"{part}.")}
        return found, own
    return ({} if any("." in key for key in settings) else dict(settings)), module
