"""Attention that names alone would misread, as published libraries write it; inputs of width 12, four heads."""

from typing import Any

import torch
from attention_standins import Layers, attend, heads, joined, kind
from torch import nn
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention


def shared_read(q, k, v):
    weights = (torch.einsum("b h i d, b j d -> b h i j", q, k) * 3**-0.5).softmax(-1)
    return torch.einsum("b h i j, b j d -> b h i d", weights, v)


def pieces(m, x):
    q, v, k = m.qkv_proj(x).unflatten(-1, (4, 12)).split(4, dim=-1)
    return (heads(part.flatten(2), 8) for part in (q, k, v))


SEQUENTIAL = {"num_heads": 4, "query_key_value": (12, 36), "dense": (12, 12)}
STRIDED = {"heads": 4, "kv_heads": 2, "to_q": (12, 20), "to_k": (12, 10), "to_v": (12, 10), "to_out": (20, 12)}
SHARED = {"heads": 4, "to_q": (12, 12), "to_k": (12, 3), "to_v": (12, 3), "to_out": (12, 12)}
READ = {
    # ChatGLM and Ling: the names of GPT-NeoX, with queries, keys and values one after the other
    "sequential": kind(lambda m, x: map(heads, m.query_key_value(x).chunk(3, dim=-1)), **SEQUENTIAL),
    # x-transformers: query head h uses key head h mod 2
    "strided": kind(lambda m, x: (heads(m.to_q(x)), *(heads(part(x), 2).repeat(1, 2, 1, 1)
                                                      for part in (m.to_k, m.to_v))), **STRIDED),
    # CodeGen: four pieces, each with the queries, values and keys of its heads
    "pieces": kind(pieces, num_attention_heads=8, qkv_proj=(12, 48, False), out_proj=(16, 12, False)),
    # DINO-like code that reshapes to (heads, width, 3)
    "columns": kind(lambda m, x: m.qkv(x).unflatten(-1, (4, 3, 3)).permute(4, 0, 2, 1, 3), num_heads=4, qkv=(12, 36),
                    proj=(12, 12)),
    # x-transformers with one key head: no axis of heads in keys and values
    "shared key": kind(lambda m, x: (heads(m.to_q(x)), m.to_k(x), m.to_v(x)), shared_read, **SHARED),
}  # fmt: skip


class GatedQueries(Layers, num_heads=4, q_proj=(12, 40), k_proj=(12, 20), v_proj=(12, 20), o_proj=(20, 12)):
    """Qwen3-Next: q_proj has a query and a gate for each head; the gate multiplies what the head has read."""

    def forward(self, hidden_states):
        q, gate = self.q_proj(hidden_states).unflatten(-1, (4, 10)).chunk(2, dim=-1)
        read = attend(q.transpose(1, 2), heads(self.k_proj(hidden_states)), heads(self.v_proj(hidden_states)))
        return self.o_proj(joined(read) * gate.flatten(2).sigmoid())


QKV = dict.fromkeys(("q_proj", "k_proj", "v_proj"), (12, 12))


class SampleSecond(Layers, num_heads=4, **QKV, out_proj=(12, 12)):
    """fairseq: tokens before samples, heads in the batch."""

    def forward(self, query):
        tokens, samples, _ = query.shape
        q, k, v = (
            part(query).contiguous().view(tokens, samples * 4, 3).transpose(0, 1)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        read = torch.bmm(torch.bmm(q * 3**-0.5, k.transpose(1, 2)).softmax(-1), v)
        return self.out_proj(read.transpose(0, 1).contiguous().view(tokens, samples, 12))


class Einsum(Layers, num_heads=4, norm=lambda: nn.LayerNorm(12), **QKV, o_proj=(12, 12)):
    """Heads after tokens, as in JAX code, with a residual connection and a norm inside."""

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (part(y).unflatten(-1, (4, 3)) for part in (self.q_proj, self.k_proj, self.v_proj))
        weights = torch.einsum("bthd,bshd->bhts", q, k).softmax(-1)
        return x + self.o_proj(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2))


class ChannelsFirst(Layers, num_heads=4, qkv=lambda: nn.Conv2d(12, 36, 1), proj=lambda: nn.Conv2d(12, 12, 1)):
    """timm's CoAtNet: convolutions of one pixel on images, with channels first."""

    def forward(self, x):
        _, _, height, width = x.shape
        q, k, v = self.qkv(x).flatten(2).unflatten(1, (3, 4, 3)).transpose(-1, -2).unbind(1)
        return self.proj(attend(q, k, v).transpose(-1, -2).flatten(1, 2).unflatten(2, (height, width)))


class Llama(Layers, num_heads=4, **QKV, o_proj=(12, 12)):
    """Layers of plain attention, for forward passes of several kinds."""

    def parts(self, x):
        return (heads(part(x)) for part in (self.q_proj, self.k_proj, self.v_proj))

    def joined(self, read):
        return self.o_proj(joined(read))


def llama(read, before=lambda x: x, **parts):
    """Return a class with the layers of `Llama` whose heads read `read(module, q, k, v)` of changed inputs."""

    class Kind(Llama, **parts):
        def forward(self, x):
            return self.joined(read(self, *self.parts(before(x))))

    return Kind


def softmax(q, k):
    return (q @ k.mT).softmax(-1)


def differential(m, q, k, v):
    first, second = softmax(q, k).chunk(2, dim=1)
    return (first - 0.5 * second) @ torch.cat(v.chunk(2, dim=1), dim=-1)


def differential_in_two_calls(m, q, k, v):
    halves = [attend(q, k, half.repeat(1, 2, 1, 1)) for half in v.chunk(2, dim=1)]
    first, second = torch.cat(halves, dim=-1).chunk(2, dim=1)
    return first - 0.5 * second


class OverManyChannels(Llama, num_heads=1, **dict.fromkeys(QKV, (12, 40)), o_proj=(40, 12)):
    """timm's XCiT: more channels in a head than tokens, by PyTorch's own attention."""

    def forward(self, x):
        q, k, v = (part(x)[:, None].mT for part in (self.q_proj, self.k_proj, self.v_proj))
        return self.joined(functional.scaled_dot_product_attention(q, k, v).mT)


class SixChannels(Layers, heads=2, to_qkv=(12, 36), to_out=(12, 12)):
    """vit-pytorch's XCiT with heads of 6 channels, the number of tokens that are tried first."""

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 6)).permute(0, 2, 3, 1) for part in self.to_qkv(x).chunk(3, dim=-1))
        q, k = (functional.normalize(part, dim=-1) for part in (q, k))
        weights = torch.einsum("b h i n, b h j n -> b h i j", q, k).softmax(-1)
        return self.to_out(torch.einsum("b h i j, b h j n -> b h i n", weights, v).permute(0, 3, 1, 2).flatten(2))


class NeedsMask(Llama):
    """CPM-Ant: a mask is needed, and one of zeros hides everything."""

    def forward(self, hidden_states, attention_mask=None):
        q, k, v = self.parts(hidden_states)
        hidden = (attention_mask == 0)[:, None]
        weights = (q @ k.mT).masked_fill(hidden, -torch.inf).softmax(-1)
        return self.joined(weights.masked_fill(hidden, 0) @ v)


class Rotated(Llama):
    """litgpt: cosines and sines as two arguments, for some of the columns."""

    rope_n_elem = 2

    def forward(self, x, cos, sin):
        q, k, v = self.parts(x)
        q, k = (torch.cat([part[..., :2] * cos + part[..., :2].flip(-1) * sin, part[..., 2:]], -1) for part in (q, k))
        return self.joined(attend(q, k, v))


class OfWidth(Llama, head_dim=3):
    """ESMFold2 states no number of heads, but the width of one."""

    def __init__(self):
        super().__init__()
        del self.num_heads

    def forward(self, x):
        return self.joined(attend(*self.parts(x)))


class OfWidthRotated(OfWidth):
    """A rotary embedding must have the width before the module can be called."""

    def forward(self, x, position_embeddings: Any = None):
        q, k, v = self.parts(x)
        cos, sin = position_embeddings[0].expand(len(x), -1, 3), position_embeddings[1]
        return self.joined(attend(*(part * cos[:, None] + part.flip(-1) * sin for part in (q, k)), v))


PIXELS = dict.fromkeys(("q", "k", "v", "proj_out"), lambda: nn.Conv2d(12, 12, 1))


class OfImage(Layers, norm=lambda: nn.GroupNorm(2, 12), **PIXELS):
    """The only attention of Chameleon's and Janus' encoders of images, without a number of heads."""

    def forward(self, hidden_states):
        x = self.norm(hidden_states)
        q, k, v = (part(x).flatten(2) for part in (self.q, self.k, self.v))
        weights = torch.bmm(q.permute(0, 2, 1), k).softmax(dim=2)
        return hidden_states + self.proj_out(torch.bmm(v, weights.permute(0, 2, 1)).reshape(hidden_states.shape))


class OwnMultihead(nn.MultiheadAttention):
    """A subclass with another forward pass."""

    def forward(self, query, key, value):  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(query, value, key)


class Foreign(Layers, weight=lambda: nn.Parameter(torch.randn(12, 12))):
    """A linear layer of another class."""

    def forward(self, x):
        return x @ self.weight.T


class Convolved(Layers, qkv=lambda: nn.Conv1d(12, 36, 1), proj=Foreign):
    """Convolutions of one pixel on sequences, and a foreign linear layer."""

    num_heads = 4

    def forward(self, x):
        parts = self.qkv(x.transpose(1, 2)).transpose(1, 2).chunk(3, dim=-1)
        return self.proj(joined(attend(*map(heads, parts))))


class BiasTable(nn.Module):
    """TinyViT: weights head by head, a table of biases for 25 tokens, and a `train` that returns nothing."""

    attention_bias_idxs: torch.Tensor

    def __init__(self, tokens=25):
        super().__init__()
        self.num_heads = 4
        self.qkv, self.proj = nn.Linear(12, 36), nn.Linear(12, 12)
        self.attention_biases = nn.Parameter(torch.randn(4, tokens))
        distances = (torch.arange(tokens)[:, None] - torch.arange(tokens)).abs()
        self.register_buffer("attention_bias_idxs", distances, persistent=False)

    def train(self, mode=True):  # pyright: ignore[reportIncompatibleMethodOverride]
        super().train(mode)

    def forward(self, x):
        q, k, v = (part.transpose(1, 2) for part in self.qkv(x).unflatten(-1, (4, 9)).split(3, dim=3))
        weights = (q @ k.mT + self.attention_biases[:, self.attention_bias_idxs]).softmax(-1)
        return self.proj(joined(weights @ v))


class Flex(Llama):
    """Compiled FlexAttention with a bias by distance."""

    compiled: Any = staticmethod(torch.compile(flex_attention, backend="eager"))  # pyright: ignore[reportArgumentType]

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.joined(self.compiled(q, k, v, score_mod=lambda score, b, h, i, j: score - 0.1 * (i - j).abs()))


class HeadNorm(Layers, gamma=lambda: nn.Parameter(torch.ones(4, 1, 3))):
    """vit-pytorch's RMSNorm of queries and keys, with a scale for each head."""

    def forward(self, x):
        return functional.normalize(x, dim=-1) * 3**0.5 * self.gamma


class ConvolvedNorm(Layers, conv=lambda: nn.Conv1d(12, 12, 3, padding=1, groups=12)):
    """Not a norm alone: a convolution over tokens comes with it."""

    def forward(self, x):
        return self.conv(functional.normalize(x, dim=-1).transpose(1, 2)).transpose(1, 2)


class AfterConvolution(Llama, norm=ConvolvedNorm):
    def forward(self, x):
        return self.joined(attend(*self.parts(self.norm(x))))


IMAGES, TEXTS = ("to_q", "to_k", "to_v", "to_out"), ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")


class Joint(Layers, heads=4, **dict.fromkeys((*IMAGES, *TEXTS), (12, 12))):
    """Diffusers' Flux: tokens of image and text, each with projections of their own, attend to all."""

    def forward(self, hidden_states, encoder_hidden_states: Any = None):
        pairs = ((self.add_q_proj, self.to_q), (self.add_k_proj, self.to_k), (self.add_v_proj, self.to_v))
        texts, images = encoder_hidden_states, hidden_states
        read = joined(attend(*(heads(torch.cat([text(texts), image(images)], dim=1)) for text, image in pairs)))
        count = texts.shape[1]
        return self.to_out(read[:, count:]), self.to_add_out(read[:, :count])


class Whisper(Layers, n_head=4, **dict.fromkeys(("query", "value", "out"), (12, 12)), key=(12, 12, False)):
    """OpenAI's Whisper."""

    def forward(self, x, xa=None, mask=None, kv_cache=None):
        source = x if xa is None else xa
        return self.out(joined(attend(*map(heads, (self.query(x), self.key(source), self.value(source)))))), None


@torch.compile(backend="eager")
def _compiled_softmax(q, k):
    return (q @ k.transpose(-1, -2)).softmax(-1)


def _mix():
    return nn.Conv2d(4, 4, 1, bias=False)


MIXED = "its scores or attention weights are mixed by {}, over heads or tokens"
CHANNELS = "its softmax compares channels, by sums over tokens: it is not attention of tokens"
SINGLE = "its queries and keys are not those of single tokens of its input"


def largest(scores):
    return scores.masked_fill(scores < scores.topk(2, -1).values[..., -1:], -1e9)


def of_heads(before=(1.0,) * 4, after=(1.0,) * 4):
    """Return a class whose heads multiply their scores and their attention weights by these factors."""
    first, second = (torch.tensor(one)[:, None, None] for one in (before, after))
    return llama(lambda m, q, k, v: (q @ k.mT / 2 * first).softmax(-1) * second @ v)


def with_other_forward():
    module, layer = llama(lambda m, q, k, v: attend(q, k, v))(), nn.Linear(12, 12)
    original = module.q_proj.forward
    module.q_proj.forward = lambda x: original(x) + layer(x)
    return module


def with_hook():
    module = llama(lambda m, q, k, v: attend(q, k, v))()
    module.q_proj.register_forward_hook(lambda layer, given, out: 2 * out)
    return module


OUTCOMES = {  # module, outcome, and the reason or its beginning
    "linear attention": (llama(lambda m, q, k, v: q @ (k.mT @ v)), "refused", "its forward pass has no softmax: it is"),
    "XCiT": (llama(lambda m, q, k, v: (softmax(q.mT, k.mT) @ v.mT).mT), "refused", CHANNELS),
    "XCiT, many channels": (OverManyChannels, "refused", CHANNELS),
    "XCiT, as many channels as tokens": (SixChannels, "refused", CHANNELS),
    "talking heads": (llama(lambda m, q, k, v: m.mix(softmax(q, k)) @ v, mix=_mix), "refused", MIXED.format("conv2d")),
    "mixed scores": (
        llama(lambda m, q, k, v: m.mix(q @ k.mT).softmax(-1) @ v, mix=_mix), "refused", MIXED.format("conv2d")
    ),
    "x-transformers, mixed and added": (
        llama(lambda m, q, k, v: (q @ k.mT + m.mix(q @ k.mT)).softmax(-1) @ v, mix=_mix), "refused",
        MIXED.format("conv2d"),
    ),
    "mixed by einsum": (
        llama(lambda m, q, k, v: torch.einsum("bhij,hg->bgij", q @ k.mT, m.mix).softmax(-1) @ v,
              mix=lambda: nn.Parameter(torch.randn(4, 4))),
        "refused", MIXED.format("einsum"),
    ),
    "x-transformers, scaled by mixed": (
        llama(lambda m, q, k, v: (softmax(q, k) * m.mix(q @ k.mT).sigmoid()) @ v, mix=_mix), "refused",
        MIXED.format("conv2d"),
    ),
    **{
        f"scores: {name}": (
            llama(lambda m, q, k, v, mixed=mixed: mixed(q @ k.mT).softmax(-1) @ v), "refused",
            "its scores or attention weights are mixed, over heads or tokens",
        )
        for name, mixed in {
            "those of other heads": lambda a: a[:, [1, 0, 3, 2]],
            "with those of the first head": lambda a: a + a[:, :1],
            "without their mean over heads": lambda a: a - a.mean(1, keepdim=True),
            "with a hundredth of their mean over heads": lambda a: a + 0.01 * a.mean(1, keepdim=True),
            "symmetric": lambda a: a + a.mT,
            "smooth over keys": lambda a: functional.avg_pool1d(a.flatten(0, 1), 3, 1, 1).view(a.shape),
        }.items()
    },
    "weights of other heads": (
        llama(lambda m, q, k, v: softmax(q, k)[:, [1, 0, 3, 2]] @ v), "refused",
        "its scores or attention weights are mixed, over heads or tokens",
    ),
    "the largest scores alone": (llama(lambda m, q, k, v: largest(q @ k.mT).softmax(-1) @ v), "verified", None),
    "a temperature for each head": (
        llama(lambda m, q, k, v: (q @ k.mT * m.scale).softmax(-1) @ v, scale=lambda: nn.Parameter(torch.ones(4, 1, 1))),
        "verified", "heads multiply their scores by numbers of their own",
    ),
    "scores minus the largest of a row": (
        llama(lambda m, q, k, v: (q @ k.mT - (q @ k.mT).amax(-1, keepdim=True)).softmax(-1) @ v), "verified", None
    ),
    "a negative temperature of one head": (
        llama(lambda m, q, k, v: (q @ k.mT * m.scale[:, None, None]).softmax(-1) @ v,
              scale=lambda: nn.Parameter(torch.tensor([1.0, 1.0, -1.0, 1.0]))),
        "refused", "a head multiplies its scores by 0 or by a negative number",
    ),
    "a negative temperature": (
        llama(lambda m, q, k, v: (q @ k.mT * m.scale).softmax(-1) @ v, scale=lambda: nn.Parameter(torch.tensor(-1.0))),
        "refused", "a head multiplies its scores by 0 or by a negative number",
    ),
    **{
        f"{what} of heads times {factors}": (of_heads(**{where: factors}), outcome, reason and reason.format(what))
        for where, what in (("before", "scores"), ("after", "attention weights"))
        for factors, outcome, reason in (
            ((1.0, 0.0, 1.0, 1.0), "refused", "a head multiplies its {} by 0 or by a negative number"),
            ((1.0, -1.0, 1.0, 1.0), "refused", "a head multiplies its {} by 0 or by a negative number"),
            ((1.0, 2.0, 3.0, 4.0), "verified", "heads multiply their {} by numbers of their own"),
            ((1.0, 1e-3, 1.0, 1.0), "verified", "heads multiply their {} by numbers of their own"),
            ((2.0, 2.0, 2.0, 2.0), "verified", None),
        )
    },
    **{
        f"scores of a token times {name}": (
            llama(lambda m, q, k, v, factor=factor: (q @ k.mT * factor(q)).softmax(-1) @ v), outcome, ""
        )
        for name, factor, outcome in (
            ("minus a length", lambda q: -q.norm(dim=-1, keepdim=True), "refused"),
            ("a sign", lambda q: q[..., :1].sign(), "refused"),
            ("0 or 1", lambda q: (q[..., :1] > 0).float(), "refused"),
            ("a length", lambda q: q.norm(dim=-1, keepdim=True), "verified"),
        )
    },
    "LoRA of kohya's scripts": (with_other_forward, "unchecked", "the forward pass of q_proj is replaced from outside"),
    "a hook": (with_hook, "unchecked", "hooks of q_proj may change what it computes"),
    "x-transformers, laser": (
        llama(lambda m, q, k, v: attend(q, k, v.exp()).log()), "refused", "its values are not those of W_V as read"
    ),
    "differential": (llama(differential), "refused", ""),
    "DiffLlama": (
        llama(differential_in_two_calls), "refused",
        "each head reads several sets of values, as in differential attention, and W_V has one for each head",
    ),
    "a factor for each head": (
        llama(lambda m, q, k, v: attend(m.scale * q, k, v), scale=lambda: nn.Parameter(torch.ones(4, 1, 1))),
        "refused", "its scores are not those of W_K W_Q^T as read",
    ),
    "heads in reverse order": (
        llama(lambda m, q, k, v: attend(q, k, v).flip(1)), "refused", "its output is not what the heads have read"
    ),
    "norm written out": (
        llama(lambda m, q, k, v: attend(q * torch.rsqrt(q.pow(2).mean(-1, keepdim=True) + 1e-6), k, v)), "refused",
        "its scores are not those of W_K W_Q^T as read by 3 columns a head: queries or keys have one length",
    ),
    "rectified queries": (llama(lambda m, q, k, v: attend(q.relu(), k, v)), "refused", "its scores are not those of"),
    "CaiT, class attention": (
        llama(lambda m, q, k, v: attend(q[:, :, :1], k, v)), "unchecked",
        "one query meets all tokens, as in class attention or pooling: the check does not cover it",
    ),
    "not finite": (
        llama(lambda m, q, k, v: attend(q, k, v), lambda x: x.abs().sqrt().neg().log()), "unchecked",
        "its forward pass gave NaN or infinity on random inputs",
    ),
    "CvT, tokens mixed first": (
        llama(lambda m, q, k, v: attend(q, k, v), lambda x: x + x.roll(1, dims=1)), "unchecked", SINGLE
    ),
    "a convolution with a norm": (AfterConvolution, "unchecked", SINGLE),
    "PyTorch's": (lambda: nn.MultiheadAttention(12, 4), "verified", None),
    "a subclass of PyTorch's": (
        lambda: OwnMultihead(12, 4), "unchecked", "its forward pass is not that of torch.nn.MultiheadAttention"
    ),
    "norms with a scale for each head": (
        llama(lambda m, q, k, v: attend(m.q_norm(q), m.k_norm(k), v), q_norm=HeadNorm, k_norm=HeadNorm), "verified",
        None,
    ),
    **{
        f"in {dtype}": (
            llama(lambda m, q, k, v, t=dtype: attend(q.to(t), k.to(t), v.to(t)).float()), outcome, reason
        )
        for dtype, outcome, reason in (
            (torch.float16, "verified", None), (torch.float64, "verified", None),
            (torch.bfloat16, "unchecked", "it computes in torch.bfloat16, and the check needs float32"),
        )
    },
    "a compiled function": (llama(lambda m, q, k, v: _compiled_softmax(q, k) @ v), "verified", None),
    "flex_attention": (Flex, "verified", None),
    "gated queries": (GatedQueries, "verified", "a gate comes between W_V and W_O"),
    "Flux": (
        Joint, "verified", "its other projections are left out: add_q_proj, add_k_proj, add_v_proj, to_add_out"
    ),
    "images without a number of heads": (OfImage, "verified", None),
    "convolutions and foreign layers": (Convolved, "verified", None),
    **{one.__name__: (one, "verified", None) for one in
       (NeedsMask, ChannelsFirst, Rotated, OfWidth, OfWidthRotated, BiasTable, Whisper)},
}  # fmt: skip
