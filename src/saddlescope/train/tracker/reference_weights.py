"""Reference weights from a saved checkpoint, for a model whose training has begun."""

from collections.abc import Collection, Mapping
from pathlib import Path

from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope.train.checkpoints.files import Checkpoint
from saddlescope.train.checkpoints.tensor_files import first_few
from saddlescope.train.checkpoints.tensor_matching import align_names
from saddlescope.train.checkpoints.transformers_model import as_loaded
from saddlescope.train.tracker.matrix_selection import canonical_name, unwrap_model


class ReferenceWeights:
    """Matrices of a checkpoint by the parameters of a model; read on request, a few at a time.

    A prefix of the names, such as "transformer.", may exist in only one of the two. Models of Transformers, also inside
    of other modules, read their files by the rules of Transformers, which renames and merges tensors.

    Args:
        path: a file or folder; see `saddlescope.train.checkpoints.Checkpoint`.
        model: the model of the checkpoint.

    Raises:
        InputError: the checkpoint cannot be read.
    """

    def __init__(self, path: str | Path, model: nn.Module) -> None:
        self._checkpoint = Checkpoint.open(path)
        model = unwrap_model(model)
        self._names: dict[int, list[str]] = {}  # of a parameter: several if it is shared; files hold one of them
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self._names.setdefault(id(parameter), []).append(canonical_name(name))
        ours = [name for names in self._names.values() for name in names]
        stored = self._checkpoint
        self._stored = {own: (stored, name) for own, name in align_names(ours, stored.tensors).items()}
        for prefix, inner in _of_transformers(model):
            self._read_as_loaded(prefix, inner)

    def _read_as_loaded(self, prefix: str, inner: nn.Module) -> None:
        """Use the names of a model of Transformers inside the model if it then finds more of its parameters."""
        loaded = as_loaded(self._checkpoint, inner)
        names = {f"{prefix}{name}": name for name in loaded.tensors if name not in loaded.unknown}
        groups = [group for group in self._names.values() if any(name.startswith(prefix) for name in group)]

        def found(stored: Collection[str]) -> int:
            return sum(any(name in stored for name in group) for group in groups)

        if found(names) > found(self._stored):
            rest = {own: one for own, one in self._stored.items() if not own.startswith(prefix)}
            self._stored = rest | {own: (loaded, name) for own, name in names.items()}

    def of(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
        """Return the stored weights of some parameters, in the type in which they are stored.

        Args:
            parameters: parameters by any name.

        Returns:
            Tensors by the same names.

        Raises:
            InputError: the checkpoint lacks one, or has it in another shape.
        """
        stored: dict[str, tuple[Checkpoint, str]] = {}
        for own, parameter in parameters.items():
            names = self._names[id(parameter)]
            found = next((self._stored[name] for name in names if name in self._stored), None)
            if found is None:
                raise InputError(
                    f"initial must hold the weights of the model; got no {names[0]} in {self._checkpoint.path}, which "
                    f"holds {first_few(self._checkpoint.tensors)}."
                )
            checkpoint, name = found
            shape = checkpoint.tensors[name].shape
            if shape != tuple(parameter.shape):
                raise InputError(
                    f"initial must have the shapes of the model; got {name} of shape {shape} in "
                    f"{self._checkpoint.path} for {names[0]} of shape {tuple(parameter.shape)}."
                )
            stored[own] = found
        tensors: dict[tuple[Checkpoint, str], Tensor] = {}
        for source in {checkpoint for checkpoint, _ in stored.values()}:
            read = source.read(name for checkpoint, name in stored.values() if checkpoint is source)
            tensors |= {(source, name): tensor for name, tensor in read.items()}
        return {own: tensors[found] for own, found in stored.items()}


def _of_transformers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the outermost models of Transformers in a model, with the prefixes of their names."""
    found: list[tuple[str, nn.Module]] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(prefix) for prefix, _ in found)
        if not inside and hasattr(module, "base_model_prefix") and hasattr(type(module), "from_pretrained"):
            found.append((f"{canonical_name(name)}." if name else "", module))
    return found
