"""Reference weights from a saved checkpoint, for a model whose training has begun."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from saddlescope._shared.errors import InputError
from saddlescope.train.checkpoints.files import Checkpoint
from saddlescope.train.checkpoints.tensor_files import first_few
from saddlescope.train.checkpoints.tensor_matching import align_names
from saddlescope.train.tracker.matrix_selection import canonical_name, unwrap_model


class ReferenceWeights:
    """Matrices of a checkpoint by the parameters of a model; read on request, a few at a time.

    A prefix of the names, such as "transformer.", may exist in only one of the two.

    Args:
        path: a file or folder; see `saddlescope.train.checkpoints.Checkpoint`.
        model: the model of the checkpoint.

    Raises:
        InputError: the checkpoint cannot be read.
    """

    def __init__(self, path: str | Path, model: nn.Module) -> None:
        self._checkpoint = Checkpoint.open(path)
        self._names: dict[int, list[str]] = {}  # of a parameter: several if it is shared; files hold one of them
        for name, parameter in unwrap_model(model).named_parameters(remove_duplicate=False):
            self._names.setdefault(id(parameter), []).append(canonical_name(name))
        ours = [name for names in self._names.values() for name in names]
        self._stored = align_names(ours, self._checkpoint.tensors)

    def of(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
        """Return the stored weights of some parameters, in the type in which they are stored.

        Args:
            parameters: parameters by any name.

        Returns:
            Tensors by the same names.

        Raises:
            InputError: the checkpoint lacks one, or has it in another shape.
        """
        stored: dict[str, str] = {}
        for own, parameter in parameters.items():
            names = self._names[id(parameter)]
            found = next((self._stored[name] for name in names if name in self._stored), None)
            if found is None:
                raise InputError(
                    f"initial must hold the weights of the model; got no {names[0]} in {self._checkpoint.path}, which "
                    f"holds {first_few(self._checkpoint.tensors)}."
                )
            shape = self._checkpoint.tensors[found].shape
            if shape != tuple(parameter.shape):
                raise InputError(
                    f"initial must have the shapes of the model; got {found} of shape {shape} in "
                    f"{self._checkpoint.path} for {names[0]} of shape {tuple(parameter.shape)}."
                )
            stored[own] = found
        tensors = self._checkpoint.read(stored.values())
        return {own: tensors[found] for own, found in stored.items()}
