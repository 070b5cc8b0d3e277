"""Checkpoints held against their base: which tensor is which, and which are the same where they should differ."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from saddlescope._shared.errors import InputError
from saddlescope.train.checkpoints.files import Checkpoint, some

_BUFFERS = ("attn.bias", "attn.masked_bias", "attention.bias", "attention.masked_bias", "inv_freq")


@dataclass(frozen=True, eq=False)
class Matched:
    """A checkpoint whose tensors are known by the names they have in the base.

    Attributes:
        checkpoint: it.
        names: from the name in the base to the name here, for tensors of equal shape.
        remarks: sentences on what only one of the two holds, where nothing that is measured depends on it.
    """

    checkpoint: Checkpoint
    names: Mapping[str, str]
    remarks: tuple[str, ...]


def matched(base: Checkpoint, other: Checkpoint, needed: Collection[str], fault: Callable[[str], None]) -> Matched:
    """Finds the tensors of the base in another checkpoint, though a prefix such as "transformer." may differ.

    Args:
        base: the checkpoint at the start.
        other: a later one.
        needed: the names in the base of what is measured.
        fault: called with a sentence on needed tensors that are not there, or of another shape.

    Raises:
        InputError: not one of the needed tensors is there.
    """
    names = aligned(base.tensors, other.tensors)
    absent = [name for name in needed if name not in names and name not in other.lost]
    strangers = sorted(set(other.tensors) - set(names.values()))
    if absent:
        sentence = (
            f"{other.path} must hold the tensors of {base.path}; got none of {some(absent)}"
            f"{f' but {some(strangers)}' if strangers else ''}. Give two checkpoints of one model."
        )
        if not any(name in names for name in needed):
            raise InputError(sentence)
        fault(sentence)
    fitting = {a: b for a, b in names.items() if base.tensors[a].shape == other.tensors[b].shape}
    unfit = [name for name in names if name not in fitting]
    told = [f"{name} {base.tensors[name].shape} against {other.tensors[names[name]].shape}" for name in unfit]
    if wrong := [sentence for name, sentence in zip(unfit, told, strict=True) if name in needed]:
        fault(f"{other.path} must have the shapes of {base.path}; got {some(wrong)}.")
    remarks = []
    if rest := [sentence for name, sentence in zip(unfit, told, strict=True) if name not in needed]:
        remarks.append(f"{other.path} has other shapes than {base.path} outside of what is measured: {some(rest)}.")
    lacking = set(base.tensors) - set(names) - other.lost
    for here, there, lost in ((base, other, lacking), (other, base, set(strangers))):
        own = [name for name in sorted(lost) if not (here is base and name in needed)]
        if own and not absent:
            remarks.append(f"{here.path} alone holds {some(own)}; {there.path} does not.")
    return Matched(other, fitting, tuple(remarks))


def duplicates(base: Checkpoint, series: Sequence[Matched], fault: Callable[[str], None]) -> list[str]:
    """Hashes every tensor and looks for the same one in two checkpoints.

    Args:
        base: the checkpoint at the start.
        series: the later ones.
        fault: called with a sentence on each checkpoint that is another one, tensor for tensor.

    Returns:
        Sentences on checkpoints that share a part of their tensors with the one before.
    """
    compared = [base, *(match.checkpoint for match in series)]
    digests = [{name: base.digest(name) for name in may_change(base, base.tensors)}]
    digests += [{a: match.checkpoint.digest(b) for a, b in match.names.items() if a in digests[0]} for match in series]
    shared: dict[tuple[str, ...], list[str]] = {}  # pairs by the tensors they share: frozen ones are told once
    for later in range(1, len(compared)):
        for earlier in range(later):
            common = digests[earlier].keys() & digests[later].keys()
            same = [name for name in digests[0] if name in common and digests[earlier][name] == digests[later][name]]
            pair = f"{compared[later].path} and {compared[earlier].path}"
            if common and len(same) == len(common):
                fault(f"{pair} are the same checkpoint: all {len(common)} tensors are identical. Leave one out.")
            elif same and earlier == later - 1:
                shared.setdefault(tuple(same), []).append(pair)
    return [
        f"{pairs[0]}{f', and {len(pairs) - 1} more pairs,' if len(pairs) > 1 else ''} share {len(same)} of "
        f"{len(digests[0])} tensors bit for bit, such as {some(same)}: frozen, or copied by mistake?"
        for same, pairs in shared.items()
    ]


def below_noise(other: Checkpoint, base: Checkpoint, names: Iterable[str]) -> str:
    """The sentence on updates that rounding hides."""
    return (
        f"{other.path} must differ from {base.path} by more than rounding; got an update below the noise floor, not "
        f"measurable in this precision, for {some(names)}. Save the weights in float32."
    )


def may_change(checkpoint: Checkpoint, names: Iterable[str]) -> list[str]:
    """Those tensors that training may change: no masks, no counters, no tables of frequencies."""
    return [name for name in names if checkpoint.tensors[name].floating and not name.endswith(_BUFFERS)]


def aligned(base: Collection[str], other: Collection[str]) -> dict[str, str]:
    """From names in `base` to those in `other`, without one leading part on either side where then more agree."""

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
    """The first parts of names, with their dots, that stand before more than a tenth of them."""
    counts = Counter(f"{name.partition('.')[0]}." for name in names if "." in name)
    return [part for part, count in counts.items() if 10 * count > len(names)]
