"""What an adapter is worth: the logits of base plus adapter against those of the tuned model."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope.train.checkpoints.files import some
from saddlescope.train.lora.pretrained import load_model

_SEQUENCES, _LENGTH = 4, 64


@dataclass(frozen=True)
class LogitsError:
    """How far logits are from those of the tuned model.

    Attributes:
        tokens: how many were looked at.
        relative: |with adapter - tuned|_F / |base - tuned|_F: 0 when nothing is lost, 1 when nothing is gained. Where
            linear layers alone have changed, an adapter that keeps a part e of the energy leaves about sqrt(1 - e).
        divergence: mean Kullback-Leibler divergence of the prediction from that of the tuned model, in nats.
        agreement: part of the positions where both hold the same token for the likeliest.
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
    """Loads the models one after the other and asks them the same; the adapter is loaded by PEFT.

    Args:
        base: folder of the model at the start, as Transformers has it.
        tuned: folder of the model after training.
        adapter: folder of the adapter.
        text: a file of text, told in tokens by the tokenizer beside the tuned or the base model; None draws tokens at
            random.
        seed: of the random tokens.

    Raises:
        InputError: the models cannot be loaded, they do not read tokens, or PEFT does not take every weight of the
            adapter.
        MissingExtraError: Transformers or PEFT are not installed.
    """
    model = load_model(tuned)
    if getattr(model, "main_input_name", "") != "input_ids":
        raise InputError(f"{tuned} must read tokens, for the error of the logits; got {type(model).__name__}.")
    tokens = _random_tokens(model, seed) if text is None else _tokens(model, text, tuned, base)
    wanted = _logits(model, tokens)
    del model
    model = load_model(base)
    without = _logits(model, tokens)
    found = _logits(_adapted(model, adapter), tokens)
    for name, logits in (("base", without), ("adapter", found)):
        if logits.shape != wanted.shape:
            raise InputError(f"{name} must have logits of shape {tuple(wanted.shape)}; got {tuple(logits.shape)}.")
    difference = float((without - wanted).norm())
    return LogitsError(
        tokens=tokens.numel(),
        relative=float((found - wanted).norm()) / difference if difference else 0.0,
        divergence=_divergence(wanted, found),
        agreement=_agreement(wanted, found),
        base_divergence=_divergence(wanted, without),
        base_agreement=_agreement(wanted, without),
    )


def _adapted(model: Any, folder: Path) -> Any:
    """The model with the adapter, every weight of which has found its place."""
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ModuleNotFoundError as error:
        raise MissingExtraError("The error of the logits", "PEFT", "language") from error
    from safetensors.torch import load_file

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)  # of PEFT
        adapted = PeftModel.from_pretrained(model, str(folder)).eval()
    loaded = get_peft_model_state_dict(adapted)
    stored = load_file(folder / "adapter_model.safetensors")
    if lost := [name for name, value in stored.items() if name not in loaded or not torch.equal(loaded[name], value)]:
        raise InputError(f"{folder} must fit {type(model).__name__}; got no place for {some(sorted(lost))}.")
    return adapted


def _random_tokens(model: Any, seed: int) -> Int64[Tensor, "sequences length"]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab_size, (_SEQUENCES, _length(model)), generator=generator)


def _tokens(model: Any, text: Path, *folders: Path) -> Int64[Tensor, "sequences length"]:
    from transformers import AutoTokenizer

    try:
        content = text.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise InputError(f"text must be a readable file of text; got '{text}' ({error}).") from error
    holder = next((folder for folder in folders if any(folder.glob("tokenizer*"))), None)
    if holder is None:
        raise InputError(f"{folders[0]} must have a tokenizer, to read '{text}'; got none. Leave --data out.")
    tokens = AutoTokenizer.from_pretrained(holder, local_files_only=True, trust_remote_code=False)(content).input_ids
    length = min(_length(model), len(tokens))
    if not length or max(tokens) >= model.config.vocab_size:
        raise InputError(f"text must be tokens of the model; got {len(tokens)} tokens from '{text}'.")
    count = min(_SEQUENCES, len(tokens) // length)
    return torch.tensor(tokens[: count * length]).reshape(count, length)


def _length(model: Any) -> int:
    return min(_LENGTH, getattr(model.config, "max_position_embeddings", None) or _LENGTH)


@torch.no_grad()
def _logits(model: Any, tokens: Int64[Tensor, "sequences length"]) -> Float[Tensor, "positions classes"]:
    """One sequence at a time: logits of large vocabularies are large."""
    found = [model(input_ids=sequence[None]) for sequence in tokens]
    if getattr(found[0], "logits", None) is None:
        raise InputError(f"model must have logits; got {type(model).__name__}. Save it with its head.")
    return torch.cat([one.logits.flatten(0, -2).double() for one in found])


def _divergence(wanted: Float[Tensor, "positions classes"], found: Float[Tensor, "positions classes"]) -> float:
    p, q = wanted.log_softmax(-1), found.log_softmax(-1)
    return float((p.exp() * (p - q)).sum(-1).mean())


def _agreement(wanted: Float[Tensor, "positions classes"], found: Float[Tensor, "positions classes"]) -> float:
    return float((wanted.argmax(-1) == found.argmax(-1)).double().mean())
