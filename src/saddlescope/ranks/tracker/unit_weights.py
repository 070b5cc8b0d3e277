"""Weights of the units of a tracker: those that the model has now, and those that were stored.

    unit        what is read at once: an attention layer with both of its products, or a single matrix
    name        of a parameter in the whole model; a parameter that several units share has one name, and is stored once
    stored      the initial weights, or a copy of those at the last record; see `initial_weights`

Reading changes nothing in the model: stored weights take the place of its own only within `functional_call`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.attention_blocks import AttentionBlock
from saddlescope.ranks.attention.head_factors import HeadFactors
from saddlescope.ranks.module_names import canonical_name
from saddlescope.ranks.shards import full_tensor
from saddlescope.ranks.tracker.initial_weights import HeldWeights, InitialWeights, InMemory, Reference
from saddlescope.ranks.tracker.matrix_selection import matrix_of, parameter_name
from saddlescope.ranks.tracker.records import PRODUCTS
from saddlescope.ranks.tracker.tracked_matrices import Weights
from saddlescope.ranks.tracker.unit_owners import UnitOwners


class UnitWeights:
    """Reader of the weights of attention layers and single matrices.

    Names are found once, so build it where shapes are known; see `shapes_only`.

    Args:
        blocks: the attention layers.
        matrices: parameters of the single matrices, by the names of `select_matrices`.
        owners: processes that measure the units; in each, a unit is read where it is owned.

    Attributes:
        matrices: names of the single matrices.
    """

    def __init__(
        self, blocks: Sequence[AttentionBlock], matrices: Mapping[str, nn.Parameter], owners: UnitOwners
    ) -> None:
        self._blocks, self._matrices, self._owners = tuple(blocks), dict(matrices), owners
        self.matrices = tuple(self._matrices)
        self._names: list[dict[str, str]] = []  # of each layer: names in its module, and in the model
        first = {id(parameter): name for name, parameter in self._single_parameters().items()}
        for block in self._blocks:
            prefix = f"{block.name}." if block.name else ""
            read = block.weights | block.buffers
            self._names.append(
                {own: first.setdefault(id(one), canonical_name(f"{prefix}{own}")) for own, one in read.items()}
            )

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that are read, by names for messages."""
        layers = {
            f"{block.label}.{own}": one
            for layer, block in enumerate(self._blocks)
            for own, one in self._read(layer).items()
            if isinstance(one, nn.Parameter)
        }
        return layers | self._single_parameters()

    def layer_of(self, member: int) -> str:
        """Return the name of the layer of a product, for messages."""
        return self._blocks[member // len(PRODUCTS)].label

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
            if self._owners.size == 1:
                present = self._present()
                return (reference or InMemory()).keep(
                    list(present), lambda name: full_tensor(present[name]), rounded=False
                )
            held = self._gathered()
            with self._owners.together():
                return (reference or InMemory()).keep(list(held), held.__getitem__, rounded=False)
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
        if self._owners.size > 1:
            return HeldWeights(self._gathered(), rounded=False)
        present = self._present()
        if earlier is None:
            kept = InMemory().keep(list(present), lambda name: full_tensor(present[name]), rounded=False)
            assert isinstance(kept, HeldWeights)
            return kept
        for name, tensor in earlier.tensors.items():
            tensor.copy_(full_tensor(present[name]))
        return earlier

    def factors(self, layer: int) -> list[Weights] | None:
        """Return the present left and right factors of both products of a layer, in the order KQ, VO.

        None in a process that does not own a layer of a sharded model.
        """
        block = self._blocks[layer]
        if self._owners.size == 1:
            return _products(block.factors())
        gathered = self._owners.gather(self._read(layer), layer)
        return None if gathered is None else _products(block.factors(gathered))

    def stored_factors(self, stored: InitialWeights, layer: int) -> list[Weights]:
        """Return the factors of both products of a layer from stored weights, on the device of the layer."""
        names, block = self._names[layer], self._blocks[layer]
        found, present = stored.of(names.values()), self._read(layer)
        return _products(block.factors({own: found[name].to(present[own].device) for own, name in names.items()}))

    def matrix(self, number: int) -> list[Weights] | None:
        """Return a single matrix; None in a process that does not own it."""
        name = self.matrices[number]
        gathered = self._owners.gather({name: self._matrices[name]}, number)
        return None if gathered is None else [(matrix_of(name, gathered[name]),)]

    def stored_matrix(self, stored: InitialWeights, number: int) -> list[Weights]:
        """Return a single matrix from stored weights, on the device of the matrix."""
        name = self.matrices[number]
        found = stored.of([whole := parameter_name(name)])[whole]
        return [(matrix_of(name, found).to(self._matrices[name].device),)]

    def _require_no_spectral_norm(self, reference: Reference | None) -> None:
        """Raise InputError if a layer has a spectral norm, whose vectors have the type of the weights."""
        for layer, block in enumerate(self._blocks):
            if not all(isinstance(one, nn.Parameter) for one in self._read(layer).values()):
                raise InputError(
                    f"reference must keep the type of weights with a spectral norm; got {reference!r} for "
                    f"{block.label}. Pass InMemory() or OnDisk(folder)."
                )

    def _read(self, layer: int) -> dict[str, Tensor]:
        """Return the present tensors that the factors of a layer depend on, by their names in its module."""
        module = self._blocks[layer].module
        present: dict[str, Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return {own: present[own] for own in self._names[layer]}

    def _single_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters of the single matrices, each once: experts of a mixture share theirs."""
        return {parameter_name(name): parameter for name, parameter in self._matrices.items()}

    def _owned(self) -> list[str]:
        """Return the names of the parameters of the units that this process owns, each once."""
        layers = filter(self._owners.owns, range(len(self._blocks)))
        singles = filter(self._owners.owns, range(len(self.matrices)))
        names = dict.fromkeys(name for layer in layers for name in self._names[layer].values())
        return [*(names | dict.fromkeys(parameter_name(self.matrices[number]) for number in singles))]

    def _present(self) -> dict[str, Tensor]:
        """Return the present parameters of all units by name."""
        found: dict[str, Tensor] = {}
        for layer, names in enumerate(self._names):
            found |= {names[own]: one for own, one in self._read(layer).items()}
        return found | self._single_parameters()

    def _gathered(self) -> dict[str, Tensor]:
        """Return copies of the weights of the owned units on the host; all processes take part."""
        held: dict[str, Tensor] = {}
        for layer, names in enumerate(self._names):
            found = self._owners.gather(self._read(layer), layer) or {}
            held |= {names[own]: tensor.to("cpu", copy=True) for own, tensor in found.items()}
        for number, name in enumerate(self.matrices):
            found = self._owners.gather({parameter_name(name): self._matrices[name]}, number) or {}
            held |= {name: tensor.to("cpu", copy=True) for name, tensor in found.items() if name not in held}
        return held


def _products(factors: HeadFactors) -> list[Weights]:
    return [factors.product(index) for index in range(len(PRODUCTS))]
