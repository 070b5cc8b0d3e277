"""Extraction of an adapter from two checkpoints: the update of each linear layer, truncated at a rank by its spectrum.

Memory holds one matrix of two checkpoints at a time, and the adapter. Changes that an adapter cannot hold (biases,
norms, embeddings) are reported.
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
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.measure import energy_rank, update_noise_floor
from saddlescope.train.checkpoints.empty_model import empty_model, transposed_layers
from saddlescope.train.checkpoints.files import Checkpoint, raise_error, require_finite
from saddlescope.train.checkpoints.head_counts import HeadCounts
from saddlescope.train.checkpoints.tensor_matching import (
    MatchedCheckpoint,
    below_noise_message,
    match_tensors,
    trainable_tensors,
)
from saddlescope.train.lora.adapter import LoraFactors, refuse_foreign, write_adapter
from saddlescope.train.lora.pretrained import model_module_names
from saddlescope.train.lora.truncated_svd import TruncatedSVD
from saddlescope.train.tracker.matrix_selection import MatrixSelection, select_matrices

_NOT_LINEAR = ("wte", "wpe", "shared", "relative_attention_bias", "lm_head", "embed_out")


@dataclass(frozen=True, eq=False, repr=False)
class ExtractedLayer(ReprMixin):
    """Update of one linear layer, and the rank of its adapter.

    Attributes:
        name: name of the module in the model.
        shape: shape of its weight as stored.
        values: singular values of the update, descending.
        rank: rank of the adapter; 0 without an adapter.
    """

    name: str
    shape: tuple[int, int]
    values: Float[np.ndarray, " values"]
    rank: int

    @property
    def energy(self) -> float:
        """Energy of the update, |W - W0|_F^2."""
        return float((self.values**2).sum())

    def captured_energy(self, rank: int | None = None) -> float:
        """Return the fraction of the energy at this rank (default: the adapter's); 1 if nothing changed."""
        rank = self.rank if rank is None else rank
        return float((self.values[:rank] ** 2).sum()) / self.energy if self.energy else 1.0


@dataclass(frozen=True, eq=False, repr=False)
class Extraction(ReprMixin):
    """Result of `extract_lora`.

    Attributes:
        folder: folder of the adapter.
        layers: the linear layers that were examined.
        left_out: names of changed tensors that no adapter of linear layers holds.
    """

    folder: Path
    layers: tuple[ExtractedLayer, ...]
    left_out: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """Number of parameters of the adapter."""
        return sum(layer.rank * sum(layer.shape) for layer in self.layers)

    @property
    def captured_energy(self) -> float:
        """Fraction of the energy of all layers together that the adapter captures."""
        return self._mean([layer.captured_energy() for layer in self.layers])

    def at_rank(self, rank: int) -> tuple[float, float, int]:
        """Return captured energy overall, its minimum over layers, and parameters, for one rank in all layers."""
        captured = [layer.captured_energy(rank) for layer in self.layers]
        parameters = sum(min(rank, *layer.shape) * sum(layer.shape) for layer in self.layers)
        return self._mean(captured), min(captured), parameters

    def _mean(self, captured: Sequence[float]) -> float:
        """Return the mean of fractions of energy, weighted by the energies of the layers."""
        total = sum(layer.energy for layer in self.layers)
        return sum(fraction * layer.energy for fraction, layer in zip(captured, self.layers, strict=True)) / total


@validate_arguments
def extract_lora(
    base: str | Path,
    tuned: str | Path,
    out: str | Path,
    *,
    energy: float | None = None,
    rank: int | None = None,
    matrices: MatrixSelection | None = None,
    report: Report = silent,
    on_error: Callable[[str], None] = raise_error,
) -> Extraction:
    """Write the best adapter from one checkpoint to another, in the format of PEFT.

    Args:
        base: the checkpoint at the start; see `saddlescope.train.checkpoints.checkpoint_spectra`.
        tuned: the checkpoint after training.
        out: folder of the adapter; an earlier one there is replaced.
        energy: fraction of |W - W0|_F^2 that each layer captures at least, in (0, 1]; determines its rank.
        rank: rank of every layer, in place of `energy`.
        matrices: selection of weights; see `saddlescope.train.tracker.matrix_selection`. None selects all matrices but
            embeddings and heads of language models.
        report: called with the finished fraction and a note.
        on_error: called with a sentence on each layer that cannot be used, which gets no adapter. The default raises.

    Raises:
        InputError: files, names or numbers that cannot be used, or checkpoints that do not differ.
    """
    if (energy is None) == (rank is None):
        raise InputError(
            "energy or rank must be given, and only one of them. Pass --energy 0.95 or --rank 8, for example."
        )
    if energy is not None and not 0 < energy <= 1:
        raise InputError(f"energy must be greater than 0 and at most 1; got {energy!r}.")
    if rank is not None and rank < 1:
        raise InputError(f"rank must be at least 1; got {rank!r}.")
    out = Path(out)
    refuse_foreign(out)
    start, end = Checkpoint.open(base, on_error=on_error), Checkpoint.open(tuned, on_error=on_error)
    shapes = {name: stored.shape for name, stored in start.tensors.items() if stored.floating}
    model = empty_model(shapes, HeadCounts({}, 1))  # heads do not matter here
    chosen = tuple(select_matrices(model, _is_linear if matrices is None else matrices))
    if odd := [name for name in chosen if not name.endswith(".weight")]:
        raise InputError(
            f"matrices must select weights of linear layers, since adapters exist only for these; got {odd[0]}."
        )
    match = match_tensors(start, end, chosen, on_error)
    modules = model_module_names(start, [name.removesuffix(".weight") for name in chosen])
    transposed = transposed_layers(shapes)
    layers: list[ExtractedLayer] = []
    factors: dict[str, LoraFactors] = {}
    for number, name in enumerate(chosen):
        report(number / (len(chosen) + 1), name)
        if name not in match.names:
            continue  # reported when the names were matched
        try:
            values, B, A = _decompose(name, start, match, energy, rank)
        except InputError as error:
            on_error(str(error))
            continue
        module = modules[name.removesuffix(".weight")]
        layers.append(ExtractedLayer(module, (B.shape[0], A.shape[1]), values, B.shape[1]))
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
def _decompose(
    name: str, start: Checkpoint, match: MatchedCheckpoint, energy: float | None, rank: int | None
) -> tuple[np.ndarray, torch.Tensor, torch.Tensor]:
    """Return singular values, and the factors at the requested rank; of rank 0 if nothing changed."""
    before = start.read([name])[name]
    after = match.checkpoint.read([match.names[name]])[match.names[name]]
    for checkpoint, weight in ((start, before), (match.checkpoint, after)):
        require_finite(checkpoint.path, name, weight)
    update = after.double() - before.double()
    svd = TruncatedSVD.of(update)
    values = svd.values.numpy()
    if values[0] > 0 and not values[0] > float(update_noise_floor(after, before)):
        raise InputError(below_noise_message(match.checkpoint, start, [name]))
    if values[0] == 0:
        truncation = 0
    elif energy is not None:
        truncation = int(energy_rank(values, fraction=energy))
    else:
        truncation = min(rank or 0, len(values))
    B, A = svd.truncate(truncation)
    return values, B.float(), A.float()


def _changed(start: Checkpoint, match: MatchedCheckpoint, chosen: set[str]) -> tuple[str, ...]:
    rest = (name for name in trainable_tensors(start, match.names) if name not in chosen)
    return tuple(name for name in rest if start.digest(name) != match.checkpoint.digest(match.names[name]))
