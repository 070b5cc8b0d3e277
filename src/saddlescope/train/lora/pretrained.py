"""Models of Transformers in a folder: the names of their modules, and the models themselves."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope.train.checkpoints.files import Checkpoint
from saddlescope.train.checkpoints.tensor_files import first_few


def model_module_names(checkpoint: Checkpoint, modules: Sequence[str]) -> dict[str, str]:
    """Return the names that modules of a checkpoint have in its model.

    They differ if the file was saved from the inner model: GPT-2's published file has h.0, its model transformer.h.0.
    Without a config.json that Transformers can read, or without Transformers, names are unchanged.

    Args:
        checkpoint: checkpoint with the modules.
        modules: names of linear layers.

    Raises:
        InputError: the model lacks one of the modules.
    """
    kind = _model_class(checkpoint.path, checkpoint.config)
    if kind is None:
        return {name: name for name in modules}
    try:
        with torch.device("meta"):
            model = kind(kind.config_class.from_dict(checkpoint.config))
    except Exception as error:  # a configuration can be wrong in any way
        raise InputError(
            f"{checkpoint.path} must have a config.json of {kind.__name__}; got one that does not build it: {error}."
        ) from error
    known = {name for name, _ in model.named_modules()}
    prefix = f"{model.base_model_prefix}."
    found = {name: next((n for n in (name, prefix + name) if n in known), "") for name in modules}
    if absent := [name for name, full in found.items() if not full]:
        raise InputError(
            f"{checkpoint.path} must hold the modules of {kind.__name__}, as its config.json states; got "
            f"{first_few(absent)}, "
            "which it does not have."
        )
    return found


def load_model(folder: Path) -> Any:
    """Load the model in a folder, in float32 and evaluation mode.

    Raises:
        InputError: config.json is missing or unknown to Transformers, or the weights do not fit it.
        MissingExtraError: Transformers is not installed.
    """
    config = Checkpoint.open(folder).config if folder.is_dir() else {}
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise MissingExtraError("The error of the logits", "Transformers", "language") from error
    kind = _model_class(folder, config)
    if kind is None:
        raise InputError(
            f"{folder} must be a folder with a config.json of a model of Transformers {transformers.__version__}."
        )
    try:
        with _no_progress_bars():
            model, loading = kind.from_pretrained(
                folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
            )
    except Exception as error:  # files and configurations can be wrong in any way
        raise InputError(
            f"{folder} must hold the weights of {kind.__name__}; got {str(error).splitlines()[0]}."
        ) from error
    if missing := loading["missing_keys"]:
        raise InputError(
            f"{folder} must hold all weights of {kind.__name__}; got none of {first_few(sorted(missing))}."
        )
    return model.eval()


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Silence the progress bars of Transformers, which would interrupt our own output."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _model_class(path: Path, config: dict[str, Any]) -> Any:
    """Return the class that config.json names, or None if Transformers does not have it."""
    names = config.get("architectures")
    if not path.is_dir() or not isinstance(names, list) or not names or not isinstance(names[0], str):
        return None
    try:
        import transformers
    except ModuleNotFoundError:
        return None
    kind = getattr(transformers, names[0], None)
    return kind if isinstance(kind, type) and issubclass(kind, nn.Module) else None
