"""Numbers of heads of the attention modules of a checkpoint: from its configuration, by the names of the modules.

    flat            one number for all modules, such as num_attention_heads
    nested          a configuration per tower, such as text_config and vision_config
    prefixed        encoder_attention_heads beside decoder_attention_heads
    per stage       a list, with the stage as the first number in the name of a module

A number that belongs to another tower would cut matrices into wrong heads without any error: where names do not
determine the tower, the user states the numbers by patterns.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any, TypeAlias

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.attention_blocks import AttentionBlock
from saddlescope.ranks.attention.stated_numbers import HEADS
from saddlescope.ranks.module_names import around, first_few

Heads: TypeAlias = int | Mapping[str, int]

_NAMES = tuple(dict.fromkeys(("num_attention_heads", *HEADS)))  # in a configuration, the name of Transformers first
_TOWERS = (
    ("vision", "visual", "image", "img", "vit"),
    ("audio", "speech"),
    ("text", "language", "llm"),
    ("decoder",),
    ("encoder",),
)
_MODALITIES = _TOWERS[:2]  # of towers that rarely have the number of heads of the others
_DEPTH = 4  # of nested configurations


class HeadCounts:
    """Numbers of heads by the names of modules.

    Args:
        config: the configuration; may be empty.
        heads: one number for all modules, or numbers by patterns on the names of modules, where `*` matches anything.

    Raises:
        InputError: a number below 1.
    """

    def __init__(self, config: Mapping[str, Any], heads: Heads | None) -> None:
        counts = {"*": heads} if isinstance(heads, int) else dict(heads or {})
        if wrong := [count for count in counts.values() if count < 1]:
            raise InputError(f"heads must be at least 1; got {wrong[0]}.")
        self._config = config
        self._given = counts
        self._nested = dict(_nested(config))
        self.plain = isinstance(heads, int)

    def settings(self, path: str) -> SimpleNamespace:
        """Return the configuration of the module at a path, with its number of heads as `num_attention_heads`."""
        parts = path.split(".")
        own = self._own(parts)
        plain = {name: value for name, value in own.items() if isinstance(value, int | str)}
        plain = {name: value for name, value in plain.items() if name not in _NAMES or _whole(value)}
        if own is not self._config:  # the numbers of another tower must not be found
            outer = {name: value for name, value in self._config.items() if isinstance(value, int | str)}
            plain = {name: value for name, value in outer.items() if "head" not in name} | plain
        count = self._given_for(parts)
        if count is None:
            count = _count(own, parts)
        if count is not None:
            plain = {name: value for name, value in plain.items() if name not in _NAMES}
            plain |= {"num_attention_heads": count, "num_heads": count}
        return SimpleNamespace(**plain)

    def check_known(self, blocks: Sequence[AttentionBlock], source: str) -> None:
        """Raise InputError for given numbers that contradict the model, or patterns that match no attention module."""
        self._check_patterns(blocks)
        for block in blocks:
            given = self._given_for(block.name.split("."))
            if given not in (None, block.heads):
                raise InputError(
                    f"heads must be those of {source} and its config.json; got {given} for {block.label}, which has "
                    f"{block.heads}. Omit heads, or correct config.json."
                )

    def check(self, blocks: Sequence[AttentionBlock], source: str) -> None:
        """Raise InputError for a number of heads that was taken for several towers, or for an unused pattern.

        Args:
            blocks: all attention blocks.
            source: the checkpoint, for the message.
        """
        self._check_patterns(blocks)
        shared = [block for block in blocks if self._is_shared(block.name.split("."))]
        towers: dict[tuple[object, ...], AttentionBlock] = {}
        for block in shared:
            parts = block.name.split(".")
            modality = next((words for words in _MODALITIES if _mentions(parts, words)), None)
            towers.setdefault((modality, *((_width(block),) if not self._per_stage(parts) else ())), block)
        if len(towers) > 1:
            labels = [_tower(block.name) for block in towers.values()]
            patterns = " ".join(f"--heads '{label}*=N'" for label in labels)
            raise InputError(
                f"heads must be known for each tower of {source}; got one number, {shared[0].heads}, for "
                f"{', '.join(labels)}. Pass {patterns}."
            )

    def _check_patterns(self, blocks: Sequence[AttentionBlock]) -> None:
        paths = {path for block in blocks for path in around(block.name)}
        for pattern in self._given:
            if blocks and not any(fnmatchcase(path, pattern) for path in paths):
                raise InputError(
                    f"heads must have patterns on the names of attention modules; got {pattern!r}, which matches none "
                    f"of {first_few([block.label for block in blocks])}."
                )

    def _given_for(self, parts: Sequence[str]) -> int | None:
        paths = around(".".join(parts))
        return next((n for pattern, n in self._given.items() if any(fnmatchcase(p, pattern) for p in paths)), None)

    def _own(self, parts: Sequence[str]) -> Mapping[str, Any]:
        """Return the nested configuration of the tower of a module, or the whole one."""
        for part in parts:
            for words in _TOWERS:
                if _mentions([part], words):
                    if found := self._of_tower(words):
                        return found
                    if words in _MODALITIES:
                        return self._config
        others = {key for words in _MODALITIES for key in self._nested if _mentions([key], words)}
        left = [key for key in self._nested if key not in others]
        if len(left) == 1 and _count(self._config, parts) is None:
            return self._nested[left[0]]
        return self._config

    def _of_tower(self, words: Sequence[str]) -> Mapping[str, Any] | None:
        keys = [key for key in self._nested if _mentions([key], words)]
        return self._nested[keys[0]] if len(keys) == 1 else None

    def _is_shared(self, parts: Sequence[str]) -> bool:
        """Return True if the number of heads of a module is one that names do not assign to it."""
        if self._given_for(parts) is not None:
            return self.plain
        return self._own(parts) is self._config and _prefixed(self._config, parts) is None

    def _per_stage(self, parts: Sequence[str]) -> bool:
        own = self._own(parts)
        return self._given_for(parts) is None and any(isinstance(own.get(name), list) for name in _NAMES)


def _nested(config: Mapping[str, Any], depth: int = 0) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the nested configurations that have a number of heads, by their keys."""
    found = []
    for key, value in config.items():
        if isinstance(value, dict) and depth < _DEPTH:
            if any(_whole(value.get(name)) or isinstance(value.get(name), list) for name in _NAMES):
                found.append((key, value))
            else:
                found += _nested(value, depth + 1)
    return found


def _count(config: Mapping[str, Any], parts: Sequence[str]) -> int | None:
    if (prefixed := _prefixed(config, parts)) is not None:
        return prefixed
    for name in _NAMES:
        value = config.get(name)
        if _whole(value):
            return value
        if isinstance(value, list):
            numbers = [int(part) for part in parts if part.isdecimal()]
            if len(numbers) > 1 and numbers[0] < len(value) and _whole(value[numbers[0]]):
                return value[numbers[0]]
    return None


def _prefixed(config: Mapping[str, Any], parts: Sequence[str]) -> int | None:
    """Return the number under a key with the name of the tower, such as decoder_attention_heads or vision_heads."""
    for part in parts:
        for words in _TOWERS:
            if _mentions([part], words):
                keys = [f"{word}_{name}" for word in words for name in _NAMES]
                if found := [config[key] for key in keys if _whole(config.get(key))]:
                    return found[0]
    return None


def _mentions(parts: Sequence[str], words: Sequence[str]) -> bool:
    return any(word in part.lower().split("_") or part.lower().startswith(word) for part in parts for word in words)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _width(block: AttentionBlock) -> int:
    return block.factors().query.shape[1]


def _tower(name: str) -> str:
    """Return the part of a name before the number of the layer."""
    parts = name.split(".")
    first = next((index for index, part in enumerate(parts) if part.isdecimal()), len(parts))
    return ".".join(parts[:first]) or name
