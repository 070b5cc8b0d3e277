"""Training a language model on blocks of tokens by `transformers.Trainer`, resumable at any moment to the same result.

The Trainer does the work: batches, optimiser, schedule, precision, checkpoints. What is added here:

- the record: training and test loss on a fixed grid of steps, as arrays;
- checkpoints are used only when they are whole and of this very run. The Trainer writes a folder of files in place, and
  a kill can leave half of them; here the last file written is a seal with the run's identity, and a folder without it
  is passed over;
- the random state of the caller is put back: the Trainer seeds all of Python's, NumPy's and PyTorch's.

The same result means, on the processor: to the last bit, at the same number of threads.
"""

import contextlib
import gc
import hashlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int32, Int64
from torch import nn
from torch.utils.data import Dataset

from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope.train import run_snapshot
from saddlescope.train.data.text import TokenizedText

try:
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
    from transformers.utils import logging as messages
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise MissingExtraError("saddlescope.train.language", "Transformers", "language") from error

if TYPE_CHECKING:
    from saddlescope.train.tracker import hugging_face

SEAL = "saddlescope-run.pt"  # the last file written into a checkpoint folder
_EVALUATION_TOKENS = 4096  # at once; bounds memory, and changes no weight


@dataclass(frozen=True, kw_only=True)
class LanguageConfig:
    """How to train; the defaults are the paper's for GPT-2 (appendix B.2) and those of Hugging Face's script.

    The optimiser is Adam without weight decay; gradients are clipped at norm `clip`.
    """

    steps: int  # of the optimiser
    batch: int = 16  # blocks a step; the paper has 8 on each of two GPUs. The last of an epoch may be smaller
    learning_rate: float = 3e-4  # at the top of the schedule
    warmup_steps: int = 0  # over which the learning rate rises to its top; it then falls linearly to 0
    clip: float = 1.0  # norm at which gradients are clipped
    test_every: int = 100  # steps between two measurements of the test loss, and of the mean training loss
    tests_a_checkpoint: int = 10  # tests from one checkpoint to the next; changes no result
    seed: int = 0  # of the order of the blocks
    threads: int | None = None  # of PyTorch on the processor, while it trains; None leaves them as they are
    precision: Literal["float32", "tf32", "bf16"] = "float32"  # of the steps; weights stay in float32
    compiled: bool = False  # whether torch.compile makes the steps faster

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "test_every", "tests_a_checkpoint"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)!r}.")
        for name in ("learning_rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be positive and finite; got {getattr(self, name)!r}.")
        if not 0 <= self.warmup_steps <= self.steps:
            raise InputError(f"warmup_steps must be from 0 to steps={self.steps}; got {self.warmup_steps!r}.")
        if self.seed < 0:
            raise InputError(f"seed must be at least 0; got {self.seed!r}.")
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads must be at least 1; got {self.threads!r}.")


@dataclass(frozen=True, eq=False)
class LanguageHistory:
    """What a run recorded, in nats a token.

    Attributes:
        steps: after how many steps the losses were looked at; the first is 0, the last the end.
        test_loss: cross-entropy over all test blocks.
        train_loss: mean cross-entropy of the batches since the step before; NaN at step 0.
    """

    steps: Int64[np.ndarray, " tests"]
    test_loss: Float[np.ndarray, " tests"]
    train_loss: Float[np.ndarray, " tests"]


class _Blocks(Dataset[dict[str, torch.Tensor]]):
    """Blocks as the Trainer takes them: labels are the tokens themselves, which the model shifts by one."""

    def __init__(self, blocks: Int32[np.ndarray, "n block"]) -> None:
        self._blocks = torch.from_numpy(blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self._blocks[index].long()
        return {"input_ids": tokens, "labels": tokens}


class _Keeper(TrainerCallback):
    """Seals checkpoints, stops a run whose loss is not finite, and tells how far it is."""

    def __init__(self, identity: dict[str, str], report: Callable[[float, str], None] | None) -> None:
        self._identity, self._report = identity, report

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step >= state.max_steps:
            control.should_log = control.should_evaluate = True  # wherever the grid ends
            control.should_save = False  # resumed from the very end, the Trainer would make one step too many

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        run_snapshot.write(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / SEAL, self._identity)

    def on_log(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        loss = kwargs["logs"].get("loss")
        if loss is None:
            return
        if not math.isfinite(loss):
            raise InputError(
                f"learning_rate must be small enough for a finite loss; got {args.learning_rate!r}, and the loss is "
                f"{loss} at step {state.global_step}. Lower it, or lengthen the warm-up."
            )
        if self._report is not None:
            note = f"step {state.global_step} of {args.max_steps}, training loss {loss:.3f}"
            self._report(state.global_step / args.max_steps, note)


def fit_language(
    model: nn.Module,
    data: TokenizedText,
    config: LanguageConfig,
    *,
    tracker: "hugging_face.RankTrackerCallback | None" = None,
    checkpoint: Path | str | None = None,
    report: Callable[[float, str], None] | None = None,
) -> LanguageHistory:
    """Trains `model` in place to predict the next token, or goes on where a killed run left off.

    With `checkpoint`, call it again the same way (the same freshly built model, data and configuration) after whatever
    ended the run: the result is the same. A finished run makes the stretch since its last checkpoint again.

    Args:
        model: a causal language model of Transformers, or one that PEFT has wrapped; trained on the GPU where there is
            one.
        data: blocks of tokens.
        config: how to train.
        tracker: records spectra while it trains; `tracker.tracker` has them at the end.
        checkpoint: the folder to resume from and to keep up to date; None keeps nothing.
        report: called with the finished fraction and a short note at each test.

    Raises:
        InputError: a batch larger than the training set, more tokens than the model knows, a checkpoint of another
            run, or a loss that is not finite.
    """
    _check_data(model, data, config)
    started = _identity(model, data, config)
    folder = None if checkpoint is None else Path(checkpoint)
    with _private_state(config.threads):
        last = None if folder is None else _last_checkpoint(folder, started)
        trainer = Trainer(
            model=model,  # type: ignore[arg-type]  # PEFT's models are none of PreTrainedModel, and are welcome
            args=_arguments(config, folder, data.test.shape[1]),
            train_dataset=_Blocks(data.train),
            eval_dataset=_Blocks(data.test),
            callbacks=[*([] if tracker is None else [tracker]), _Keeper(started, report)],
        )
        trainer.remove_callback(PrinterCallback)
        was_training = model.training
        first_loss = mean_loss(model, data.test)  # on the device that the Trainer has moved it to
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
        model.train(was_training)
    return _history(first_loss, trainer.state.log_history)


@torch.no_grad()
def mean_loss(model: nn.Module, blocks: Int32[np.ndarray, "n block"]) -> float:
    """The mean cross-entropy of the model over blocks of tokens, in nats for each predicted token.

    Args:
        model: a causal language model of Transformers, in any mode, which it is left in.
        blocks: tokens.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    total, batch = 0.0, _evaluation_batch(blocks.shape[1])
    for start in range(0, len(blocks), batch):
        tokens = torch.from_numpy(blocks[start : start + batch]).long().to(device)
        total += model(input_ids=tokens, labels=tokens).loss.item() * len(tokens)
    model.train(was_training)
    return total / len(blocks)


def _evaluation_batch(block: int) -> int:
    return max(1, _EVALUATION_TOKENS // block)


def _check_data(model: nn.Module, data: TokenizedText, config: LanguageConfig) -> None:
    if len(data.train) < config.batch:
        raise InputError(f"batch must be at most the {len(data.train)} training blocks; got {config.batch!r}.")
    sizes: Any = model.config
    if data.vocabulary > sizes.vocab_size:
        raise InputError(f"model must know the {data.vocabulary} tokens of the data; got {sizes.vocab_size!r}.")
    longest = getattr(sizes, "max_position_embeddings", math.inf)
    if data.train.shape[1] > longest:
        raise InputError(f"model must read blocks of {data.train.shape[1]} tokens; got one that reads {longest!r}.")
    if config.precision == "tf32" and not torch.cuda.is_available():
        raise InputError("precision must be float32 or bf16 where there is no GPU; got 'tf32', which is a GPU's.")
    if config.batch % max(1, torch.cuda.device_count()):
        raise InputError(
            f"batch must be a multiple of the {torch.cuda.device_count()} GPUs, which the Trainer shares it between; "
            f"got {config.batch!r}. Set CUDA_VISIBLE_DEVICES to take fewer."
        )


def _arguments(config: LanguageConfig, folder: Path | None, block: int) -> TrainingArguments:
    gpus = torch.cuda.device_count()
    return TrainingArguments(
        output_dir=None if folder is None else str(folder),
        max_steps=config.steps,
        per_device_train_batch_size=config.batch // max(1, gpus),
        per_device_eval_batch_size=_evaluation_batch(block),
        learning_rate=config.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=config.warmup_steps,
        max_grad_norm=config.clip,
        optim="adamw_torch",
        weight_decay=0.0,
        seed=config.seed,
        eval_strategy="steps",
        eval_steps=config.test_every,
        logging_strategy="steps",
        logging_steps=config.test_every,
        logging_nan_inf_filter=False,  # it would show the last finite mean instead
        prediction_loss_only=True,
        label_names=["labels"],  # which PEFT hides from it
        save_strategy="no" if folder is None else "steps",
        save_steps=config.tests_a_checkpoint * config.test_every,  # in between it would forget the mean of the loss
        save_total_limit=2,  # the new one is not sealed yet when the oldest is removed
        report_to="none",
        disable_tqdm=True,
        use_cpu=gpus == 0,
        dataloader_pin_memory=gpus > 0,
        bf16=config.precision == "bf16",
        tf32=config.precision == "tf32" or None,
        torch_compile=config.compiled,
    )


def _identity(model: nn.Module, data: TokenizedText, config: LanguageConfig) -> dict[str, str]:
    """What makes a run this run: a checkpoint of another one is never used."""
    weights = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        weights.update(repr((name, tuple(tensor.shape), str(tensor.dtype))).encode())
        weights.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    settings = asdict(config)
    del settings["tests_a_checkpoint"]
    return {"configuration": repr(settings), "data": data.digest(), "initial weights": weights.hexdigest()}


def _last_checkpoint(folder: Path, identity: dict[str, str]) -> Path | None:
    """The newest whole checkpoint of this very run, or None."""
    steps = {int(file.parent.name.partition("-")[2]): file.parent for file in folder.glob(f"checkpoint-[0-9]*/{SEAL}")}
    if not steps:
        return None
    last = steps[max(steps)]
    theirs = run_snapshot.read(last / SEAL) or {}
    if different := [part for part, ours in identity.items() if theirs.get(part) != ours]:
        raise InputError(
            f"checkpoint must belong to this very run; got {str(last)!r}, which differs in "
            f"{' and '.join(different)}. Call fit_language as before, with a freshly built model, or name another "
            "folder, or delete this one."
        )
    return last


def _history(first_loss: float, log: list[dict[str, Any]]) -> LanguageHistory:
    test = {0: first_loss} | {entry["step"]: entry["eval_loss"] for entry in log if "eval_loss" in entry}
    train = {entry["step"]: entry["loss"] for entry in log if "loss" in entry}
    steps = sorted(test)
    return LanguageHistory(
        steps=np.array(steps, np.int64),
        test_loss=np.array([test[step] for step in steps]),
        train_loss=np.array([train.get(step, math.nan) for step in steps]),
    )


@contextlib.contextmanager
def _short_collections() -> Iterator[None]:
    """Leaves what exists already to itself when Accelerate collects garbage, which it does for each training.

    Among the modules of Transformers that takes half a second. On a GPU it stays: garbage may hold the GPU's memory.
    """
    if torch.cuda.is_available() or gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _private_state(threads: int | None) -> Iterator[None]:
    """Sets threads and quiets Transformers; puts both and the random states of Python, NumPy and PyTorch back."""
    threads_before, python, numpy = torch.get_num_threads(), random.getstate(), np.random.get_state()  # noqa: NPY002
    verbosity, bars = messages.get_verbosity(), messages.is_progress_bar_enabled()
    with torch.random.fork_rng(), _short_collections():
        try:
            torch.set_num_threads(threads or threads_before)
            messages.set_verbosity_error()  # on resuming it misses the output's weights, which are the embedding's
            messages.disable_progress_bar()
            yield
        finally:
            if bars:
                messages.enable_progress_bar()
            messages.set_verbosity(verbosity)
            np.random.set_state(numpy)  # noqa: NPY002
            random.setstate(python)
            torch.set_num_threads(threads_before)
