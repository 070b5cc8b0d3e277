"""Forward pass of one attention module alone, on random inputs and with random weights, traced.

The module is copied with new random weights of the same shapes, so zeros at initialization hide nothing, and nothing of
the model is used up or changed: not its weights, devices, hooks, or random state. Norms become the identity, and so do
rotary embeddings that the module takes as arguments. The arguments of its forward pass are found by their names.
"""

import contextlib
import copy
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from saddlescope.train.attention.attention_trace import AttentionTrace
from saddlescope.train.attention.self_check import Heads, heads_of

_BATCH = 4
_TOKENS = (6, 4, 9, 16, 49, 64)  # numbers of tokens to try; squares for modules that arrange them in images
_WAYS = 3  # calls that succeed, at most
_SMALL = 2**21  # parameters of a module that may be called often
_LARGEST = 2**28  # parameters of a module beyond which it is not copied

# Arguments by name.
_QUERIES = frozenset({
    "hidden_states", "hidden_state", "x", "query", "input", "inputs", "states", "h", "q", "hidden", "input_tensor",
    "queries", "query_states", "tokens", "embeddings", "image_embeddings", "src", "tgt", "sequence", "features",
    "inputs_q", "from_tensor", "tensor", "inp", "latents", "input_q", "query_hidden_states", "hidden_states_list",
})  # fmt: skip
_KEYS = frozenset({
    "key_value_states", "encoder_hidden_states", "context", "memory", "kv", "key", "value", "y", "keys", "values",
    "key_states", "value_states", "current_states", "inputs_kv", "to_tensor", "k", "v", "encoder_outputs",
    "cross_attention_states", "media", "inputs_k", "inputs_v", "kv_states",
})  # fmt: skip
_PACKED = frozenset({"cu_seqlens", "cu_seq_lens", "cu_window_seqlens", "cu_seq_lens_q", "cu_seqlens_q"})
_ROTARY_PAIR = frozenset({"position_embeddings", "rotary_pos_emb", "rope", "pos_emb", "rotary", "freqs", "cos_sin",
                          "position_embedding", "rotary_emb", "rotary_embedding"})  # fmt: skip


class Probe(NamedTuple):
    """One traced forward pass of a module's copy.

    Attributes:
        module: the copy, with its random weights.
        queries, keys: inputs that queries, and keys and values, are computed from: (batch, tokens, inputs).
        heads: queries, keys and values of each softmax.
        outputs: what the forward pass returned, shaped (batch, tokens, outputs).
        softmaxes: number of softmax calls.
        meetings: number of them whose argument is a product of queries and keys of tokens.
        opaque: name of a function that computes attention out of sight; "" for none.
        failure: reason why no call succeeded; "" otherwise.
    """

    module: nn.Module | None
    queries: Float[Tensor, "batch tokens inputs"] | None
    keys: Float[Tensor, "batch tokens inputs"] | None
    heads: tuple[Heads, ...]
    outputs: list[Tensor]
    softmaxes: int
    meetings: int
    opaque: str
    failure: str


def probes(module: nn.Module, *, inputs: int, key_inputs: int, width: int) -> Iterator[Probe]:
    """Call a copy of an attention module on random inputs, in each way that its arguments allow.

    A module may accept tokens in the place of samples, so more than one way can succeed; those that show no softmax of
    queries and keys come last. If no way succeeds, there is one probe, with the reason.

    Args:
        module: the attention module; it is not changed.
        inputs: width of the inputs of queries.
        key_inputs: width of the inputs of keys and values.
        width: columns of one head's queries, for rotary embeddings.
    """
    size = sum(parameter.numel() for parameter in module.parameters())
    if size > _LARGEST:
        yield failed("it is too large to be copied")
        return
    try:
        twin = random_copy(module)
    except Exception as error:
        yield failed(f"it cannot be copied ({brief(error)})")
        return
    empty: list[Probe] = []
    failure, found = "", 0
    for call in itertools.islice(_calls(twin, inputs, key_inputs, width), 1000 if size < _SMALL else 60):
        trace = AttentionTrace()
        try:
            with quiet(), trace:
                returned = call.run()
        except Exception as error:
            failure = failure or f"its forward pass could not be called alone ({brief(error)})"
            continue
        one = _traced(twin, call, trace, returned)
        if one.heads:
            found += 1
            yield one
            if found == _WAYS:
                return
        else:
            empty.append(one)
            if len(empty) == _WAYS and not found:
                break
    if found:
        return
    if empty:
        yield empty[0]
    else:
        yield failed(failure or "its forward pass has arguments that the check does not know")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Compute on the processor in float32, without gradients, and leave random state and default type as they are."""
    before = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.device("cpu"):
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def failed(reason: str) -> Probe:
    """Return a probe without a forward pass."""
    return Probe(None, None, None, (), [], 0, 0, "", reason)


def brief(error: Exception) -> str:
    """Return an error's kind and the start of its message."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:100]}{'…' if len(text) > 100 else ''}"


def random_copy(module: nn.Module) -> nn.Module:
    """Copy a module with random weights on the processor, in evaluation mode, with norms as the identity."""
    memo: dict[int, Any] = {}
    draw = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        if not parameter.is_floating_point():
            memo[id(parameter)] = parameter
            continue
        size = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 1.0
        memo[id(parameter)] = nn.Parameter(
            torch.randn(parameter.shape, generator=draw, device="cpu") * size, requires_grad=False
        )
    for buffer in module.buffers():
        if buffer.is_floating_point() and buffer.device.type != "meta":
            memo[id(buffer)] = buffer.detach().to("cpu", torch.float32, copy=True)
        elif buffer.device.type == "meta":
            memo[id(buffer)] = torch.zeros(buffer.shape, dtype=buffer.dtype)
        else:
            memo[id(buffer)] = buffer.detach().to("cpu", copy=True)
    twin = copy.deepcopy(module, memo)
    for part in list(twin.modules()):
        if "forward" in vars(part):  # wrapped by Accelerate and others
            del part.forward
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"):
            hooks = getattr(part, name)
            kept = {k: h for k, h in hooks.items() if hasattr(h, "compute_weight")}
            hooks.clear()
            hooks.update(kept)
        for name, child in list(part.named_children()):
            if _is_norm(child):
                setattr(part, name, _Same())
    return twin.eval()


def _is_norm(module: nn.Module) -> bool:
    name = type(module).__name__.lower()
    return "norm" in name and all(parameter.ndim < 2 for parameter in module.parameters())


class _Same(nn.Module):
    """Norm that does nothing, for calls with any arguments."""

    def forward(self, x: Tensor, *_: object, **__: object) -> Tensor:
        """Return the argument."""
        return x + 0


class _Call(NamedTuple):
    run: Callable[[], Any]
    queries: Float[Tensor, "batch tokens inputs"]
    keys: Float[Tensor, "batch tokens inputs"]


def _calls(module: nn.Module, inputs: int, key_inputs: int, width: int) -> Iterator[_Call]:
    """Yield calls to try, the likeliest first."""
    parameters = inspect.signature(type(module).forward).parameters
    names = [name for name, one in parameters.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)][1:]
    required = {name for name in names if parameters[name].default is inspect.Parameter.empty}
    self_attention = inputs == key_inputs
    draw = torch.Generator().manual_seed(1)
    for tokens in _token_counts(module):
        for cross in (False, True) if self_attention else (True,):
            x = torch.randn(_BATCH, tokens, inputs, generator=draw)
            y = torch.randn(_BATCH, tokens, key_inputs, generator=draw) if cross else x
            for kwargs in _arguments(module, names, required, x, y, cross=cross, width=width):
                packed = bool(_PACKED & kwargs.keys())
                for form in _forms(tokens, packed=packed):
                    made = {key: form(value) if value is x or value is y else value for key, value in kwargs.items()}
                    yield _Call(_bound(module, names, made, tokens), x, y)


def _bound(module: nn.Module, names: list[str], made: dict[str, Any], tokens: int) -> Callable[[], Any]:
    return lambda: module(**made)


def _forms(tokens: int, *, packed: bool) -> list[Callable[[Tensor], Tensor]]:
    """Return ways to pass samples and tokens: as they are, tokens as an image or first, or `packed` in one sequence."""
    side = round(tokens**0.5)
    forms: list[Callable[[Tensor], Tensor]] = [lambda x: x]
    if packed:
        return [lambda x: x.flatten(0, 1), lambda x: x.flatten(0, 1)[None]]
    if side * side == tokens:
        forms.append(lambda x: x.unflatten(1, (side, side)))
    return [*forms, lambda x: x.transpose(0, 1), lambda x: x[:, None]]


def _token_counts(module: nn.Module) -> list[int]:
    """Return numbers of tokens to try; first those that the module states."""
    stated: list[int] = []
    for name in ("window_size", "input_size", "area", "num_patches", "seq_length", "seq_len"):
        value = getattr(module, name, None)
        if isinstance(value, int) and 0 < value <= 16:
            stated += [value * value, value]
        elif isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(one, int) for one in value):
            stated.append(value[0] * value[1])
    stated = [count for count in stated if 0 < count <= 1024]
    return list(dict.fromkeys([*stated, *_TOKENS]))


def _arguments(
    module: nn.Module, names: list[str], required: set[str], x: Tensor, y: Tensor, *, cross: bool, width: int
) -> Iterator[dict[str, Any]]:
    """Yield keyword arguments for the forward pass."""
    first = next((name for name in names if name in _QUERIES), names[0] if names else None)
    if first is None:
        return
    base: dict[str, Any] = {first: x}
    others = [name for name in names if name != first]
    keys = [name for name in others if name in _KEYS]
    if cross and keys:
        base |= dict.fromkeys(keys, y)
    elif cross:
        return
    else:
        base |= dict.fromkeys([name for name in keys if name in required], x)
    packed = [name for name in others if name in _PACKED]
    if packed:
        x = x.flatten(0, 1)[None]
        base |= dict.fromkeys(packed, torch.tensor([0, x.shape[1]], dtype=torch.int32))
    rotary = [name for name in others if name in _ROTARY_PAIR]
    apart = {"cos", "sin"} <= set(others)
    plain = [name for name in others if name not in base and name not in rotary and name in required]
    sides = round(x.shape[1] ** 0.5)
    values = dict(base)
    for name in plain:
        values[name] = _default_of(name, x, sides)
    if "position_ids" in others and "position_ids" not in values:
        values["position_ids"] = torch.arange(x.shape[1])[None].expand(len(x), -1)
    for name in ("cache_position",):
        if name in required:
            values[name] = torch.arange(x.shape[1])
    if "output_attentions" in others:
        values["output_attentions"] = False
    for given in (values, *_masked(values, plain, x, y)):
        for turned in _rotations(module, x, width) if rotary or apart else ():
            if rotary:
                yield given | dict.fromkeys(rotary, turned)
            elif isinstance(turned, tuple):
                yield given | dict(zip(("cos", "sin"), turned, strict=True))
        if not set(rotary) & required:
            yield given


def _masked(values: dict[str, Any], plain: list[str], x: Tensor, y: Tensor) -> Iterator[dict[str, Any]]:
    """Yield the arguments with masks that hide nothing, in the shapes in use."""
    masks = [name for name in plain if "mask" in name]
    if "alibi" in plain:
        yield values | {"alibi": torch.zeros(1, 1, y.shape[1])}
    if not masks:
        return
    samples, tokens, sources = len(x), x.shape[1], y.shape[1]
    for mask in (
        torch.zeros(samples, 1, tokens, sources),
        torch.ones(samples, tokens),
        torch.ones(samples, 1, tokens, sources, dtype=torch.bool),
        torch.zeros(samples, tokens, dtype=torch.bool),
        torch.ones(samples, tokens, sources),
    ):
        yield values | dict.fromkeys(masks, mask)


def _default_of(name: str, x: Tensor, side: int) -> Any:
    """Return a value for a required argument that is neither inputs nor a rotary embedding."""
    samples, tokens = x.shape[:2]
    if "mask" in name or name.startswith(("past", "cache", "layer_past", "head_mask")):
        return None
    if name in ("H", "W", "height", "width", "h", "w"):
        return side
    if name in ("size", "hw", "hw_shape", "x_size", "spatial_shape", "feat_size"):
        return (side, side)
    if name in ("position_ids", "input_pos", "positions"):
        return torch.arange(tokens)[None].expand(samples, -1)
    if name == "residual":
        return torch.zeros_like(x)
    if name in ("max_seqlen", "seq_len", "kv_seq_len"):
        return tokens
    if name in ("start_pos", "layer_idx"):
        return 0
    if name.startswith(("output_", "use_", "return_", "is_", "need")):
        return False
    return None


def _rotations(module: nn.Module, x: Tensor, width: int) -> Iterator[Any]:
    """Yield rotary embeddings that do not rotate, in the shapes in use: cosines of 1 and sines of 0."""
    tokens = x.shape[1]
    config = getattr(module, "config", None)
    factor = next((one for holder in (module, config) for name in ("partial_rotary_factor", "rotary_pct")
                   if isinstance(one := getattr(holder, name, None), float)), 1.0)  # fmt: skip
    names = ("qk_rope_head_dim", "rotary_ndims", "rotary_dim", "rope_n_elem")
    stated = [
        one for holder in (module, config) for name in names if isinstance(one := getattr(holder, name, None), int)
    ]
    for columns in dict.fromkeys([*stated, int(width * factor), width, width // 2]):
        if columns < 1:
            continue
        for shape in ((1, tokens, columns), (tokens, columns), (1, tokens, 1, columns)):
            yield (torch.ones(shape), torch.zeros(shape))
            if shape[0] == tokens:
                yield torch.cat([torch.zeros(shape), torch.ones(shape)], dim=-1)
        yield torch.ones(tokens, columns // 2, dtype=torch.complex64)
        yield torch.ones(1, tokens, columns // 2, dtype=torch.complex64)
        yield torch.zeros(tokens, columns)
        yield torch.zeros(1, tokens, columns)
    yield torch.zeros(1, 2 * tokens - 1, x.shape[2])  # relative positions, as in conformers
    yield torch.zeros(1, tokens, x.shape[2])


def _traced(module: nn.Module, call: _Call, trace: AttentionTrace, returned: Any) -> Probe:
    """Collect what a forward pass has shown."""
    batch, tokens = call.queries.shape[:2]
    heads = tuple(one for meeting in trace.meetings for one in heads_of(meeting, batch, tokens))
    outputs = returned_outputs(returned, batch, tokens)
    # A product that sums over tokens compares channels, as in XCiT.
    meetings = sum(query.shape[-2] == tokens or query.shape[-1] != tokens
                   for one in trace.meetings for query, _ in one.pairs)  # fmt: skip
    return Probe(module, call.queries, call.keys, heads, outputs, trace.softmaxes, meetings, trace.opaque, "")


def returned_outputs(returned: Any, batch: int, tokens: int) -> list[Float[Tensor, "batch tokens outputs"]]:
    """Return the tensors that a forward pass has returned for its tokens."""
    outputs = []
    for leaf in pytree.tree_leaves(returned):
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or leaf.numel() % (batch * tokens):
            continue
        if leaf.ndim == 4 and len(leaf) == batch and leaf.shape[1] * leaf.shape[2] == tokens:
            outputs.append(leaf.flatten(1, 2))
        elif leaf.ndim == 3 and tuple(leaf.shape[:2]) == (batch, tokens):
            outputs.append(leaf)
        elif leaf.ndim == 3 and tuple(leaf.shape[:2]) == (tokens, batch):
            outputs.append(leaf.transpose(0, 1))
        elif leaf.ndim in (2, 3) and leaf.shape[-2] == batch * tokens:
            outputs.append(leaf.reshape(batch, tokens, -1))
    return outputs
