"""Models of Transformers in a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope.ranks.checkpoints.files import Checkpoint
from saddlescope.ranks.checkpoints.formats.tensor_file import first_few
from saddlescope.ranks.checkpoints.transformers_model import model_class


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
    kind = model_class(config)
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
