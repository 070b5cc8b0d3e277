"""Attention that names alone would misread, as published libraries write it; inputs of width 12, four heads."""

from types import SimpleNamespace

import torch
from attention_standins import attend
from torch import nn


class Sequential(nn.Module):
    """ChatGLM and Ling: the names of GPT-NeoX, with queries, keys and values one after the other."""

    def __init__(self):
        super().__init__()
        self.num_heads = 4
        self.query_key_value, self.dense = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, hidden_states):
        parts = self.query_key_value(hidden_states).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (4, 3)).transpose(1, 2) for part in parts)
        return self.dense(attend(q, k, v).transpose(1, 2).flatten(2))


class StridedGroups(nn.Module):
    """x-transformers: query head h uses key head h mod 2."""

    def __init__(self):
        super().__init__()
        self.heads, self.kv_heads = 4, 2
        self.to_q, self.to_k, self.to_v = nn.Linear(12, 20), nn.Linear(12, 10), nn.Linear(12, 10)
        self.to_out = nn.Linear(20, 12)

    def forward(self, x):
        q = self.to_q(x).unflatten(-1, (4, 5)).transpose(1, 2)
        k, v = (part(x).unflatten(-1, (2, 5)).transpose(1, 2).repeat(1, 2, 1, 1) for part in (self.to_k, self.to_v))
        return self.to_out(attend(q, k, v).transpose(1, 2).flatten(2))


class GatedQueries(nn.Module):
    """Qwen3-Next: q_proj has a query and a gate for each head; the gate multiplies what the head has read."""

    def __init__(self):
        super().__init__()
        self.num_heads = 4
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(12, 40), nn.Linear(12, 20), nn.Linear(12, 20)
        self.o_proj = nn.Linear(20, 12)

    def forward(self, hidden_states):
        q, gate = self.q_proj(hidden_states).unflatten(-1, (4, 10)).chunk(2, dim=-1)
        k, v = (part(hidden_states).unflatten(-1, (4, 5)).transpose(1, 2) for part in (self.k_proj, self.v_proj))
        read = attend(q.transpose(1, 2), k, v).transpose(1, 2).flatten(2)
        return self.o_proj(read * gate.flatten(2).sigmoid())


class Pieces(nn.Module):
    """CodeGen: four pieces, each with the queries, values and keys of its heads."""

    def __init__(self):
        super().__init__()
        self.num_attention_heads = 8
        self.qkv_proj, self.out_proj = nn.Linear(12, 48, bias=False), nn.Linear(16, 12, bias=False)

    def forward(self, hidden_states):
        q, v, k = self.qkv_proj(hidden_states).unflatten(-1, (4, 12)).split(4, dim=-1)
        q, k, v = (part.flatten(2).unflatten(-1, (8, 2)).transpose(1, 2) for part in (q, k, v))
        return self.out_proj(attend(q, k, v).transpose(1, 2).flatten(2))


class Columns(nn.Module):
    """DINO-like code that reshapes to (heads, width, 3)."""

    def __init__(self):
        super().__init__()
        self.num_heads = 4
        self.qkv, self.proj = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (4, 3, 3)).permute(4, 0, 2, 1, 3)
        return self.proj(attend(q, k, v).transpose(1, 2).flatten(2))


class ChannelsFirst(nn.Module):
    """timm's CoAtNet: convolutions of one pixel on images, with channels first."""

    def __init__(self):
        super().__init__()
        self.num_heads = 4
        self.qkv, self.proj = nn.Conv2d(12, 36, 1), nn.Conv2d(12, 12, 1)

    def forward(self, x):
        _, _, height, width = x.shape
        q, k, v = self.qkv(x).flatten(2).unflatten(1, (3, 4, 3)).transpose(-1, -2).unbind(1)
        return self.proj(attend(q, k, v).transpose(-1, -2).flatten(1, 2).unflatten(2, (height, width)))


class SampleSecond(nn.Module):
    """fairseq: tokens before samples, heads in the batch."""

    def __init__(self):
        super().__init__()
        self.num_heads = 4
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(12, 12) for _ in range(4))

    def forward(self, query):
        tokens, samples, _ = query.shape
        q, k, v = (
            part(query).contiguous().view(tokens, samples * 4, 3).transpose(0, 1)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        read = torch.bmm(torch.bmm(q * 3**-0.5, k.transpose(1, 2)).softmax(-1), v)
        return self.out_proj(read.transpose(0, 1).contiguous().view(tokens, samples, 12))


class Einsum(nn.Module):
    """Heads after tokens, as in JAX code, with a residual connection and a norm inside."""

    def __init__(self):
        super().__init__()
        self.num_heads = 4
        self.norm = nn.LayerNorm(12)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(12, 12) for _ in range(4))

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (part(y).unflatten(-1, (4, 3)) for part in (self.q_proj, self.k_proj, self.v_proj))
        weights = torch.einsum("bthd,bshd->bhts", q, k).softmax(-1)
        return x + self.o_proj(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2))


class SharedKey(nn.Module):
    """x-transformers with one key head: no axis of heads in keys and values."""

    def __init__(self):
        super().__init__()
        self.heads = 4
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(12, size) for size in (12, 3, 3, 12))

    def forward(self, x):
        q = self.to_q(x).unflatten(-1, (4, 3)).transpose(1, 2)
        weights = (torch.einsum("b h i d, b j d -> b h i j", q, self.to_k(x)) * 3**-0.5).softmax(-1)
        return self.to_out(torch.einsum("b h i j, b j d -> b h i d", weights, self.to_v(x)).transpose(1, 2).flatten(2))


class _Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_heads = 4
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(12, 12) for _ in range(4))

    def parts(self, x):
        return (part(x).unflatten(-1, (4, 3)).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))

    def joined(self, read):
        return self.o_proj(read.transpose(1, 2).flatten(2))


class LinearAttention(_Llama):
    """No softmax."""

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.joined(q @ (k.transpose(-1, -2) @ v))


class OverChannels(_Llama):
    """XCiT: a softmax over channels."""

    def forward(self, x):
        q, k, v = (part.transpose(-1, -2) for part in self.parts(x))
        return self.joined(((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(-1, -2))


class OverManyChannels(_Llama):
    """timm's XCiT: more channels in a head than tokens, by PyTorch's own attention."""

    def __init__(self):
        super().__init__()
        self.num_heads = 1
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(12, 40) for _ in range(3))
        self.o_proj = nn.Linear(40, 12)

    def forward(self, x):
        q, k, v = (part(x)[:, None].transpose(-1, -2) for part in (self.q_proj, self.k_proj, self.v_proj))
        read = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.joined(read.transpose(-1, -2))


class TalkingHeads(_Llama):
    """Weights of all heads are mixed after the softmax."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv2d(4, 4, 1, bias=False)

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.joined(self.mix((q @ k.transpose(-1, -2)).softmax(-1)) @ v)


class MixedScores(TalkingHeads):
    """Scores of all heads are mixed before the softmax."""

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.joined(self.mix(q @ k.transpose(-1, -2)).softmax(-1) @ v)


class MixedAndAdded(TalkingHeads):
    """x-transformers with pre_talking_heads: mixed scores are added to the scores themselves."""

    def forward(self, x):
        q, k, v = self.parts(x)
        scores = q @ k.transpose(-1, -2)
        return self.joined((scores + self.mix(scores)).softmax(-1) @ v)


class MixedByEinsum(_Llama):
    """Scores are mixed by einsum with a matrix of heads by heads."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        q, k, v = self.parts(x)
        scores = torch.einsum("bhij,hg->bgij", q @ k.transpose(-1, -2), self.mix)
        return self.joined(scores.softmax(-1) @ v)


class ScaledByMixed(TalkingHeads):
    """x-transformers with pre_scale_post_talking_heads: a mixture of scores multiplies the weights."""

    def forward(self, x):
        q, k, v = self.parts(x)
        scores = q @ k.transpose(-1, -2)
        return self.joined((scores.softmax(-1) * self.mix(scores).sigmoid()) @ v)


class Laser(_Llama):
    """x-transformers with laser: exponentials of values are read, and the logarithm is written."""

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.joined(attend(q, k, v.exp()).log())


class NotFinite(_Llama):
    """Module that cannot compute on normal random inputs."""

    def forward(self, x):
        q, k, v = self.parts(x.abs().sqrt().neg().log())
        return self.joined(attend(q, k, v))


class AddedPositions(_Llama):
    """Mask2Former: tokens first, and embeddings that are added to the inputs of queries and keys are needed."""

    def forward(self, hidden_states, attention_mask=None, position_embeddings=None):
        hidden_states = hidden_states.transpose(0, 1)
        if position_embeddings is None:
            raise ValueError("values are of the inputs without positions")
        q, k, _ = self.parts(hidden_states + position_embeddings.transpose(0, 1))
        v = self.v_proj(hidden_states).unflatten(-1, (4, 3)).transpose(1, 2)
        return self.joined(attend(q, k, v)).transpose(0, 1)


class NeedsMask(_Llama):
    """CPM-Ant: a mask is needed, and one of zeros hides everything."""

    def forward(self, hidden_states, attention_mask=None):
        q, k, v = self.parts(hidden_states)
        hidden = (attention_mask == 0)[:, None]
        weights = (q @ k.transpose(-1, -2)).masked_fill(hidden, -torch.inf).softmax(-1)
        return self.joined(weights.masked_fill(hidden, 0) @ v)


class TokensMixedFirst(_Llama):
    """CvT: queries, keys and values of several tokens."""

    def forward(self, x):
        return self.joined(attend(*self.parts(x + x.roll(1, dims=1))))


class Differential(_Llama):
    """Differential transformer: the difference of two softmaxes reads values of twice the width."""

    def forward(self, x):
        q, k, v = self.parts(x)
        first, second = (q @ k.transpose(-1, -2)).softmax(-1).chunk(2, dim=1)
        wide = torch.cat(v.chunk(2, dim=1), dim=-1)
        read = (first - 0.5 * second) @ wide
        return self.o_proj(read.transpose(1, 2).flatten(2))


class DifferentialInTwoCalls(_Llama):
    """DiffLlama: the same softmax reads one half of the values after the other."""

    def forward(self, x):
        q, k, v = self.parts(x)
        halves = [attend(q, k, half.repeat(1, 2, 1, 1)) for half in v.chunk(2, dim=1)]
        first, second = torch.cat(halves, dim=-1).chunk(2, dim=1)
        return self.o_proj((first - 0.5 * second).transpose(1, 2).flatten(2))


class ClassAttention(_Llama):
    """CaiT: only the first token has a query."""

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.joined(attend(q[:, :, :1], k, v))


class HeadScales(_Llama):
    """A learned number multiplies each head's queries."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4, 1, 1))

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.joined(attend(self.scale * q, k, v))


class Swapped(_Llama):
    """A user's own code with the heads of the output in reverse order."""

    def forward(self, x):
        return self.joined(attend(*self.parts(x)).flip(1))


READ = (Sequential, StridedGroups, GatedQueries, Pieces, Columns, SampleSecond, Einsum, SharedKey)
REFUSED = (LinearAttention, OverChannels, OverManyChannels, TalkingHeads, MixedScores, MixedAndAdded, MixedByEinsum,
           ScaledByMixed, Laser, Differential, DifferentialInTwoCalls, HeadScales, Swapped)  # fmt: skip
MIXED = (TalkingHeads, MixedScores, MixedAndAdded, MixedByEinsum, ScaledByMixed)


class _NeedsGPU(nn.Module):
    """Attention whose forward pass runs on GPUs alone, so that its names and numbers must suffice."""

    def forward(self, hidden_states, attention_mask=None):
        raise RuntimeError("No CUDA GPUs are available")


class ColumnParallel(nn.Module):
    """Megatron's linear layer: a matrix (out, in), and a forward pass that returns the bias apart."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight.T, self.bias


class Megatron(_NeedsGPU):
    """megatron.core's SelfAttention in one of two processes: two of four query heads, on one of two key heads."""

    def __init__(self, gate=False):
        super().__init__()
        self.config = SimpleNamespace(num_attention_heads=4, num_query_groups=2, hidden_size=12)
        self.num_attention_heads_per_partition, self.num_query_groups_per_partition = 2, 1
        self.linear_qkv = ColumnParallel(12, 3 * (2 + 2 + 2 * gate))
        self.linear_proj = ColumnParallel(6, 12)


class MegatronCross(_NeedsGPU):
    """megatron.core's CrossAttention: for each head, its key and then its value."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(num_attention_heads=4, num_query_groups=4, hidden_size=12)
        self.num_attention_heads_per_partition = 4
        self.linear_q, self.linear_kv = ColumnParallel(12, 12), ColumnParallel(8, 24)
        self.linear_proj = ColumnParallel(12, 12)


class SplitLinear(nn.Module):
    """TransformerEngine's Linear with parameters_split: one parameter for queries, one for keys, one for values."""

    def __init__(self, inputs, **outputs):
        super().__init__()
        self.weight_names = [f"{name}_weight" for name in outputs]
        for name, size in outputs.items():
            self.register_parameter(f"{name}_weight", nn.Parameter(torch.randn(size, inputs)))
            self.register_parameter(f"{name}_bias", nn.Parameter(torch.zeros(size)))


class TransformerEngine(_NeedsGPU):
    """transformer_engine.pytorch's MultiheadAttention: four query heads on two key heads."""

    def __init__(self, fuse_qkv_params=False):
        super().__init__()
        self.num_attention_heads = self.num_attention_heads_per_partition = 4
        self.num_gqa_groups = self.num_gqa_groups_per_partition = 2
        self.qkv_weight_interleaved = fuse_qkv_params
        split = {"query": 12, "key": 6, "value": 6}
        self.layernorm_qkv = ColumnParallel(12, 24) if fuse_qkv_params else SplitLinear(12, **split)
        self.proj = ColumnParallel(12, 12)
