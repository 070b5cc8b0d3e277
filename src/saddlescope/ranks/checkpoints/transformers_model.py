"""Models of Transformers without their weights, and checkpoints under the names that the models have in memory.

Transformers 5 saves many models under other names than they have in memory, and saves parts of one parameter as several
tensors (the experts of a mixture), or several parameters as one. `as_loaded` reads a checkpoint by the rules with which
Transformers loads it. The modules of an empty model know their numbers of heads, also in nested configurations, under
any name and by stage. No code of a checkpoint is run: the class must be one that Transformers itself has.
"""

import contextlib
import copy
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.files import Checkpoint, StoredTensor, natural_order
from saddlescope.ranks.checkpoints.formats.tensor_file import first_line
from saddlescope.ranks.module_names import first_few

_MOST_COUNTED = 100_000  # layers, labels or experts in a configuration


def model_class(config: Mapping[str, Any]) -> Any:
    """Return the class that a configuration names, or None if Transformers is not installed or does not have it."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        return None
    try:
        import transformers
    except ModuleNotFoundError:
        return None
    kind = getattr(transformers, names[0], None)
    return kind if isinstance(kind, type) and issubclass(kind, nn.Module) and hasattr(kind, "config_class") else None


def meta_model(checkpoint: Checkpoint) -> Any:
    """Build the model that the config.json of a checkpoint describes, on the meta device; None if it is unknown.

    Raises:
        InputError: the configuration does not build its model.
    """
    kind = model_class(checkpoint.config)
    if kind is None:
        return None
    try:
        with torch.device("meta"), offline(), at_most(4 * (len(checkpoint.tensors) + len(checkpoint.lost)) + 1000):
            return kind(kind.config_class.from_dict(without_downloads(checkpoint.config)))
    except Exception as error:  # a configuration can be wrong in any way
        fetches = "offline mode" in str(error)
        reason = "it asks for parts from the network" if fetches else first_line(error)
        raise InputError(
            f"{checkpoint.path} must have a config.json of {kind.__name__}; got one that does not build it: {reason}."
        ) from error


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Let no file on disk cause a request."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def at_most(parameters: int) -> Iterator[None]:
    """Raise when a model is built of more parameters than its checkpoint may have tensors."""
    made = 0

    def count(*_: object) -> None:
        nonlocal made
        made += 1
        if made > parameters:
            raise InputError(f"more than {parameters} parameters, far more than the checkpoint has tensors")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def without_downloads(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration that asks for no pretrained parts, and whose lists have bounded lengths.

    Raises:
        InputError: it states more layers or labels than any model has.
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, int) and value > _MOST_COUNTED and re.search(r"(layer|label|block|expert)s?$|depth", key):
            raise InputError(f"{key} {value}")
        found[key] = without_downloads(value) if isinstance(value, dict) else value
    return found | ({"use_pretrained_backbone": False} if "use_pretrained_backbone" in config else {})


def hollow(model: nn.Module) -> None:
    """Replace parameters on the meta device by single numbers expanded to their shapes; shared ones stay shared."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.is_meta:
                if id(parameter) not in made:
                    number = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)
                    made[id(parameter)] = nn.Parameter(number, requires_grad=False)
                module._parameters[name] = made[id(parameter)]


@dataclass(frozen=True, eq=False)
class _Conversion:
    """Parameters from stored tensors: a converter of Transformers, or None for a tensor under another name.

    Attributes:
        sources: names of the stored tensors, each with the pattern of the converter that it matches.
        target: name of the parameter; of the first one, if a converter makes several.
        converter: the `WeightConverter`.
    """

    sources: list[tuple[str, str]]
    target: str
    converter: Any = None

    def run(self, tensors: Mapping[str, Tensor], model: Any) -> dict[str, Tensor]:
        """Return the parameters by name."""
        if self.converter is None:
            return {self.target: tensors[self.sources[0][0]]}
        converter = copy.deepcopy(self.converter)
        for name, pattern in self.sources:
            converter.add_tensor(self.target, name, pattern, tensors[name])
        made = converter.convert(self.target, model=model, config=model.config)
        return {name: one[0] if isinstance(one, list) else one for name, one in made.items()}


@dataclass(frozen=True, eq=False, repr=False)
class LoadedCheckpoint(Checkpoint):
    """Checkpoint with the tensors that its model has in memory, made from those of its origin on request.

    Attributes:
        unknown: names of stored tensors that the model does not have; they keep their names.
        faults: sentences on parameters that cannot be made from the stored tensors; these are `lost`.
    """

    unknown: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    _model: Any = None
    _conversions: Mapping[str, _Conversion] = field(default_factory=dict)

    def without(self, names: Iterable[str]) -> "LoadedCheckpoint":
        """Return the checkpoint without some tensors, which are then `lost`."""
        names = frozenset(names)
        rest = {name: one for name, one in self.tensors.items() if name not in names}
        return replace(self, tensors=rest, lost=self.lost | names)

    def roundoff(self, name: str) -> float:
        """Return the largest of the stored tensors; see `Checkpoint`."""
        assert self.origin is not None
        return max(self.origin.roundoff(source) for source, _ in self._conversions[name].sources)

    def _tensors_of(self, names: Sequence[str]) -> dict[str, Tensor]:
        assert self.origin is not None
        found: dict[str, Tensor] = {}
        made: dict[int, dict[str, Tensor]] = {}
        for name in names:
            conversion = self._conversions[name]
            if id(conversion) not in made:
                sources = self.origin.read([source for source, _ in conversion.sources])
                made[id(conversion)] = _run(conversion, sources, self._model, self.origin)
            parts = made[id(conversion)]
            found[name] = parts[name] if name in parts else next(iter(parts.values()))
        return found

    def stored_names(self, names: Iterable[str]) -> dict[str, str]:
        """Return the names of the stored tensors that are parameters of the model.

        Raises:
            InputError: a parameter is made from several stored tensors, or they from it.
        """
        found = {}
        for name in names:
            conversion = self._conversions[name]
            if conversion.converter is not None:
                sources = first_few(source for source, _ in conversion.sources)
                raise InputError(
                    f"{self.path} must hold {name} in one tensor; got {sources}. Save the model by "
                    "save_pretrained(save_original_format=False) first."
                )
            found[name] = conversion.sources[0][0]
        return found


def as_loaded(checkpoint: Checkpoint, model: Any) -> LoadedCheckpoint:
    """Return a checkpoint under the names of a model of Transformers in memory.

    A prefix that the names of all tensors have beyond those that Transformers expects, such as that of a module around
    the model, is left out.

    Args:
        checkpoint: the checkpoint as stored.
        model: the model; its weights do not matter.

    Raises:
        InputError: Transformers cannot convert the tensors.
    """
    best = _converted(checkpoint, model, "")
    known = len(best.tensors) - len(best.unknown)
    starts = Counter(name.partition(".")[0] for name in checkpoint.tensors if "." in name)
    for part, count in starts.items():
        if known < len(model.state_dict()) // 2 and 2 * count > len(checkpoint.tensors):
            found = _converted(checkpoint, model, f"{part}.")
            if len(found.tensors) - len(found.unknown) > known:
                best, known = found, len(found.tensors) - len(found.unknown)
    return best


def _converted(checkpoint: Checkpoint, model: Any, prefix: str) -> LoadedCheckpoint:
    """Follow `convert_and_load_state_dict_in_model` of Transformers, without its tensors."""
    state = model.state_dict()
    rename, patterns = _rules(model, state)
    conversions: dict[str, _Conversion] = {}
    unknown: list[str] = []
    for name in sorted(checkpoint.tensors, key=natural_order):
        target, pattern = rename(name.removeprefix(prefix))
        if target not in state:
            unknown.append(name)
        elif pattern is None:
            conversions.setdefault(target, _Conversion([(name, name)], target))
        else:
            conversions.setdefault(target, _Conversion([], target, patterns[pattern]))
            conversions[target].sources.append((name, pattern))
    tensors: dict[str, StoredTensor] = {}
    ways: dict[str, _Conversion] = {}
    lost = {rename(name.removeprefix(prefix))[0] for name in checkpoint.lost}
    faults: list[str] = []
    for conversion in conversions.values():
        parts = [checkpoint.tensors[source] for source, _ in conversion.sources]
        sources = [name for name, _ in conversion.sources]
        shapes = {name: torch.empty(checkpoint.tensors[name].shape, device="meta") for name in sources}
        try:
            made = _run(conversion, shapes, model, checkpoint)
        except InputError as error:
            if conversion.target not in lost:  # else its shard was reported
                faults.append(str(error))
            lost.add(conversion.target)
            continue
        for name, shape in made.items():
            tensors[name] = StoredTensor(parts[0].file, name, tuple(shape.shape), parts[0].dtype)
            ways[name] = conversion
    _under_first_names(model, tensors, ways)
    for name in unknown:
        if name not in tensors:
            tensors[name], ways[name] = checkpoint.tensors[name], _Conversion([(name, name)], name)
    ordered = {name: tensors[name] for name in sorted(tensors, key=natural_order)}
    return LoadedCheckpoint(
        checkpoint.path,
        ordered,
        frozenset(lost),
        origin=checkpoint,
        unknown=tuple(unknown),
        faults=tuple(faults),
        _model=model,
        _conversions=ways,
    )


def _under_first_names(model: nn.Module, tensors: dict[str, StoredTensor], ways: dict[str, _Conversion]) -> None:
    """Give a shared parameter its first name in the model: files hold one of its names, and not always that."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    for first, *others in names.values():
        for other in others:
            if other in tensors:
                stored, way = tensors.pop(other), ways.pop(other)
                if first not in tensors:
                    tensors[first], ways[first] = stored, way


def _rules(model: Any, state: Mapping[str, Tensor]) -> tuple[Any, Mapping[str, Any]]:
    """Return the function from a stored name to the parameter and the pattern of its converter, and all converters."""
    prefix = model.base_model_prefix
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key
    except ModuleNotFoundError:  # Transformers 4: names in files are those in memory but for the prefix of the model

        def plain(name: str) -> tuple[str, str | None]:
            return next(
                (n for n in (name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")) if n in state), name
            ), None

        return plain, {}

    rules = get_model_conversion_mapping(model)
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]

    def rename(name: str) -> tuple[str, str | None]:
        found, pattern = rename_source_key(name, renamings, converters, prefix, state)  # type: ignore[arg-type]
        if found not in state and name in state:
            found, pattern = rename_source_key(name, [], [], prefix, state)  # type: ignore[arg-type]
        return found, pattern

    return rename, {pattern: converter for converter in converters for pattern in converter.source_patterns}


def stored_name(model: nn.Module, name: str) -> str:
    """Return the name of a parameter in memory by the name under which Transformers may have stored it."""
    if not hasattr(model, "base_model_prefix"):
        return name
    rename, _ = _rules(model, model.state_dict())
    return rename(name)[0]


def _run(
    conversion: _Conversion, tensors: Mapping[str, Tensor], model: Any, checkpoint: Checkpoint
) -> dict[str, Tensor]:
    try:
        return conversion.run(tensors, model)
    except Exception as error:  # shapes that do not fit, in code of Transformers
        raise InputError(
            f"{checkpoint.path} must hold tensors that Transformers can convert to {conversion.target}; got "
            f"{first_few([name for name, _ in conversion.sources])} ({first_line(error)})."
        ) from error
