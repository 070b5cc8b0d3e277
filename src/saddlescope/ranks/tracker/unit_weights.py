"""Units that are measured, and the weights of those of a tracker: those that the model has now, and stored ones.

    unit        what is read at once: an attention layer with both of its products, or a single matrix
    name        of a parameter in the whole model; a parameter that several units share has one name, and is stored once
    stored      the initial weights, or a copy of those at the last record; see `initial_weights`

Reading changes nothing in the model: stored weights take the place of its own only within `functional_call`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.attention_blocks import AttentionBlock
from saddlescope.ranks.module_names import canonical_name
from saddlescope.ranks.shards import full_tensor
from saddlescope.ranks.tracker.initial_weights import HeldWeights, InitialWeights, InMemory, Reference
from saddlescope.ranks.tracker.matrix_selection import matrix_of, parameter_name
from saddlescope.ranks.tracker.records import PRODUCTS
from saddlescope.ranks.tracker.tracked_matrices import Weights
from saddlescope.ranks.tracker.unit_owners import UnitOwners


@dataclass(frozen=True, eq=False)
class Unit:
    """Attention layer, or single matrix.

    Attributes:
        name: name of the attention module, or of the matrix.
        label: name for messages.
        heads: number of heads of a layer; None for a matrix.
        names: names in the whole model of the tensors that it depends on, by their own names.
        present: function that returns these tensors by their own names.
        members: function from other tensors in their place, or None, to the weights of the members: the left and right
            factors of both products of a layer, in the order KQ, VO; or the matrix.
    """

    name: str
    label: str
    heads: int | None
    names: Mapping[str, str]
    present: Callable[[], dict[str, Tensor]]
    members: Callable[[Mapping[str, Tensor] | None], list[Weights]]


def layer_unit(block: AttentionBlock, *, buffers: bool = True) -> Unit:
    """Return the unit of an attention layer; names are found once, so call it where shapes are known.

    Args:
        block: the layer.
        buffers: True for the vectors of spectral norms, too.
    """
    prefix, module = f"{block.name}." if block.name else "", block.module
    own = [*block.weights, *(block.buffers if buffers else ())]

    def present() -> dict[str, Tensor]:
        found: dict[str, Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return {name: found[name] for name in own}

    def members(tensors: Mapping[str, Tensor] | None) -> list[Weights]:
        factors = block.factors(tensors)
        return [factors.product(index) for index in range(len(PRODUCTS))]

    names = {name: canonical_name(f"{prefix}{name}") for name in own}
    return Unit(block.name, block.label, block.heads, names, present, members)


def matrix_unit(name: str, parameter: nn.Parameter) -> Unit:
    """Return the unit of a single matrix, by its name of `select_matrices` and its parameter."""
    whole = parameter_name(name)

    def members(tensors: Mapping[str, Tensor] | None) -> list[Weights]:
        return [(matrix_of(name, full_tensor(parameter) if tensors is None else tensors[whole]),)]

    return Unit(name, name, None, {whole: whole}, lambda: {whole: parameter}, members)


class UnitWeights:
    """Reader of the weights of units.

    Args:
        layers: the attention layers.
        matrices: the single matrices.
        owners: processes that measure the units; in each, a unit is read where it is owned.

    Attributes:
        layers, matrices: the units.
    """

    def __init__(self, layers: Sequence[Unit], matrices: Sequence[Unit], owners: UnitOwners) -> None:
        self._owners = owners
        first: dict[int, str] = {}

        def shared(unit: Unit) -> Unit:
            present = unit.present()
            return replace(unit, names={own: first.setdefault(id(present[own]), name)
                                        for own, name in unit.names.items()})  # fmt: skip

        self.matrices = tuple(map(shared, matrices))
        self.layers = tuple(map(shared, layers))

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that are read, by name."""
        return {name: one for name, one in self._present().items() if isinstance(one, nn.Parameter)}

    def now(self, units: Sequence[Unit], number: int) -> list[Weights] | None:
        """Return the present weights of a unit; None in a process that does not own it."""
        if self._owners.size == 1:
            return units[number].members(None)
        gathered = self._owners.gather(units[number].present(), number)
        return None if gathered is None else units[number].members(gathered)

    def then(self, units: Sequence[Unit], stored: InitialWeights, number: int) -> list[Weights]:
        """Return stored weights of a unit, on its device."""
        unit = units[number]
        found, present = stored.of(unit.names.values()), unit.present()
        return unit.members({own: found[name].to(present[own].device) for own, name in unit.names.items()})

    def store(self, model: nn.Module, initial: object, reference: Reference | None) -> InitialWeights:
        """Store the present weights of the owned units as the initial ones, or find those in a checkpoint.

        All processes take part.

        Args:
            model: the model.
            initial: the checkpoint; None stores the present weights.
            reference: place of the weights; None keeps them in memory, or in the checkpoint.

        Raises:
            InputError: a checkpoint of another model, a folder that cannot be written to, or a shorter type for weights
                with a spectral norm.
        """
        if getattr(reference, "dtype", None) is not None:
            self._require_no_spectral_norm(reference)
        if initial is None:
            weights = self._present() if self._owners.size == 1 else self._gathered()
            with self._owners.together():
                return (reference or InMemory()).keep(
                    list(weights), lambda name: full_tensor(weights[name]), rounded=False
                )
        from saddlescope.ranks.tracker.reference_weights import weights_in_checkpoint  # imports the checkpoint readers

        with self._owners.together():
            names = self._owned()
            stored = weights_in_checkpoint(initial, model, names)
            if reference is None and isinstance(initial, str | Path):
                return stored  # weights in memory may change with the model
            return (reference or InMemory()).keep(names, lambda name: stored.of([name])[name], rounded=stored.rounded)

    def copied(self, earlier: HeldWeights | None) -> HeldWeights:
        """Return a copy of the present weights of the owned units on the host; all processes take part.

        Args:
            earlier: an earlier copy, which may be overwritten and returned.
        """
        if self._owners.size > 1 or earlier is None:
            return HeldWeights(self._gathered(), rounded=False)
        present = self._present()
        for name, tensor in earlier.tensors.items():
            tensor.copy_(full_tensor(present[name]))
        return earlier

    def _require_no_spectral_norm(self, reference: Reference | None) -> None:
        """Raise InputError if a layer has a spectral norm, whose vectors have the type of the weights."""
        for unit in self.layers:
            if not all(isinstance(one, nn.Parameter) for one in unit.present().values()):
                raise InputError(
                    f"reference must keep the type of weights with a spectral norm; got {reference!r} for "
                    f"{unit.label}. Pass InMemory() or OnDisk(folder)."
                )

    def _numbered(self) -> list[tuple[int, Unit]]:
        return [*enumerate(self.layers), *enumerate(self.matrices)]

    def _owned(self) -> list[str]:
        """Return the names of the parameters of the units that this process owns, each once."""
        owned = (unit for number, unit in self._numbered() if self._owners.owns(number))
        return list(dict.fromkeys(name for unit in owned for name in unit.names.values()))

    def _present(self) -> dict[str, Tensor]:
        """Return the present parameters of all units by name."""
        return {unit.names[own]: one for _, unit in self._numbered() for own, one in unit.present().items()}

    def _gathered(self) -> dict[str, Tensor]:
        """Return copies of the weights of the owned units on the host; all processes take part."""
        held: dict[str, Tensor] = {}
        for number, unit in self._numbered():
            found = self._owners.gather(unit.present(), number) or {}
            new = {unit.names[own]: tensor for own, tensor in found.items() if unit.names[own] not in held}
            held |= {name: tensor.to("cpu", copy=True) for name, tensor in new.items()}
        return held
