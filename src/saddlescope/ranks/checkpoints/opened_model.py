"""The model of a checkpoint without its weights, by Transformers or by the names and shapes of its tensors."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks.attention.attention_blocks import FoundAttention, find_attention, require_attention
from saddlescope.ranks.attention.known_layouts import LAYOUTS
from saddlescope.ranks.attention.layouts import AttentionLayout
from saddlescope.ranks.checkpoints.empty_model import attention_in, empty_model
from saddlescope.ranks.checkpoints.files import Checkpoint
from saddlescope.ranks.checkpoints.head_counts import HeadCounts, Heads
from saddlescope.ranks.checkpoints.transformers_model import LoadedCheckpoint, as_loaded, hollow, meta_model
from saddlescope.ranks.module_names import first_few

_TABLE = re.compile(r".*(bias|masks?|ids|index|indices|buckets?|coords|grid|tril|triu)")  # names of buffers of integers


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """Model of a checkpoint without its weights.

    Attributes:
        model: modules with placeholders for their weights.
        base: the checkpoint, under the names of the model.
        known: True if the model is one of Transformers, False if it was inferred from names and shapes.
        remarks: sentences on the checkpoint.
    """

    model: nn.Module
    base: Checkpoint
    known: bool
    remarks: tuple[str, ...] = ()

    def named(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return another checkpoint of the model under the names of the model."""
        return as_loaded(checkpoint, self.model) if self.known else checkpoint

    def attention(
        self, heads: Heads | None, *, required: bool, layouts: Sequence[AttentionLayout] = LAYOUTS
    ) -> FoundAttention:
        """Return the attention whose weights the checkpoint may hold.

        Args:
            heads: numbers of heads; see `HeadCounts`.
            required: raise for a model without attention blocks.
            layouts: layouts to try.

        Raises:
            InputError: blocks are required and missing, or the numbers of heads are unknown or do not fit.
        """
        counts, source = HeadCounts(self.base.config, heads), str(self.base.path)
        if self.known:
            found = find_attention(self.model, layouts)
            if required:
                require_attention(found, self.model)
            counts.check_known(found.blocks, source)
        else:
            found = attention_in(self.model, source, required=required, layouts=layouts)
            counts.check(found.blocks, source)
        return found


def open_model(base: Checkpoint, heads: Heads | None, on_error: Callable[[str], None]) -> OpenedModel:
    """Open the model of a checkpoint.

    Args:
        base: the checkpoint.
        heads: numbers of heads, for models that Transformers does not know; see `HeadCounts`.
        on_error: called with a sentence on weights that are quantised, or do not fit the configuration.
    """
    remarks = []
    integers = (name for name, one in base.tensors.items() if one.dtype[0] in "iu" and len(one.shape) > 1)
    if packed := [name for name in integers if not _TABLE.fullmatch(name)]:
        on_error(
            f"{base.path} must hold weights as floating-point numbers; got integers, as of a quantised model, in "
            f"{first_few(packed)}. Dequantise it with the program that wrote it."
        )
    try:
        model = meta_model(base)
    except InputError as error:  # the names and shapes of the tensors remain
        model = None
        remarks.append(str(error))
    if model is not None:
        loaded = as_loaded(base, model)
        if 2 * len(loaded.unknown) < len(loaded.tensors):
            hollow(model)
            if extra := [name for name in loaded.unknown if len(base.tensors[name].shape) > 1]:
                remarks.append(
                    f"{base.path} holds matrices that {type(model).__name__} does not have: {first_few(extra)}."
                )
            return OpenedModel(model, _fitting(loaded, model, on_error), True, tuple(remarks))
        remarks.append(f"{base.path} does not hold the weights of {type(model).__name__} that its config.json names.")
    shapes = {name: stored.shape for name, stored in base.tensors.items() if stored.floating}
    return OpenedModel(empty_model(shapes, HeadCounts(base.config, heads)), base, False, tuple(remarks))


def _fitting(loaded: LoadedCheckpoint, model: nn.Module, on_error: Callable[[str], None]) -> LoadedCheckpoint:
    """Return the checkpoint without tensors whose shapes contradict the model, and report them."""
    for sentence in loaded.faults:
        on_error(sentence)
    state = model.state_dict()
    wrong = [n for n, one in loaded.tensors.items() if n in state and one.shape != tuple(state[n].shape)]
    if wrong:
        some = [f"{n} {loaded.tensors[n].shape} against {tuple(state[n].shape)}" for n in wrong]
        on_error(f"{loaded.path} must have the shapes that its config.json states; got {first_few(some)}.")
    return loaded.without(wrong)
