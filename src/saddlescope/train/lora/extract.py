"""From two checkpoints to an adapter: the update of each linear layer, cut at the rank that its spectrum asks for.

Memory holds one matrix of two checkpoints at a time, and the adapter. What an adapter cannot hold (changed biases,
norms, embeddings) is told.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure import energy_rank, update_noise_floor
from saddlescope.train.checkpoints.files import Checkpoint, refuse, refuse_broken
from saddlescope.train.checkpoints.series import Matched, below_noise, matched, may_change
from saddlescope.train.checkpoints.skeleton import skeleton, transposed_layers
from saddlescope.train.lora.adapter import LoraFactors, refuse_foreign, write_adapter
from saddlescope.train.lora.best import BestFactors
from saddlescope.train.lora.pretrained import names_in_model
from saddlescope.train.tracker.weight_matrices import Choice, chosen_matrices

_NOT_LINEAR = ("wte", "wpe", "shared", "relative_attention_bias", "lm_head", "embed_out")


@dataclass(frozen=True, eq=False, repr=False)
class CutLayer(ReprMixin):
    """The update of one linear layer, and where it was cut.

    Attributes:
        name: of the module in the model.
        shape: of its weight as stored.
        values: singular values of the update, descending.
        rank: of the adapter; 0 where there is none.
    """

    name: str
    shape: tuple[int, int]
    values: Float[np.ndarray, " values"]
    rank: int

    @property
    def energy(self) -> float:
        """|W - W0|_F^2."""
        return float((self.values**2).sum())

    def kept(self, rank: int | None = None) -> float:
        """The part of the energy that a rank keeps; without one, that of the adapter. 1 where nothing changed."""
        rank = self.rank if rank is None else rank
        return float((self.values[:rank] ** 2).sum()) / self.energy if self.energy else 1.0


@dataclass(frozen=True, eq=False, repr=False)
class Extraction(ReprMixin):
    """An adapter that was extracted.

    Attributes:
        folder: where it lies.
        layers: the linear layers that were looked at.
        left_out: names of changed tensors that no adapter of linear layers holds.
    """

    folder: Path
    layers: tuple[CutLayer, ...]
    left_out: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """Of the adapter."""
        return sum(layer.rank * sum(layer.shape) for layer in self.layers)

    @property
    def kept(self) -> float:
        """The part of the energy of all layers together that the adapter keeps."""
        return self._share([layer.kept() for layer in self.layers])

    def at_rank(self, rank: int) -> tuple[float, float, int]:
        """What one rank for all layers would keep: the part of all energy, the least of a layer, and parameters."""
        kept = [layer.kept(rank) for layer in self.layers]
        parameters = sum(min(rank, *layer.shape) * sum(layer.shape) for layer in self.layers)
        return self._share(kept), min(kept), parameters

    def _share(self, kept: Sequence[float]) -> float:
        total = sum(layer.energy for layer in self.layers)
        return sum(share * layer.energy for share, layer in zip(kept, self.layers, strict=True)) / total


@validate_arguments
def extract_lora(
    base: str | Path,
    tuned: str | Path,
    out: str | Path,
    *,
    energy: float | None = None,
    rank: int | None = None,
    matrices: Choice | None = None,
    report: Callable[[float, str], None] = lambda fraction, note: None,
    fault: Callable[[str], None] = refuse,
) -> Extraction:
    """Writes the best adapter from one checkpoint to another, in the form that PEFT loads.

    Args:
        base: the checkpoint at the start; see `saddlescope.train.checkpoints.checkpoint_spectra`.
        tuned: the checkpoint after training.
        out: folder of the adapter; an earlier one there is replaced.
        energy: part of |W - W0|_F^2 that each layer keeps, greater than 0, at most 1: its rank is the least that does.
        rank: of every layer, in place of `energy`.
        matrices: which weights; see `saddlescope.train.tracker.weight_matrices`. None takes all matrices but embeddings and heads of
            language models.
        report: called with the finished fraction and a note.
        fault: called with a sentence on a layer that cannot be used, which gets no adapter. The default raises.

    Raises:
        InputError: files, names or numbers that cannot be used, or checkpoints that do not differ.
    """
    if (energy is None) == (rank is None):
        raise InputError("energy or rank must be given, one of them; give --energy 0.95 or --rank 8, for example.")
    if energy is not None and not 0 < energy <= 1:
        raise InputError(f"energy must be greater than 0 and at most 1; got {energy!r}.")
    if rank is not None and rank < 1:
        raise InputError(f"rank must be at least 1; got {rank!r}.")
    out = Path(out)
    refuse_foreign(out)
    start, end = Checkpoint.open(base, fault=fault), Checkpoint.open(tuned, fault=fault)
    shapes = {name: stored.shape for name, stored in start.tensors.items() if stored.floating}
    model = skeleton(shapes, {}, 1)  # heads do not matter here
    chosen = tuple(chosen_matrices(model, _is_linear if matrices is None else matrices))
    if odd := [name for name in chosen if not name.endswith(".weight")]:
        raise InputError(f"matrices must choose weights of linear layers, which adapters are made for; got {odd[0]}.")
    match = matched(start, end, chosen, fault)
    modules = names_in_model(start, [name.removesuffix(".weight") for name in chosen])
    transposed = transposed_layers(shapes)
    layers: list[CutLayer] = []
    factors: dict[str, LoraFactors] = {}
    for number, name in enumerate(chosen):
        report(number / (len(chosen) + 1), name)
        if name not in match.names:
            continue  # told when the names were matched
        try:
            values, B, A = _cut(name, start, match, energy, rank)
        except InputError as error:
            fault(str(error))
            continue
        module = modules[name.removesuffix(".weight")]
        layers.append(CutLayer(module, (B.shape[0], A.shape[1]), values, B.shape[1]))
        if B.shape[1]:
            flip = name.removesuffix(".weight") in transposed
            factors[module] = LoraFactors(B.T.contiguous(), A.T.contiguous()) if flip else LoraFactors(A, B)
    if not factors:
        raise InputError(f"{tuned} must differ from {base} in a linear layer; got no update that can be measured.")
    report(len(chosen) / (len(chosen) + 1), "comparing all other tensors")
    left_out = _changed(start, match, set(chosen))
    flipped = {name in transposed for name in (n.removesuffix(".weight") for n in chosen)} == {True}
    write_adapter(out, factors, base=str(base), transposed=flipped)
    report(1.0, "done")
    return Extraction(out, tuple(layers), left_out)


def _is_linear(name: str, parameter: nn.Parameter) -> bool:
    own = name.removesuffix(".weight").rpartition(".")[2]
    return name.endswith(".weight") and "embed" not in own and own not in _NOT_LINEAR


@torch.no_grad()
def _cut(
    name: str, start: Checkpoint, match: Matched, energy: float | None, rank: int | None
) -> tuple[np.ndarray, torch.Tensor, torch.Tensor]:
    """Singular values, and the factors at the rank asked for; of rank 0 where nothing changed."""
    before = start.read([name])[name]
    after = match.checkpoint.read([match.names[name]])[match.names[name]]
    for checkpoint, weight in ((start, before), (match.checkpoint, after)):
        refuse_broken(checkpoint.path, name, weight)
    update = after.double() - before.double()
    best = BestFactors.of(update)
    values = best.values.numpy()
    if values[0] > 0 and not values[0] > float(update_noise_floor(after, before)):
        raise InputError(below_noise(match.checkpoint, start, [name]))
    if values[0] == 0:
        wanted = 0
    elif energy is not None:
        wanted = int(energy_rank(values, fraction=energy))
    else:
        wanted = min(rank or 0, len(values))
    B, A = best.cut(wanted)
    return values, B.float(), A.float()


def _changed(start: Checkpoint, match: Matched, chosen: set[str]) -> tuple[str, ...]:
    rest = (name for name in may_change(start, match.names) if name not in chosen)
    return tuple(name for name in rest if start.digest(name) != match.checkpoint.digest(match.names[name]))
