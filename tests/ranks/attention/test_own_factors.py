"""Heads with biases of queries, heads as modules, and odd surroundings."""

import pytest
import torch
from attention_standins import Layers, attend, heads, kind
from kinds import Llama, llama
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks import RankTracker, active_units
from saddlescope.ranks.attention.attention_blocks import find_attention


class InPlace(Llama):
    """The residual is added in place."""

    def forward(self, x):
        return x.add_(self.joined(attend(*self.parts(x))))


Plain = llama(lambda m, q, k, v: attend(q, k, v))
PROJECTIONS = dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), (8, 8))
OfTwoHeads = kind(
    lambda m, x: (heads(part(x), 2) for part in (m.q_proj, m.k_proj, m.v_proj)), num_heads=2, **PROJECTIONS
)


def outcome(module):
    (row,) = find_attention(nn.ModuleDict({"attn": module})).coverage
    return row.outcome, row.reason


def test_the_self_check_does_not_depend_on_what_surrounds_it():
    with torch.autocast("cpu", torch.bfloat16):
        assert outcome(Plain()) == ("verified", "")
    assert outcome(InPlace()) == ("verified", "")
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert outcome(Plain()) == ("verified", "")
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("torchs", [False, True])
def test_biases_of_queries_distinguish_heads(torchs):
    model = nn.MultiheadAttention(8, 2, batch_first=True) if torchs else OfTwoHeads()
    with torch.no_grad():
        weight = model.in_proj_weight if torchs else None
        query, key, value = (
            weight.chunk(3) if torchs else (p.weight for p in (model.q_proj, model.k_proj, model.v_proj))
        )
        for part in (query, key, value):
            part[4:] = part[:4]
        bias = model.in_proj_bias[:8] if torchs else model.q_proj.bias
        out = model.out_proj if torchs else model.o_proj
        bias[:4] = bias[4:] = 3.0
        out.weight[:, 4:] = -out.weight[:, :4]
        assert active_units(model).active == (0,)  # the heads are one, and cancel
        bias[4:] = -3.0
    assert active_units(model).active == (2,)


class Head(Layers, **dict.fromkeys(("key", "query", "value"), (16, 4, False))):
    def forward(self, x):
        return (self.query(x) @ self.key(x).mT / 2).softmax(-1) @ self.value(x)


class Lecture(nn.Module):
    def __init__(self, turned=False):
        super().__init__()
        self.turned = turned
        self.heads = nn.ModuleList(Head() for _ in range(4))
        self.proj = nn.Linear(16, 16)

    def forward(self, x):
        read = [head(x) for head in self.heads]
        return self.proj(torch.cat(read[::-1] if self.turned else read, -1))


def test_heads_that_are_modules_of_their_own():
    model = Lecture()
    (block,) = find_attention(model).blocks
    factors = block.factors()
    for number, head in enumerate(model.heads):
        torch.testing.assert_close(factors.key[number], head.key.weight.T)
        torch.testing.assert_close(factors.output[number], model.proj.weight[:, 4 * number : 4 * number + 4])
    with pytest.raises(InputError, match="matrices='\\*'") as reported:
        RankTracker(Lecture(turned=True))
    assert len(str(reported.value)) <= 300
