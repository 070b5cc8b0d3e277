"""Heads that multiply their scores or weights by numbers of their own, heads as modules, and odd surroundings."""

import pytest
import torch
from attention_standins import Layers
from torch import nn

from saddlescope._shared.errors import InputError
from saddlescope.ranks import RankTracker, active_units
from saddlescope.ranks.attention.attention_blocks import find_attention


class Attention(nn.Module):
    """Plain attention whose scores and weights a factor per head multiplies."""

    def __init__(self, before=(1.0, 1.0, 1.0), after=(1.0, 1.0, 1.0), width=12):
        super().__init__()
        self.num_heads = len(before)
        self.before, self.after = (torch.tensor(one)[:, None, None] for one in (before, after))
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        layers = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for layer in layers)
        weights = (q @ k.mT / 2 * self.before).softmax(-1) * self.after
        return self.o_proj((weights @ v).transpose(1, 2).flatten(2))


class InPlace(Attention):
    def forward(self, x):
        return x.add_(super().forward(x))


def outcome(module):
    (row,) = find_attention(nn.ModuleDict({"attn": module})).coverage
    return row.outcome, row.reason


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_factor_of_a_head_is_refused_or_said(where):
    kind, reason = outcome(Attention(**{where: (1.0, 0.0, 1.0)}))
    assert kind == "refused"
    assert "by 0 or by a negative number" in reason
    assert outcome(Attention(**{where: (1.0, -1.0, 1.0)}))[0] == "refused"
    kind, reason = outcome(Attention(**{where: (1.0, 2.0, 3.0)}))
    assert kind == "verified"
    assert "by numbers of their own" in reason
    assert outcome(Attention(**{where: (1.0, 1e-3, 1.0)}))[0] == "verified"
    assert outcome(Attention(**{where: (2.0, 2.0, 2.0)})) == ("verified", "")


@pytest.mark.parametrize(
    ("factor", "kind"),
    [
        (lambda x: -x.norm(dim=-1), "refused"),
        (lambda x: x[..., 0].sign(), "refused"),
        (lambda x: (x[..., 0] > 0).float(), "refused"),
        (lambda x: x.norm(dim=-1), "verified"),
    ],
)
def test_a_factor_of_a_token_must_be_positive(factor, kind):
    class Scaled(Attention):
        def forward(self, x):
            self.before = factor(x)[:, None, :, None]
            return super().forward(x)

    assert outcome(Scaled())[0] == kind


def test_the_self_check_does_not_depend_on_what_surrounds_it():
    with torch.autocast("cpu", torch.bfloat16):
        assert outcome(Attention()) == ("verified", "")
    assert outcome(InPlace()) == ("verified", "")
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert outcome(Attention()) == ("verified", "")
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("torchs", [False, True])
def test_biases_of_queries_distinguish_heads(torchs):
    model = nn.MultiheadAttention(8, 2, batch_first=True) if torchs else Attention((1.0, 1.0), (1.0, 1.0), width=8)
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
