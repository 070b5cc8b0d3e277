"""State of a tracker: all that a resumed run needs, as tensors and plain values, with the version of its format.

version     2; states of version 1 have no number, and the same content but for options that did not exist. They
            can be restored if they are complete
weights     the initial weights by name, or their digest if they are in a file
heads       spectra at the start and subspaces of the last record, of the products; `single`: of single matrices
records     spectra of the updates at each record, of the products and of single matrices
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from saddlescope._shared.arguments import shown
from saddlescope._shared.errors import InputError
from saddlescope.ranks.module_names import first_few
from saddlescope.ranks.state_files import OldStateError
from saddlescope.ranks.tracker.initial_weights import HeldWeights, InitialWeights, OnDisk, Reference
from saddlescope.ranks.tracker.singular_vectors import Bases
from saddlescope.ranks.tracker.tracked_matrices import Record, TrackedMatrices, as_tensors, from_tensors
from saddlescope.ranks.tracker.unit_owners import UnitOwners

VERSION = 2
_CONTENT = (
    "layers", "matrices", "made", "stepped", "steps", "weights", "digest", "rounded", "heads", "single", "records",
    "increments", "previous",
)  # fmt: skip
_WITH = {True: "with", False: "without"}


def require_version(state: Mapping[str, Any]) -> None:
    """Raise InputError for what is no state, OldStateError for a state of an earlier or later format."""
    if not isinstance(state, Mapping):
        raise InputError(f"state must be that of RankTracker.state_dict(); got {shown(state)}.")
    version = state.get("version", 1)
    if version not in (1, VERSION):
        raise OldStateError(
            f"state must be of version {VERSION}; got version {version!r}, which a later version of saddlescope saved. "
            "Install that version to resume, or train from the start without this state."
        )
    absent = [name for name in _CONTENT if name not in state]
    absent += [f"{kind}.{name}" for kind in ("heads", "single") for name in ("initial", "former")
               if kind in state and name not in state[kind]]  # fmt: skip
    if absent:
        raise OldStateError(
            f"state must be of version {VERSION}; got one that an earlier version of saddlescope saved, without "
            f"{', '.join(absent)}. Resume with the version that saved it, or train from the start without this state."
        )


def require_fit(
    state: Mapping[str, Any],
    *,
    layers: Sequence[str],
    matrices: Sequence[str],
    kinds: Mapping[str, TrackedMatrices],
    increments: bool,
    weights: Collection[str],
) -> None:
    """Raise InputError unless a state is of a tracker of the same matrices and with the same options."""
    theirs, ours = (*state["layers"], *state["matrices"]), (*layers, *matrices)
    if theirs != ours:
        raise InputError(
            "state must be of a tracker of the same layers and matrices; got one "
            f"{_differing(theirs, ours)}. Build the tracker with the model and the options of the first run."
        )
    unfit = [name for name, kind in kinds.items() if not kind.fits(state[name])]
    if unfit:
        what = " and ".join("attention heads" if name == "heads" else "single matrices" for name in unfit)
        raise InputError(
            "state must be of matrices of the same shapes, recorded with the same options; got other numbers of heads, "
            f"values, angles or orders of the {what}. Build the tracker with the model and the options of the first "
            "run."
        )
    if len(state["steps"]) and increments != bool(state["increments"]):
        raise InputError(
            f"state must be of a tracker {_WITH[increments]} Increments among its recorders; got one "
            f"{_WITH[not increments]}. Build the tracker as in the first run."
        )
    if state["digest"] is None and (absent := [name for name in weights if name not in state["weights"]]):
        raise InputError(
            f"state must have the initial weights of the model; got one without {absent[0]}, from a process that "
            "measures only some of the layers. Load the state of the first process."
        )


def _differing(theirs: Sequence[str], ours: Sequence[str]) -> str:
    """Return the first names that only one of two trackers has."""
    more = [name or "the model itself" for name in theirs if name not in ours]
    fewer = [name or "the model itself" for name in ours if name not in theirs]
    parts = [f"{word} {first_few(names, 1)}" for word, names in (("with", more), ("without", fewer)) if names]
    return " and ".join(parts) or "of them in another order"


def weights_state(held: InitialWeights, owners: UnitOwners, folder: str | Path | None) -> dict[str, Any]:
    """Return the initial weights, or the digest of their file.

    Args:
        held: the weights.
        owners: processes that hold them.
        folder: folder for a file of weights that are in memory; None makes them part of the state.
    """
    digest = None
    if owners.size == 1 and (folder is not None or not isinstance(held, HeldWeights)):
        digest = held.digest()
    if owners.size == 1 and folder is not None and isinstance(held, HeldWeights):
        from saddlescope.ranks.tracker.reference_weights import StoredWeights  # imports the checkpoint readers

        StoredWeights.write(held.names, held.tensors.__getitem__, folder, rounded=held.rounded)
    return {"weights": owners.collect(held.of(held.names)) if digest is None else {}, "digest": digest}


def restored_weights(
    state: Mapping[str, Any], found: InitialWeights, reference: Reference | None, folder: str | Path | None
) -> InitialWeights:
    """Return the initial weights of a state: its own, those that the tracker has, or those in a file.

    Args:
        state: the state.
        found: weights of the model when the tracker was built.
        reference: place of the initial weights.
        folder: folder with the file to which the state refers; None looks in that of `OnDisk`.

    Raises:
        InputError: the file is missing.
    """
    digest, rounded, names = state["digest"], state["rounded"], found.names
    if digest is None:
        return HeldWeights({name: state["weights"][name].clone() for name in names}, rounded=rounded)
    if found.digest() == digest and found.rounded == rounded:
        return found
    from saddlescope.ranks.tracker.reference_weights import StoredWeights, file_of, read_from_folder

    own = reference.folder if isinstance(reference, OnDisk) else None
    folders = [place for place in (folder, own) if place is not None]
    for place in folders:
        if (stored := read_from_folder(place, digest, names, rounded=rounded)) is not None:
            if own is None:
                return HeldWeights({name: one.clone() for name, one in stored.of(names).items()}, rounded=rounded)
            if isinstance(found, StoredWeights) and found.created:
                found.path.unlink()  # the weights of the moment of resumption, which nobody needs
            return stored
    raise InputError(
        f"The initial weights of the state must be in {file_of('', digest)}; got no such file in "
        f"{' or '.join(map(str, folders)) or 'any folder: pass folder='}. Copy it there, or pass the checkpoint "
        "that updates were counted from as initial= again."
    )


def records_state(products: Sequence[Record], single: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the records of products and of single matrices as tensors."""
    pairs = list(zip(products, single, strict=True))
    since = [[as_tensors(one.increment) for one in pair if one.increment is not None] for pair in pairs]
    return {
        "records": [[as_tensors(one.update) for one in pair] for pair in pairs],
        "increments": [increments for increments in since if increments],
        "vectors": [
            [pair[0].step, *({member: bases.tensors() for member, bases in one.vectors.items()} for one in pair)]
            for pair in pairs
        ],
    }


def restored_records(state: Mapping[str, Any]) -> tuple[list[Record], list[Record]]:
    """Return the records of products and of single matrices of a state; states without vectors have none."""
    vectors = {step: kinds for step, *kinds in state.get("vectors", [])}

    def record(number: int, step: int, kind: int) -> Record:
        increments = state["increments"]
        return Record(
            step,
            from_tensors(state["records"][number][kind]),
            from_tensors(increments[number][kind]) if increments else None,
            {member: Bases.of(one) for member, one in vectors.get(step, ({}, {}))[kind].items()},
            {},
        )

    steps = state["steps"].tolist()
    products, single = ([record(number, step, kind) for number, step in enumerate(steps)] for kind in (0, 1))
    return products, single
