"""Training of language models on blocks of tokens by `transformers.Trainer`, resumable after any interruption.

The Trainer handles batches, optimiser, schedule, precision and checkpoints. This module adds:

- records: training and test loss on a fixed grid of steps, as arrays;
- verified checkpoints: only complete ones of the same run are used. The Trainer writes a folder of files in place, and
  a kill can leave half of them; here the last file written holds the run's identity, and a folder without it is
  skipped;
- restored random states: the Trainer seeds all of Python's, NumPy's and PyTorch's.

A resumed run has the same result: on the processor to the last bit, at the same number of threads.
"""

import contextlib
import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int32, Int64
from torch import nn
from torch.utils.data import Dataset

from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope._shared.progress import Report, silent
from saddlescope.ranks.state_files import read_state, write_state
from saddlescope.training.configuration import Bounds, Configuration, Count, Positive, Seed, Threads
from saddlescope.training.data.text import TokenizedText
from saddlescope.training.torch_settings import Precision
from saddlescope.training.training_run import require_same_run, weights_digest

try:
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
    from transformers.utils import logging as messages
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise MissingExtraError("saddlescope.training.language_training", "Transformers", "language") from error

if TYPE_CHECKING:
    from saddlescope.ranks.tracker import hugging_face

IDENTITY_FILE = "saddlescope-run.pt"  # the last file written to a checkpoint folder
_EVALUATION_TOKENS = 4096  # at once; bounds memory, and changes no weight


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(Configuration):
    """Configuration of the training; the defaults are the paper's (appendix B.2) and those of Hugging Face's script.

    The optimiser is Adam without weight decay; gradients are clipped at norm `clip`.
    """

    steps: Count  # number of steps of the optimiser
    batch: Count = 16  # blocks per step; the paper has 8 on each of two GPUs. The last batch of an epoch may be smaller
    learning_rate: Positive = 3e-4  # largest learning rate
    warmup_steps: int = 0  # steps of linear increase of the learning rate; it then decreases linearly to 0
    clip: Positive = 1.0  # norm at which gradients are clipped
    test_every: Count = 100  # steps between two measurements of the test loss, and of the mean training loss
    tests_per_checkpoint: Count = 10  # tests from one checkpoint to the next; changes no result
    seed: Seed = 0  # seed of the order of the blocks
    threads: Threads = None  # PyTorch threads on the processor during training; None leaves the number unchanged
    precision: Precision = "float32"  # of the steps; weights are always float32
    compiled: bool = False  # use torch.compile: faster steps

    def __post_init__(self) -> None:
        super().__post_init__()
        Bounds(0, self.steps).check("warmup_steps", self.warmup_steps)


@dataclass(frozen=True, eq=False)
class LanguageHistory:
    """Losses of a run, in nats per token.

    Attributes:
        steps: numbers of steps after which the losses were evaluated; the first is 0, the last the end.
        test_loss: cross-entropy over all test blocks.
        train_loss: mean cross-entropy of the batches since the previous entry of `steps`; NaN at step 0.
    """

    steps: Int64[np.ndarray, " tests"]
    test_loss: Float[np.ndarray, " tests"]
    train_loss: Float[np.ndarray, " tests"]


class _Blocks(Dataset[dict[str, torch.Tensor]]):
    """Data set of the Trainer: labels are the tokens themselves, which the model shifts by one."""

    def __init__(self, blocks: Int32[np.ndarray, "n block"]) -> None:
        self._blocks = torch.from_numpy(blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self._blocks[index].long()
        return {"input_ids": tokens, "labels": tokens}


class _RunCallback(TrainerCallback):
    """Callback that adds the identity to checkpoints, stops a run whose loss is not finite, and reports progress."""

    def __init__(self, identity: dict[str, str], report: Report) -> None:
        self._identity, self._report = identity, report

    def on_step_end(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step >= state.max_steps:
            control.should_log = control.should_evaluate = True  # also off the grid
            control.should_save = False  # resumed from the very end, the Trainer would make one step too many

    def on_save(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        write_state(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / IDENTITY_FILE, self._identity)

    def on_log(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        loss = kwargs["logs"].get("loss")
        if loss is None:
            return
        if not math.isfinite(loss):
            raise InputError(
                f"learning_rate must be small enough for a finite loss; got {args.learning_rate!r}, and the loss is "
                f"{loss} at step {state.global_step}. Lower it, or lengthen the warm-up."
            )
        note = f"step {state.global_step} of {args.max_steps}, training loss {loss:.3f}"
        self._report(state.global_step / args.max_steps, note)


def fit_language(
    model: nn.Module,
    data: TokenizedText,
    config: LanguageConfig,
    *,
    tracker: "hugging_face.RankTrackerCallback | None" = None,
    checkpoint: Path | str | None = None,
    report: Report = silent,
) -> LanguageHistory:
    """Train `model` in place to predict the next token, or resume a killed run.

    With `checkpoint`, repeat the call (the same freshly built model, data and configuration) after any interruption:
    the result is the same. A finished run repeats the steps since its last checkpoint.

    Args:
        model: a causal language model of Transformers, or one that PEFT has wrapped; trained on the GPU if any.
        data: blocks of tokens.
        config: optimiser, batches and precision.
        tracker: callback that records spectra during training; `tracker.tracker` has them at the end.
        checkpoint: the folder to resume from and to update; None disables it.
        report: called with the finished fraction and a short note at each test.

    Raises:
        InputError: a batch larger than the training set, more tokens than the model's vocabulary, a checkpoint of
            another run, or a loss that is not finite.
    """
    _check_data(model, data, config)
    identity = _identity(model, data, config)
    folder = None if checkpoint is None else Path(checkpoint)
    with _private_state(config.threads):
        last = None if folder is None else _last_checkpoint(folder, identity)
        trainer = Trainer(
            model=model,  # type: ignore[arg-type]  # PEFT's models are not PreTrainedModel, but are supported
            args=_arguments(config, folder, data.test.shape[1]),
            train_dataset=_Blocks(data.train),
            eval_dataset=_Blocks(data.test),
            callbacks=[*([] if tracker is None else [tracker]), _RunCallback(identity, report)],
        )
        trainer.remove_callback(PrinterCallback)
        was_training = model.training
        first_loss = mean_loss(model, data.test)  # on the device that the Trainer has moved it to
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
        model.train(was_training)
    return _history(first_loss, trainer.state.log_history)


@torch.no_grad()
def mean_loss(model: nn.Module, blocks: Int32[np.ndarray, "n block"]) -> float:
    """Return the mean cross-entropy of the model over blocks of tokens, in nats per predicted token.

    Args:
        model: a causal language model of Transformers; its mode is restored.
        blocks: blocks of tokens.
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
        raise InputError(
            f"model must have at least the {data.vocabulary} tokens of the data; got {sizes.vocab_size!r}."
        )
    longest = getattr(sizes, "max_position_embeddings", math.inf)
    if data.train.shape[1] > longest:
        raise InputError(f"model must accept blocks of {data.train.shape[1]} tokens; got one that accepts {longest!r}.")
    if config.precision == "tf32" and not torch.cuda.is_available():
        raise InputError("precision must be float32 or bf16 without a GPU; got 'tf32'.")
    if config.batch % max(1, torch.cuda.device_count()):
        raise InputError(
            f"batch must be a multiple of the {torch.cuda.device_count()} GPUs over which the Trainer splits it; "
            f"got {config.batch!r}. Set CUDA_VISIBLE_DEVICES to use fewer."
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
        logging_nan_inf_filter=False,  # the filter would hide losses that are not finite
        prediction_loss_only=True,
        label_names=["labels"],  # the Trainer cannot infer it from PEFT's models
        save_strategy="no" if folder is None else "steps",
        save_steps=config.tests_per_checkpoint * config.test_every,  # in between, the mean of the loss would be lost
        save_total_limit=2,  # the new one has no identity yet when the oldest is removed
        report_to="none",
        disable_tqdm=True,
        use_cpu=gpus == 0,
        dataloader_pin_memory=gpus > 0,
        bf16=config.precision == "bf16",
        tf32=config.precision == "tf32" or None,
        torch_compile=config.compiled,
    )


def _identity(model: nn.Module, data: TokenizedText, config: LanguageConfig) -> dict[str, str]:
    """Return the properties that define a run: a checkpoint of another one is never used."""
    settings = asdict(config)
    del settings["tests_per_checkpoint"]
    return {"configuration": repr(settings), "data": data.digest(), "initial weights": weights_digest(model)}


def _last_checkpoint(folder: Path, identity: dict[str, str]) -> Path | None:
    """Return the newest complete checkpoint of this run, or None."""
    files = folder.glob(f"checkpoint-[0-9]*/{IDENTITY_FILE}")
    steps = {int(file.parent.name.partition("-")[2]): file.parent for file in files}
    if not steps:
        return None
    last = steps[max(steps)]
    cure = "Call fit_language as before, with a freshly built model, or name another folder, or delete this one."
    require_same_run(last, identity, read_state(last / IDENTITY_FILE) or {}, cure)
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
def _private_state(threads: int | None) -> Iterator[None]:
    """Set threads and silence Transformers; finally restore both and the random states of Python, NumPy and PyTorch."""
    threads_before, python, numpy = torch.get_num_threads(), random.getstate(), np.random.get_state()  # noqa: NPY002
    verbosity, bars = messages.get_verbosity(), messages.is_progress_bar_enabled()
    with torch.random.fork_rng():
        try:
            torch.set_num_threads(threads or threads_before)
            messages.set_verbosity_error()  # on resuming it warns of missing output weights, which are the embedding's
            messages.disable_progress_bar()
            yield
        finally:
            if bars:
                messages.enable_progress_bar()
            messages.set_verbosity(verbosity)
            np.random.set_state(numpy)  # noqa: NPY002
            random.setstate(python)
            torch.set_num_threads(threads_before)
