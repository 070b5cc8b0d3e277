"""Attention blocks of a model: modules whose weights match a layout that agrees with their forward pass."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.func import functional_call

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.coverage import AttentionCoverage, CoverageRow
from saddlescope.ranks.attention.head_factors import HeadFactors
from saddlescope.ranks.attention.known_layouts import LAYOUTS
from saddlescope.ranks.attention.layouts import AttentionLayout
from saddlescope.ranks.attention.module_copy import changed_from_outside, scales_of, signs
from saddlescope.ranks.attention.passed_values import given_arguments, passed_arguments
from saddlescope.ranks.attention.probe import probes, quiet
from saddlescope.ranks.attention.recorded_calls import probe_call, record_calls
from saddlescope.ranks.attention.verdicts import Verdict, input_sizes, judge, mixed_values, unchecked
from saddlescope.ranks.module_names import canonical_name, first_few, unwrap_model

_CALLED_ATTENTION = frozenset(
    ["attention", "attn", "self_attention", "self_attn", "selfattention", "cross_attn", "crossattention"]
)
_LONGEST = 300  # characters of the request for layouts


class AttentionBlock(NamedTuple):
    """Attention module of a model, with its name, the layout of its weights and its number of heads."""

    name: str
    module: nn.Module
    layout: AttentionLayout
    heads: int

    @property
    def label(self) -> str:
        """Name for messages; the class name if the block is the model itself."""
        return self.name or type(self.module).__name__

    @property
    def weights(self) -> dict[str, nn.Parameter]:
        """Parameters that the factors are made of, by their names within the module."""
        inside = {id(one) for part in self.layout.projections(self.module) for one in part.parameters()}
        named = self.module.named_parameters()
        return {name: one for name, one in named if id(one) in inside and not name.endswith("bias")}

    @property
    def buffers(self) -> dict[str, Tensor]:
        """Singular vectors of spectral norms, on which the factors depend too, by their names within the module."""
        inside = {id(one) for part in self.layout.projections(self.module) for one in part.buffers()}
        return {
            name: buffer
            for name, buffer in self.module.named_buffers()
            if id(buffer) in inside and ("parametrizations." in name or name.endswith(("weight_u", "weight_v")))
        }

    def factors(self, weights: Mapping[str, Tensor] | None = None) -> HeadFactors:
        """Return the factors of all heads.

        Args:
            weights: weights and buffers by name within the module, in place of the present ones.
        """
        if weights is None:
            factors = self.layout.factors(self.module)
        else:
            call = _FactorsCall(self.module, self.layout)
            factors = functional_call(call, _slots(self.module, weights), (), tie_weights=False)
        assert factors is not None
        return factors


def _slots(module: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights by every place that holds them, each place once: `functional_call` does not restore others.

    Several modules may hold one parameter, and one module may have several names.
    """
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    given = {id(own[name]): weight for name, weight in weights.items()}
    return {
        ".".join(filter(None, ("module", prefix, name))): given[id(one)]
        for prefix, part in module.named_modules()
        for name, one in (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
        if id(one) in given
    }


class _FactorsCall(nn.Module):
    """Factors of a layout as a forward pass, so that `functional_call` can substitute other weights."""

    def __init__(self, module: nn.Module, layout: AttentionLayout) -> None:
        super().__init__()
        self.module, self.layout = module, layout

    def forward(self) -> HeadFactors | None:
        return self.layout.factors(self.module)


class FoundAttention(NamedTuple):
    """Attention of a model: the blocks to track, and what became of all candidates."""

    blocks: tuple[AttentionBlock, ...]
    coverage: AttentionCoverage


def find_attention(
    model: nn.Module, layouts: Sequence[AttentionLayout] = LAYOUTS, *, check: bool = True
) -> FoundAttention:
    """Return all attention blocks of a model, in the model's own order, each set of weights once.

    A module is called once alone, on random inputs and with random weights (modules that differ only in their weights
    share the call); of the layouts that its names allow, the first that agrees is taken. If none does, it is refused.
    So is a module whose values its model mixes with those of another layer.

    Args:
        model: the model; `torch.compile` and DistributedDataParallel may wrap it.
        layouts: layouts to try, in this order. A module that matches a layout of yours, and whose forward pass shows no
            softmax, is tracked and unchecked; with the known layouts it is refused.
        check: False for models without a forward pass, such as those of checkpoints.
    """
    model = unwrap_model(model)
    finder = _Finder(layouts, check=check)
    blocks: list[AttentionBlock] = []
    rows: dict[str, CoverageRow] = {}
    seen: set[frozenset[int]] = set()
    inside: list[str] = []  # names of modules with an outcome: what they contain has it, too
    mixing: dict[str, tuple[str, ...]] = {}  # arguments, by the model's own names of modules
    for name, module in model.named_modules():
        label = canonical_name(name)
        if any(label.startswith(f"{outer}.") or outer == "" for outer in inside):
            continue
        found = finder.outcome(label, module)
        if found is None:
            continue
        row, layout, arguments = found
        if layout is not None and row.tracked:
            block = AttentionBlock(label, module, layout, row.heads)
            weights = frozenset(id(parameter) for parameter in block.weights.values())
            if weights in seen:
                continue
            seen.add(weights)
            blocks.append(block)
            if arguments:
                mixing[name] = arguments
        inside.append(label)
        rows[label] = row
    if mixing:
        rows |= _with_mixed_values(model, mixing, blocks, rows)
        blocks = [block for block in blocks if rows[block.name].tracked]
    for name, module in model.named_modules():
        label = canonical_name(name)
        if label not in rows and _looks_like_attention(label, module) and not _related(label, rows):
            rows[label] = CoverageRow(
                label,
                type(module).__name__,
                "skipped",
                reason=f"no layout has the names of its weights ({_names(module)}); name them by layouts=",
            )
    order = {canonical_name(name): at for at, (name, _) in enumerate(model.named_modules())}
    return FoundAttention(tuple(blocks), AttentionCoverage(sorted(rows.values(), key=lambda row: order[row.name])))


def _with_mixed_values(
    model: nn.Module,
    mixing: Mapping[str, tuple[str, ...]],
    blocks: Sequence[AttentionBlock],
    rows: Mapping[str, CoverageRow],
) -> Iterator[tuple[str, CoverageRow]]:
    """Yield new rows of modules whose values the model mixes with others, or may mix.

    Args:
        model: the model.
        mixing: arguments by which values are mixed, by the names of modules.
        blocks: all blocks; the values of any layer may be passed to another one.
        rows: by the modules' labels.
    """
    labels = {block.name for block in blocks}
    names = [name for name, _ in model.named_modules() if canonical_name(name) in labels]
    widths = {block.factors().query.shape[1] for block in blocks}
    passed = passed_arguments(model, names, widths)
    for name, arguments in mixing.items():
        label = canonical_name(name)
        if passed is None:
            listed = " or ".join(arguments)
            reason = f"the model may mix its values with others, passed as {listed}: call tracker.check(model, inputs)"
            yield label, rows[label]._replace(outcome="unchecked", reason=reason)
        elif given := [one for one in arguments if one in passed[name]]:
            yield label, rows[label]._replace(outcome="refused", reason=mixed_values(given))


def _related(label: str, rows: Mapping[str, CoverageRow]) -> bool:
    """Return True for a module that contains one with an outcome, or is contained in one."""
    return any(other.startswith(f"{label}.") or label.startswith(f"{other}.") or not label for other in rows)


def _is_called_attention(label: str, module: nn.Module) -> bool:
    kind = type(module).__name__.lower()
    return "attention" in kind or "attn" in kind or label.rpartition(".")[2].lower() in _CALLED_ATTENTION


def _looks_like_attention(label: str, module: nn.Module) -> bool:
    named = _is_called_attention(label, module) and "mlp" not in type(module).__name__.lower()
    return named and sum(parameter.ndim >= 2 for parameter in module.parameters()) >= 1


def _names(module: nn.Module) -> str:
    names = (name.removesuffix(".weight") for name, one in module.named_parameters() if one.ndim >= 2)
    return first_few(dict.fromkeys(names), 6)


def _with_others(reason: str, module: nn.Module, layout: AttentionLayout) -> str:
    """Add to a reason a second set of projections, such as that of the text in joint attention (SD3, Flux)."""
    used = layout.projections(module)
    inside = {id(part) for layer in used for part in layer.modules()}
    sizes = [getattr(layer, "out_features", None) for layer in used[:-1]]
    others = [
        name
        for name, part in module.named_modules()
        if id(part) not in inside and getattr(part, "out_features", None) in sizes
    ]
    if len(used) < 2 or None in sizes or len(others) < len(sizes):
        return reason
    return "; ".join(filter(None, (reason, f"its other projections are left out: {', '.join(others)}")))


class _Finder:
    """Outcomes of modules; modules that differ only in their weights are checked once."""

    def __init__(self, layouts: Sequence[AttentionLayout], *, check: bool) -> None:
        self._layouts, self._check = layouts, check
        self._known: dict[object, Verdict] = {}

    def outcome(
        self, name: str, module: nn.Module
    ) -> tuple[CoverageRow, AttentionLayout | None, tuple[str, ...]] | None:
        """Return a module's outcome, layout and arguments that mix its values; None if no layout fits it."""
        fitting = [layout for layout in self._layouts if layout.matches(module)]
        if not fitting:
            return None
        key = signature(module)
        if key not in self._known:
            self._known[key] = self._verdict(module, fitting)
        found = self._known[key]
        if (
            found.outcome == "refused"
            and not found.attends
            and self._check
            and self._layouts is LAYOUTS
            and not _is_called_attention(name, module)
        ):
            return None  # other modules have names such as in_proj and out_proj, too
        if self._check and found.outcome == "verified" and (reason := changed_from_outside(module)):
            found = found._replace(outcome="unchecked", reason=reason)
        names = str(found.layout or fitting[0])
        kind = type(module).__name__
        reason = found.reason if found.layout is None else _with_others(found.reason, module, found.layout)
        row = CoverageRow(name, kind, found.outcome, names, found.heads, found.key_heads, reason)
        return row, found.layout, found.mixing

    def _verdict(self, module: nn.Module, fitting: Sequence[AttentionLayout]) -> Verdict:
        if not self._check:
            return unchecked(module, fitting, "")
        if isinstance(module, nn.MultiheadAttention):
            if type(module).forward is not nn.MultiheadAttention.forward:
                return unchecked(module, fitting, "its forward pass is not that of torch.nn.MultiheadAttention")
            # by PyTorch's own definition
            return unchecked(module, fitting, "")._replace(outcome="verified")
        sizes = input_sizes(module, fitting)
        if sizes is None:
            return unchecked(module, fitting, "")
        with quiet():  # the comparison, too
            seen = probes(module, inputs=sizes[0], key_inputs=sizes[1], width=sizes[2])
            return judge(seen, module, fitting, known=self._layouts is LAYOUTS)


_OF_A_LAYER = ("training", "layer_idx", "layer_id", "layer_number", "idx", "layer_index")


def signature(module: nn.Module) -> object:
    """Return what a module's forward pass depends on besides its weights."""
    settings: dict[int, str] = {}  # of configurations, which layers share
    parts = []
    for name, part in module.named_modules():
        config = getattr(part, "config", None)
        if config is not None and id(config) not in settings:
            settings[id(config)] = _plain(getattr(config, "__dict__", {}))
        parts.append((name, type(part), _plain(vars(part)), settings.get(id(config), "")))
    shapes = tuple((name, tuple(one.shape)) for name, one in module.named_parameters())
    scales = tuple((name, tuple(signs(one).flatten().tolist())) for name, one in scales_of(module).items())
    return (tuple(parts), shapes, scales)


def _plain(values: Mapping[str, object]) -> str:
    """Return the numbers and texts of an object, but those that only say which layer it is."""
    kept = ((key, value) for key, value in values.items() if isinstance(value, int | float | str | tuple | None))
    return repr(sorted(item for item in kept if item[0] not in _OF_A_LAYER))


def checked_coverage(
    model: nn.Module, blocks: Sequence[AttentionBlock], coverage: AttentionCoverage, inputs: Any
) -> AttentionCoverage:
    """Return the coverage after a check of each block by the calls that its model makes on a user's inputs.

    Args:
        model: the model, without wrappers.
        blocks: tracked blocks of the model.
        coverage: of the model.
        inputs: arguments of its forward pass; see `record_calls`.

    Raises:
        InputError: another model, one that fails on the inputs, or products that differ from its forward pass.
    """
    if blocks and not {id(block.module) for block in blocks} & set(map(id, model.modules())):
        raise InputError(f"model must be the tracked one; got another ({type(model).__name__}).")
    calls = record_calls(model, {block.name: block.module for block in blocks}, inputs)
    rows = {row.name: row for row in coverage}
    known: dict[object, Verdict] = {}
    for block in blocks:
        if reason := changed_from_outside(block.module):
            rows[block.name] = rows[block.name]._replace(outcome="unchecked", reason=reason)
            continue
        if isinstance(block.module, nn.MultiheadAttention):
            continue
        if block.name not in calls:
            rows[block.name] = rows[block.name]._replace(outcome="unchecked", reason="the model did not call it")
            continue
        call = calls[block.name]
        key = (signature(block.module), given_arguments(block.module, call.args, call.kwargs))
        if key not in known:
            factors = block.factors()
            seen = probe_call(block.module, call, inputs=factors.query.shape[1], key_inputs=factors.key.shape[1])
            with quiet():
                known[key] = judge(seen, block.module, (block.layout,))
        found = known[key]
        if found.outcome == "refused" or found.layout not in (None, block.layout):
            reason = found.reason if found.outcome == "refused" else f"its weights are those of {found.layout!r}"
            raise InputError(
                f"products must be those of the model; got others in {block.label}: {reason}. Describe its weights by "
                "layouts=, or leave it out."
            )
        if found.outcome == "verified" or rows[block.name].outcome == "unchecked":
            reason = _with_others(found.reason, block.module, block.layout)
            rows[block.name] = rows[block.name]._replace(outcome=found.outcome, reason=reason)
    return AttentionCoverage(rows.values())


def require_attention(found: FoundAttention, model: nn.Module) -> None:
    """Raise InputError for a model without a block to track: why the first was refused, and what to pass instead."""
    if found.blocks:
        return
    kind = type(unwrap_model(model)).__name__
    if not found.coverage:
        raise InputError(
            f"model must have attention blocks with known names; got {kind}, which has none. {_cure(model)}"
        )
    row = next(iter(found.coverage))
    reason, _, own = row.reason.partition(". Pass ")
    cure = _cure(model) if row.outcome == "skipped" else "Describe its weights by layouts=, or pass matrices='*'."
    cure = f"Pass {own}." if own else cure
    label = f"{row.name} ({row.kind})" if row.name else row.kind
    start = f"model must have attention whose products can be read; got {kind}, with {label}: "
    room = max(60, _LONGEST - len(start) - len(cure) - 3)
    reason = reason.rstrip(".")
    raise InputError(f"{start}{reason if len(reason) <= room else f'{reason[: room - 1]}…'}. {cure}")


def _cure(model: nn.Module) -> str:
    """Return what the user can pass instead: the names of layers that may be those of attention, or single matrices."""
    for name, module in model.named_modules():
        found = [own for own, one in module.named_children() if isinstance(one, nn.Linear)]
        parts = {word: own for word in ("key", "query", "value", "k", "q", "v") for own in found
                 if own.lower().startswith(word)}  # fmt: skip
        out = next((own for own in found if own not in parts.values()), None)
        roles = [parts.get(word) or parts.get(word[0]) for word in ("key", "query", "value")]
        if all(roles) and out is not None and name:
            own = f"Separate({', '.join(map(repr, (*roles, out)))}, heads=N)"
            return f"Pass layouts=({own},), from saddlescope.ranks, or matrices='*'."
    return (
        "Name its layers by layouts=(Separate(key, query, value, output, heads=N),), from saddlescope.ranks, or pass "
        "matrices='*'."
    )
