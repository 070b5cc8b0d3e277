"""GPT-2 with randomly initialized weights: Hugging Face's model, defined by its sizes and a seed.

No name, no file and no download is involved, so a pretrained model cannot be mistaken for one trained from scratch.

Notable:

- the initial weights are GPT-2's own: normal with standard deviation 0.02, those of the two projections that write
  into the residual stream divided by sqrt(2 depth);
- queries, keys, values and outputs have biases, which start at 0; W_K W_Q^T and W_V W_O^T do not contain them;
- there is no dropout (Boix-Adserà et al. 2023, appendix B: "no weight decay or dropout");
- embedding and output share their weights.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope.training.configuration import Configuration, Count

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel


@dataclass(frozen=True, kw_only=True)
class GPT2Sizes(Configuration):
    """Sizes of a GPT-2; the defaults are GPT-2 small's, with the paper's blocks (appendix B.2)."""

    vocabulary: Count = 50257  # tokens
    block: Count = 256  # tokens of the longest input
    embedding: Count = 768  # width of the residual stream; the heads divide it
    depth: Count = 12  # blocks of attention and MLP
    heads: Count = 12  # attention heads per block

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embedding % self.heads:
            raise InputError(f"heads must divide embedding={self.embedding}; got {self.heads!r}.")


def fresh_gpt2(sizes: GPT2Sizes, *, seed: int) -> "GPT2LMHeadModel":
    """Return an untrained GPT-2: its weights are drawn from the seed, and the random state is restored.

    Args:
        sizes: sizes of the model.
        seed: seed of the initial weights.

    Raises:
        InputError: the extra `language` is not installed.

    >>> model = fresh_gpt2(GPT2Sizes(vocabulary=300, block=8, embedding=16, depth=1, heads=2), seed=0)
    >>> model(torch.zeros(1, 8, dtype=torch.long)).logits.shape
    torch.Size([1, 8, 300])
    """
    with MissingExtraError.named("saddlescope.training.architectures.gpt2"):
        from transformers.models.gpt2 import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=sizes.vocabulary,
        n_positions=sizes.block,
        n_embd=sizes.embedding,
        n_layer=sizes.depth,
        n_head=sizes.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        use_cache=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # the default, which otherwise comes with a warning
    return model
