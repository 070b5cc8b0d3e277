"""Matching of the tensors of checkpoints with those of their base, and detection of identical tensors."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.adapter_updates import UNKNOWN, not_understood
from saddlescope.ranks.checkpoints.files import Checkpoint
from saddlescope.ranks.module_names import first_few

_BUFFERS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".inv_freq")


@dataclass(frozen=True, eq=False)
class MatchedCheckpoint:
    """Checkpoint with its tensors by their names in the base.

    Attributes:
        checkpoint: the checkpoint.
        names: from the name in the base to the name in the checkpoint, for tensors of equal shape.
        remarks: sentences on tensors of only one of the two that no measurement needs.
        unfit: the same for tensors that have another shape there, such as those of a resized vocabulary.
    """

    checkpoint: Checkpoint
    names: Mapping[str, str]
    remarks: tuple[str, ...]
    unfit: Mapping[str, str] = field(default_factory=dict)


def match_tensors(
    base: Checkpoint, other: Checkpoint, needed: Collection[str], on_error: Callable[[str], None]
) -> MatchedCheckpoint:
    """Find the tensors of the base in another checkpoint, where a prefix such as "transformer." may differ.

    Args:
        base: the checkpoint at the start.
        other: a later one.
        needed: names in the base of the measured tensors.
        on_error: called with a sentence on needed tensors that are missing, or of another shape.

    Raises:
        InputError: all needed tensors are missing, or the other one has adapters beside them.
    """
    names = align_names(base.tensors, other.tensors)
    absent = [name for name in needed if name not in names and name not in other.lost]
    unmatched = sorted(set(other.tensors) - set(names.values()))
    if adapters := [name for name in unmatched if UNKNOWN.search(name)]:
        raise not_understood(other.path, adapters)
    if absent:
        sentence = (
            f"{other.path} must hold the tensors of {base.path}; got none of {first_few(absent)}"
            f"{f' but {first_few(unmatched)}' if unmatched else ''}. Pass two checkpoints of one model."
        )
        if not any(name in names for name in needed):
            raise InputError(sentence)
        on_error(sentence)
    fitting = {a: b for a, b in names.items() if base.tensors[a].shape == other.tensors[b].shape}
    unfit = [name for name in names if name not in fitting]
    differences = [f"{name} {base.tensors[name].shape} against {other.tensors[names[name]].shape}" for name in unfit]
    if wrong := [sentence for name, sentence in zip(unfit, differences, strict=True) if name in needed]:
        on_error(f"{other.path} must have the shapes of {base.path}; got {first_few(wrong)}.")
    remarks = []
    if rest := [sentence for name, sentence in zip(unfit, differences, strict=True) if name not in needed]:
        remarks.append(
            f"{other.path} has other shapes than {base.path} in tensors that are not measured: {first_few(rest)}."
        )
    lacking = set(base.tensors) - set(names) - other.lost
    for here, there, lost in ((base, other, lacking), (other, base, set(unmatched))):
        own = [name for name in sorted(lost) if not (here is base and name in needed)]
        if own and not absent:
            remarks.append(f"{here.path} alone holds {first_few(own)}; {there.path} does not.")
    return MatchedCheckpoint(other, fitting, tuple(remarks), {name: names[name] for name in unfit})


def find_identical(
    base: Checkpoint, series: Sequence[MatchedCheckpoint], needed: Collection[str], on_error: Callable[[str], None]
) -> list[str]:
    """Find tensors that are identical in two checkpoints.

    Args:
        base: the checkpoint at the start.
        series: the later ones.
        needed: names in the base of the measured tensors, whose faults were reported.
        on_error: called with a sentence on each checkpoint whose tensors are all identical to those of another.

    Returns:
        Sentences on checkpoints that share a part of their tensors with the previous one, and on tensors that cannot be
        read.
    """
    faults: dict[str, None] = {}

    def holds_same(name: str, one: Checkpoint, own: str, other: Checkpoint, theirs: str) -> bool:
        try:
            return one.holds_same(own, other, theirs)
        except InputError as error:
            faults.update({} if name in needed else {str(error): None})
            return False

    compared = [base, *(match.checkpoint for match in series)]
    names = [{name: name for name in trainable_tensors(base, base.tensors)}]
    names += [
        {
            ours: theirs
            for ours, theirs in match.names.items()
            if ours in names[0] and theirs not in match.checkpoint.frozen
        }
        for match in series
    ]
    shared: dict[tuple[str, ...], list[str]] = {}  # pairs by the tensors they share: frozen ones are reported once
    for later in range(1, len(compared)):
        for earlier in range(later):
            ours, theirs = names[later], names[earlier]
            common = [name for name in names[0] if name in ours and name in theirs]
            same = [n for n in common if holds_same(n, compared[later], ours[n], compared[earlier], theirs[n])]
            pair = f"{compared[later].path} and {compared[earlier].path}"
            if common and len(same) == len(common):
                on_error(f"{pair} are the same checkpoint: all {len(common)} tensors are identical. Leave one out.")
            elif same and earlier == later - 1:
                shared.setdefault(tuple(same), []).append(pair)
    return [*faults] + [
        f"{pairs[0]}{f', and {len(pairs) - 1} more pairs,' if len(pairs) > 1 else ''} share {len(same)} of "
        f"{len(names[0])} tensors bit for bit, such as {first_few(same)}: frozen, or copied by mistake?"
        for same, pairs in shared.items()
    ]


def below_noise_message(other: Checkpoint, base: Checkpoint, names: Iterable[str]) -> str:
    """Return the sentence on updates that rounding hides."""
    return (
        f"{other.path} must differ from {base.path} by more than rounding; got an update below the noise floor, not "
        f"measurable in this precision, for {first_few(names)}. Save the weights in float32."
    )


def trainable_tensors(checkpoint: Checkpoint, names: Iterable[str]) -> list[str]:
    """Return the names of tensors that training may change: no masks, no counters, no tables of frequencies."""
    return [name for name in names if checkpoint.tensors[name].floating and not f".{name}".endswith(_BUFFERS)]


def align_names(base: Collection[str], other: Collection[str]) -> dict[str, str]:
    """Map names in `base` to names in `other`, without the prefix of one side if more names agree then."""

    def without(names: Collection[str], part: str) -> dict[str, str]:
        return {name.removeprefix(part): name for name in names if name.startswith(part)}

    best: dict[str, str] = {name: name for name in base if name in set(other)}
    for ours in ("", *_leading(base)):
        for theirs in ("", *_leading(other)):
            if (ours, theirs) != ("", "") and (not ours or not theirs):
                a, b = without(base, ours), without(other, theirs)
                found = {a[name]: b[name] for name in a if name in b}
                if len(found) > len(best):
                    outside = {name: name for name in base if name not in found and name in set(other)}
                    best = found | {name: name for name in outside if name not in found.values()}
    return best


def _leading(names: Collection[str]) -> list[str]:
    """Return the first parts, with their dots, of more than a tenth of the names."""
    counts = Counter(f"{name.partition('.')[0]}." for name in names if "." in name)
    return [part for part, count in counts.items() if 10 * count > len(names)]
