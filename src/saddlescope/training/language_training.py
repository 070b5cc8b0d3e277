"""Training of language models on blocks of tokens: one function, resumable after any interruption to the last bit.

Batches, their order, losses and precision are those of `transformers.Trainer` on one device.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report, silent
from saddlescope.ranks.tracker.rank_tracker import RankTracker
from saddlescope.training.configuration import Bounds, Configuration, Count, Positive, Seed, Threads
from saddlescope.training.data.text import TokenizedText
from saddlescope.training.torch_settings import Precision, autocast
from saddlescope.training.training_run import TrainingRun

_EVALUATION_TOKENS = 4096  # at once; bounds memory, and changes no weight
_NO_TARGET = -100  # label of a token that none follows; PyTorch's cross-entropy leaves it out


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
    seed: Seed = 0  # seed of the order of the blocks, and of layers that draw random numbers
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
        train_loss: mean loss of the batches since the previous entry of `steps`; NaN at step 0. It is the model's own:
            cross-entropy, and what a model adds to it, such as the loss of its router.
    """

    steps: Int64[np.ndarray, " tests"]
    test_loss: Float[np.ndarray, " tests"]
    train_loss: Float[np.ndarray, " tests"]


def fit_language(
    model: nn.Module,
    data: TokenizedText,
    config: LanguageConfig,
    *,
    tracker: RankTracker | None = None,
    checkpoint: Path | str | None = None,
    checkpoint_every: int | None = None,
    report: Report = silent,
) -> LanguageHistory:
    """Train `model` in place to predict the next token, or resume a killed run.

    With `checkpoint`, repeat the call (the same freshly built model, data and configuration) after any interruption:
    the result is the same to the last bit, on the same machine with the same PyTorch and number of threads. A finished
    run returns at once. During the run PyTorch uses deterministic algorithms; that setting and the random state are
    restored at the end.

    Args:
        model: a causal language model of Transformers, or one that PEFT has wrapped; trained on the device of its
            parameters, where it stays.
        data: blocks of tokens.
        config: optimiser, batches and precision.
        tracker: measured after each step on its own schedule, and once at the end.
        checkpoint: the file to resume from and to update; None disables it.
        checkpoint_every: steps between two checkpoints; None: so far apart that writing takes at most 2 % of the time.
            Changes no result.
        report: called with the finished fraction and a short note at each test.

    Raises:
        InputError: a batch larger than the training set, more tokens than the model's vocabulary, a checkpoint that is
            damaged, of another run, or cannot be written, a loss that is not finite (the checkpoint remains), or, for
            a model on a GPU, an environment without CUBLAS_WORKSPACE_CONFIG.
    """
    _check_data(model, data, config)
    run = _LanguageRun(model, data, config, tracker, checkpoint, checkpoint_every)
    run.train(report)
    return run.history()


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
    if config.precision == "tf32" and next(model.parameters()).device.type != "cuda":
        raise InputError("precision must be float32 or bf16 for a model that is not on a GPU; got 'tf32'.")


class _LanguageRun(TrainingRun):
    """State of one call of `fit_language`."""

    lower = "Lower it, or lengthen the warm-up."

    def __init__(
        self,
        model: nn.Module,
        data: TokenizedText,
        config: LanguageConfig,
        tracker: RankTracker | None,
        checkpoint: Path | str | None,
        checkpoint_every: int | None,
    ) -> None:
        self.data, self.config, self.precision = data, config, config.precision
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        super().__init__(
            model,
            torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=0.0),
            torch.zeros(config.steps, device=parameters[0].device),
            tracker=tracker,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
        )
        self.forward: Callable[..., Any] = torch.compile(model, dynamic=False) if config.compiled else model
        self.blocks = torch.from_numpy(data.train).to(self.device)
        self._order, self._ordered = torch.zeros(0), -1  # of the blocks, and its epoch

    def learning_rate(self) -> float:
        """Return that of the schedule: linear from 0 during the warm-up, then linear to 0."""
        warmup, steps = self.config.warmup_steps, self.config.steps
        factor = self.step / warmup if self.step < warmup else (steps - self.step) / (steps - warmup)
        return self.config.learning_rate * factor

    def backward(self) -> None:
        """Compute the gradients of the next batch."""
        count, batch = len(self.blocks), self.config.batch
        epoch, position = divmod(self.step, -(-count // batch))
        if self._ordered != epoch:
            order = torch.randperm(count, generator=torch.Generator().manual_seed(self.config.seed + epoch))
            self._order, self._ordered = order.to(self.device), epoch
        tokens = self.blocks[self._order[position * batch : (position + 1) * batch]].long()
        with autocast(self.device, self.config.precision):  # with labels, models add what is theirs, such as a router's
            loss = self.forward(input_ids=tokens, labels=tokens).loss
        self.losses[self.step] = loss.detach()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)

    def begin(self) -> None:
        """Evaluate the initial weights."""
        self.test()

    def observe(self) -> str:
        """Test if due."""
        if self.step % self.config.test_every and not self.ended:
            return ""
        self.check_losses()
        self.test()
        return f"step {self.step} of {self.steps}, training loss {self._mean_losses()[-1]:.3f}"

    @torch.no_grad()
    def test(self) -> None:
        """Record the step, and the loss over the test blocks."""
        self.model.eval()
        parts = torch.from_numpy(self.data.test).split(max(1, _EVALUATION_TOKENS // self.data.test.shape[1]))
        total = sum(len(part) * self.cross_entropy(part.long().to(self.device)).item() for part in parts)
        self.kept.append((self.step, total / len(self.data.test)))

    def cross_entropy(self, tokens: Tensor) -> Tensor:
        """Return the mean cross-entropy of all tokens but the first of each block."""
        with autocast(self.device, self.config.precision):
            logits = self.forward(input_ids=tokens).logits[:, -tokens.shape[1] :]  # virtual tokens of prompts go before
        following = functional.pad(tokens[:, 1:], (0, 1), value=_NO_TARGET)
        return functional.cross_entropy(logits.float().flatten(0, 1), following.flatten(), ignore_index=_NO_TARGET)

    def _mean_losses(self) -> list[float]:
        """Return the mean training loss since the previous test, for all tests but the first."""
        steps, losses = [step for step, _ in self.kept], self.losses.cpu().numpy()
        parts = [losses[start:stop] for start, stop in itertools.pairwise(steps)]
        return [float(part.cumsum()[-1]) / len(part) for part in parts]  # summed in the order of the steps

    def history(self) -> LanguageHistory:
        """Return the records."""
        return LanguageHistory(
            steps=np.array([step for step, _ in self.kept], np.int64),
            test_loss=np.array([loss for _, loss in self.kept]),
            train_loss=np.array([math.nan, *self._mean_losses()]),
        )
