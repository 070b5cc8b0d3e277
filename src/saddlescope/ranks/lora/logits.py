"""Error of an adapter: the logits of base plus adapter compared with those of the tuned model."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope.ranks.checkpoints.adapter_files import PREFIX, WEIGHTS
from saddlescope.ranks.checkpoints.files import Checkpoint
from saddlescope.ranks.checkpoints.transformers_model import model_class
from saddlescope.ranks.module_names import first_few

_SEQUENCES, _LENGTH = 4, 64


@dataclass(frozen=True)
class LogitsError:
    """Difference of logits from those of the tuned model.

    Attributes:
        tokens: number of tokens.
        relative: |with adapter - tuned|_F / |base - tuned|_F: 0 if nothing is lost, 1 if nothing is gained. If only
            linear layers have changed, an adapter that captures a fraction e of the energy leaves about sqrt(1 - e).
        divergence: mean Kullback-Leibler divergence of the prediction from that of the tuned model, in nats.
        agreement: fraction of positions at which both predict the same token.
        base_divergence, base_agreement: the same without the adapter.
    """

    tokens: int
    relative: float
    divergence: float
    agreement: float
    base_divergence: float
    base_agreement: float


@validate_arguments
def logits_error(base: Path, tuned: Path, adapter: Path, *, text: Path | None = None, seed: int = 0) -> LogitsError:
    """Compare logits of the base model, with and without the adapter, with those of the tuned model.

    The adapter is loaded by PEFT, after the vocabulary of the base is resized where the adapter holds it whole. Of
    vocabularies of different sizes, the tokens that both have are compared.

    Args:
        base: folder of the model at the start, in the format of Transformers.
        tuned: folder of the model after training.
        adapter: folder of the adapter.
        text: a text file, tokenized by the tokenizer beside the tuned or the base model; None draws tokens at random.
        seed: seed of the random tokens.

    Raises:
        InputError: the models cannot be loaded, they do not read tokens, or PEFT does not load every weight of the
            adapter.
        MissingExtraError: Transformers or PEFT are not installed.
    """
    model = _load_model(tuned)
    if getattr(model, "main_input_name", "") != "input_ids":
        raise InputError(f"{tuned} must read tokens, for the error of the logits; got {type(model).__name__}.")
    tuned_model, model = model, _load_model(base)
    shared = min(tuned_model.config.vocab_size, model.config.vocab_size)  # a vocabulary may have grown
    tokens = torch.randint(shared, (_SEQUENCES, _length(model)), generator=torch.Generator().manual_seed(seed))
    if text is not None:
        tokens = _tokens(model, text, shared, tuned, base)
    expected = _logits(tuned_model, tokens)
    del tuned_model
    without = _logits(model, tokens)
    if len(expected) != len(without) or min(expected.shape[1], without.shape[1]) < shared:
        shapes = f"{tuple(without.shape)} and {tuple(expected.shape)}"
        raise InputError(
            f"{base} and {tuned} must have logits of {shared} tokens; got shapes {shapes}. Pass --no-logits."
        )
    found = _logits(_adapted(model, adapter), tokens)
    classes = min(logits.shape[1] for logits in (expected, without, found))
    expected, without, found = (logits[:, :classes] for logits in (expected, without, found))
    difference = float((without - expected).norm())
    relative = float((found - expected).norm()) / difference if difference else 0.0
    return LogitsError(tokens.numel(), relative, *_predictions(expected, found), *_predictions(expected, without))


def _load_model(folder: Path) -> Any:
    """Load the model in a folder, in float32 and evaluation mode.

    Raises:
        InputError: config.json is missing or unknown to Transformers, or the weights do not fit it.
        MissingExtraError: Transformers is not installed.
    """
    config = Checkpoint.open(folder).config if folder.is_dir() else {}
    with MissingExtraError.named("The error of the logits"):
        import transformers
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


def _adapted(model: Any, folder: Path) -> Any:
    """Return the model with the adapter; raise InputError unless PEFT has loaded every weight of it."""
    with MissingExtraError.named("The error of the logits"):
        from peft import PeftModel, get_peft_model_state_dict
    from safetensors.torch import load_file

    stored = load_file(folder / WEIGHTS[0])
    tokens = model.get_input_embeddings()
    named = next((name for name, module in model.named_modules() if module is tokens), "")
    whole = stored.get(f"{PREFIX}{named}.weight")
    if whole is not None and len(whole) != len(tokens.weight):
        model.resize_token_embeddings(len(whole), mean_resizing=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)  # of PEFT
        # PEFT looks for patterns among modules alone, and finds them for the parameters of experts, too.
        warnings.filterwarnings("ignore", message=r"The following \w+_pattern keys", category=RuntimeWarning)
        adapted = PeftModel.from_pretrained(model, str(folder)).eval()
    loaded = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    if lost := [name for name, value in stored.items() if name not in loaded or not _same(loaded[name], value)]:
        raise InputError(
            f"{folder} must fit {type(model).__name__}; got weights that it does not have: {first_few(sorted(lost))}."
        )
    return adapted


def _same(loaded: Tensor, stored: Tensor) -> bool:
    """Return True for equal numbers; PEFT widens those of half precision."""
    return loaded.shape == stored.shape and torch.equal(loaded.to(stored.dtype), stored)


def _tokens(model: Any, text: Path, vocabulary: int, *folders: Path) -> Int64[Tensor, "sequences length"]:
    from transformers import AutoTokenizer

    try:
        content = text.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise InputError(f"text must be a readable file of text; got '{text}' ({error}).") from error
    holder = next((folder for folder in folders if any(folder.glob("tokenizer*"))), None)
    if holder is None:
        raise InputError(f"{folders[0]} must have a tokenizer, to read '{text}'; got none. Omit --data.")
    tokens = AutoTokenizer.from_pretrained(holder, local_files_only=True, trust_remote_code=False)(content).input_ids
    length = min(_length(model), len(tokens))
    if not length or max(tokens) >= vocabulary:
        raise InputError(f"text must be tokens of the model; got {len(tokens)} tokens from '{text}'.")
    count = min(_SEQUENCES, len(tokens) // length)
    return torch.tensor(tokens[: count * length]).reshape(count, length)


def _length(model: Any) -> int:
    return min(_LENGTH, getattr(model.config, "max_position_embeddings", None) or _LENGTH)


@torch.no_grad()
def _logits(model: Any, tokens: Int64[Tensor, "sequences length"]) -> Float[Tensor, "positions classes"]:
    """Return the logits, computed one sequence at a time: those of large vocabularies are large."""
    found = [model(input_ids=sequence[None]) for sequence in tokens]
    if getattr(found[0], "logits", None) is None:
        raise InputError(f"model must have logits; got {type(model).__name__}. Save it with its head.")
    return torch.cat([one.logits.flatten(0, -2).double() for one in found])


def _predictions(
    expected: Float[Tensor, "positions classes"], found: Float[Tensor, "positions classes"]
) -> tuple[float, float]:
    """Return the divergence of predictions, and the fraction that agree."""
    p, q = expected.log_softmax(-1), found.log_softmax(-1)
    agreeing = expected.argmax(-1) == found.argmax(-1)
    return float((p.exp() * (p - q)).sum(-1).mean()), float(agreeing.double().mean())
