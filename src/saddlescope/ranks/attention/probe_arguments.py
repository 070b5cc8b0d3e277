"""Arguments for the forward pass of an attention module alone, found by their names.

Inputs are random; masks hide nothing, rotary embeddings do not rotate and relative positions add nothing. Arguments
that a module can go without are left out at first, and supplied if no call succeeds.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

_SAMPLES = 4
_TOKENS = (6, 4, 9, 16, 49, 64, 10)  # numbers of tokens to try; squares for modules that arrange them in images, and
# one more than a square for those with a token for the class
_LARGEST_TABLE = 400  # tokens of a table of relative positions

_QUERIES = frozenset({
    "hidden_states", "hidden_state", "x", "query", "input", "inputs", "states", "h", "q", "hidden", "input_tensor",
    "queries", "query_states", "hidden_q", "tokens", "embeddings", "image_embeddings", "src", "tgt", "sequence",
    "features", "inputs_q", "from_tensor", "tensor", "inp", "latents", "input_q", "query_hidden_states",
    "hidden_states_list",
})  # fmt: skip
_KEYS = frozenset({
    "key_value_states", "encoder_hidden_states", "context", "memory", "kv", "key", "value", "y", "keys", "values",
    "key_states", "value_states", "current_states", "inputs_kv", "to_tensor", "k", "v", "encoder_outputs",
    "cross_attention_states", "key_hidden_states", "value_hidden_states", "hidden_kv", "media", "inputs_k",
    "inputs_v", "kv_states",
})  # fmt: skip
_PACKED = frozenset({"cu_seqlens", "cu_seq_lens", "cu_window_seqlens", "cu_seq_lens_q", "cu_seqlens_q"})
_ROTARY_PAIR = frozenset({"position_embeddings", "rotary_pos_emb", "rope", "pos_emb", "rotary", "freqs", "cos_sin",
                          "position_embedding", "rotary_emb", "rotary_embedding", "freqs_ci", "freqs_cis"})  # fmt: skip


class ProbeCall(NamedTuple):
    """One call to try, with the inputs that queries, and keys and values, are computed from."""

    run: "functools.partial[Any]"
    queries: Float[Tensor, "batch tokens inputs"]
    keys: Float[Tensor, "batch tokens inputs"]


def probe_calls(module: nn.Module, inputs: int, key_inputs: int, width: int) -> Iterator[ProbeCall]:
    """Yield calls with as few arguments as possible, the likeliest first."""
    for given, x, y in _inputs(module, inputs, key_inputs, width):
        for kwargs in given.arguments(width):
            for form in _forms(x.shape[1], packed=bool(_PACKED & kwargs.keys())):
                yield given.call(kwargs, form, x, y)


def supplied_calls(module: nn.Module, inputs: int, key_inputs: int, width: int) -> Iterator[ProbeCall]:
    """Yield calls with a mask and all other arguments whose names are known, for modules that need them."""
    for given, x, y in _inputs(module, inputs, key_inputs, width):
        for kwargs in given.supplied(width):
            for form in (lambda x: x, lambda x: x.transpose(0, 1)):
                yield given.call(kwargs, form, x, y)


def _inputs(
    module: nn.Module, inputs: int, key_inputs: int, width: int
) -> Iterator[tuple["_Arguments", Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(1)
    for tokens in _token_counts(module, width):
        samples = _SAMPLES if tokens != _SAMPLES else _SAMPLES - 1  # so that no shape can be read in two ways
        for cross in (False, True) if inputs == key_inputs else (True,):
            x = torch.randn(samples, tokens, inputs, generator=draw)
            y = torch.randn(samples, tokens, key_inputs, generator=draw) if cross else x
            yield _Arguments(module, x, y), x, y


def _forms(tokens: int, *, packed: bool) -> list[Callable[[Tensor], Tensor]]:
    """Return ways to pass samples and tokens: as they are, tokens as an image or first, or `packed` in one sequence."""
    side = round(tokens**0.5)
    forms: list[Callable[[Tensor], Tensor]] = [lambda x: x]
    if packed:
        return [lambda x: x.flatten(0, 1), lambda x: x.flatten(0, 1)[None]]
    if side * side == tokens:
        forms.append(lambda x: x.unflatten(1, (side, side)).permute(0, 3, 1, 2))
        forms.append(lambda x: x.unflatten(1, (side, side)))
    return [*forms, lambda x: x.transpose(0, 1), lambda x: x[:, None]]


def _token_counts(module: nn.Module, width: int) -> list[int]:
    """Return numbers of tokens to try; first those that the module states, last one that the width of a head equals."""
    stated: list[int] = []
    names = ("window_size", "input_size", "feat_size", "area", "num_patches", "seq_length", "seq_len", "context_size")
    for value in (getattr(part, name, None) for part in module.modules() for name in names):
        if isinstance(value, int) and 0 < value <= 256:
            stated += [value * value, value]
        elif isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(one, int) for one in value):
            stated += [value[0] * value[1], value[0] * value[1] + 1]  # with a token for the class
    for table in module.buffers():  # numbers of relative positions, by query and key
        square = table.ndim >= 2 and table.shape[-1] == table.shape[-2] <= _LARGEST_TABLE
        if square and table.dtype in (torch.int32, torch.int64):
            stated.append(table.shape[-1])
    stated = [count for count in stated if 0 < count <= 1024]
    return list(dict.fromkeys([*stated, *sorted(_TOKENS, key=lambda count: count == width)]))


class _Arguments:
    """Keyword arguments for the forward pass of a module."""

    def __init__(self, module: nn.Module, x: Tensor, y: Tensor) -> None:
        parameters = inspect.signature(type(module).forward).parameters
        names = [name for name, one in parameters.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)][
            1:
        ]
        required = {name for name in names if parameters[name].default is inspect.Parameter.empty}
        self._module, self._x, self._y, self._required = module, x, y, required
        self._per_token = [x, y]
        self._values = self._of_inputs(names, cross=y is not x)
        if self._values is None:
            return
        others = [name for name in names if name not in self._values]
        packed = [name for name in others if name in _PACKED]
        if packed:
            self._x = x.flatten(0, 1)[None]
            self._values |= dict.fromkeys(packed, torch.tensor([0, self._x.shape[1]], dtype=torch.int32))
        self._rotary = [name for name in others if name in _ROTARY_PAIR]
        self._apart = {"cos", "sin"} <= set(others)
        self._others = [name for name in others if name not in packed and name not in self._rotary]
        self._plain = [name for name in self._others if name in required]
        changing = [name for name in ("position_ids", "output_attentions") if name in others]  # what is computed
        side = round(self._x.shape[1] ** 0.5)
        self._values |= {name: _default_of(name, self._x, side) for name in (*self._plain, *changing)}

    def _of_inputs(self, names: list[str], *, cross: bool) -> dict[str, Any] | None:
        """Return the arguments that take the inputs; None if there is none for a second input."""
        first = next((name for name in names if name in _QUERIES), names[0] if names else None)
        if first is None:
            return None
        keys = [name for name in names if name != first and name in _KEYS]
        if cross and not keys:
            keys = [name for name in names if name != first and name == "inputs"]  # Perceiver
        if cross and not keys:
            return None
        given = keys if cross else [name for name in keys if name in self._required]
        return {first: self._x, **dict.fromkeys(given, self._y)}

    def arguments(self, width: int) -> Iterator[dict[str, Any]]:
        """Yield arguments: without masks, then with those that are required."""
        if self._values is None:
            return
        masks = [name for name in self._plain if "mask" in name]
        masked = [self._values | dict.fromkeys(masks, mask) for mask in self._masks()] if masks else []
        if "alibi" in self._plain:
            masked = [self._values | {"alibi": torch.zeros(1, 1, self._y.shape[1])}, *masked]
        for given in (self._values, *masked):
            for turned in self._rotations(width):
                yield given | turned
            if not set(self._rotary) & self._required:
                yield given

    def supplied(self, width: int) -> Iterator[dict[str, Any]]:
        """Yield arguments with masks, and all others that `_supply` knows."""
        if self._values is None:
            return
        known = {name: _supply(name, self._x, self._y, width) for name in self._others}
        given = self._values | {name: value for name, value in known.items() if value is not None}
        masks = [name for name in self._others if "mask" in name]
        for turned in (*self._rotations(width), {}):
            for mask in (None, *self._masks()) if masks else (None,):
                yield given | turned | dict.fromkeys(masks, mask)

    def _rotations(self, width: int) -> Iterator[dict[str, Any]]:
        for turned in _rotations(self._module, self._x, width) if self._rotary or self._apart else ():
            if self._rotary:
                yield dict.fromkeys(self._rotary, turned)
            elif isinstance(turned, tuple):
                yield dict(zip(("cos", "sin"), turned, strict=True))
        if self._rotary:  # added to the inputs, and in their form
            self._per_token.append(torch.zeros_like(self._x))
            yield dict.fromkeys(self._rotary, self._per_token[-1])

    def _masks(self) -> Iterator[Tensor]:
        """Yield masks that hide nothing, in the shapes in use."""
        samples, tokens, sources = len(self._x), self._x.shape[1], self._y.shape[1]
        yield torch.zeros(samples, 1, tokens, sources)
        yield torch.ones(samples, tokens)
        yield torch.ones(samples, 1, tokens, sources, dtype=torch.bool)
        yield torch.zeros(samples, tokens, dtype=torch.bool)
        yield torch.ones(samples, tokens, sources)
        yield torch.ones(samples, tokens, sources, dtype=torch.bool)

    def call(self, kwargs: dict[str, Any], form: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> ProbeCall:
        """Return the call with the inputs, and what is added to them, in a form."""
        made = {
            name: form(value) if any(value is one for one in self._per_token) else value
            for name, value in kwargs.items()
        }
        return ProbeCall(functools.partial(self._module, **made), x, y)


def _supply(name: str, x: Tensor, y: Tensor, width: int) -> Any:
    """Return a value that adds nothing, for an argument that some modules cannot go without; None if unknown."""
    samples, tokens, inputs = x.shape
    if name in ("rel_pos", "rel_2d_pos", "position_bias"):
        return torch.zeros(samples, 1, tokens, y.shape[1])
    if name == "relative_position_embeddings":
        return torch.zeros(1, 2 * tokens - 1, inputs)
    if name == "rel_embeddings":  # one row for each distance
        return torch.zeros(1024, inputs)
    if name == "bbox_pos_emb":
        return torch.zeros(tokens, tokens, samples, width)
    if name == "attention_dists":
        return torch.zeros(tokens, tokens, dtype=torch.int64)
    if name == "r":  # XLNet, in which tokens come first
        return torch.zeros(2 * tokens, samples, inputs)
    return {} if name == "shared_kv_states" else None


def _default_of(name: str, x: Tensor, side: int) -> Any:
    """Return a value for a required argument that is neither inputs nor a rotary embedding."""
    samples, tokens = x.shape[:2]
    if name == "cache_position":
        return torch.arange(tokens)
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
    yield torch.zeros(tokens, tokens, dtype=torch.int64)  # numbers of distances
