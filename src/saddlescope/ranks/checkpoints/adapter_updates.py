"""Updates of single modules in adapter files, each by its own formula.

    LoRA, LoCon     s B A; with a core C (Tucker), s sum_ij C[i, j] B[:, i] A[j, :] for each entry of the kernel
    LoHa            s (B1 A1) * (B2 A2), entry by entry; each product may have a core
    LoKr            s W1 (x) W2, Kronecker's product; each may be a product of factors, W2 one with a core
    full            the difference itself, of a weight, a bias or a norm
    DoRA            a LoRA, LoHa or LoKr, then rows or columns of the sum scaled to stored lengths

Names of parts are those of PEFT, Diffusers, kohya's scripts, LyCORIS, torchtune and mlx.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope.ranks.module_names import first_few

_ROLES = {
    r"lora_A(\.default)?\.weight|lora_down\.weight|(lora|lora_linear_layer)\.down\.weight|lora_a\.weight": "down",
    r"lora_B(\.default)?\.weight|lora_up\.weight|(lora|lora_linear_layer)\.up\.weight|lora_b\.weight": "up",
    r"lora_embedding_A(\.default)?": "embedding_down",
    r"lora_embedding_B(\.default)?": "embedding_up",
    r"lora_a": "down_turned",  # of mlx, which multiplies from the right
    r"lora_b": "up_turned",
    r"lora_mid\.weight": "core",
    r"lora_magnitude_vector(\.default)?(\.weight)?|magnitude|m": "magnitude",
    r"dora_scale": "lengths",
    r"hada_(w1_a|w1_b|w2_a|w2_b|t1|t2)(\.default)?": "hada",
    r"lokr_(w1|w1_a|w1_b|w2|w2_a|w2_b|t2)(\.default)?": "lokr",
    r"alpha": "alpha",
    r"diff|w_norm": "difference",
    r"diff_b|b_norm": "bias_difference",
    r"lora_B(\.default)?\.bias|lora_up\.bias": "bias_up",
    r"lora_t1|lokr_t1|oft_(blocks|diag|r)(\..+)?|on_input|lora_[AB]\..+|set_weight|reshape_weight|"
    r"trainable_tokens_(delta|original).*": "unread",
}
STORED_NAMES = {  # those of `_ROLES` that are written, by format
    "peft": {
        "down": "lora_A.weight",
        "up": "lora_B.weight",
        "embedding_down": "lora_embedding_A",
        "embedding_up": "lora_embedding_B",
    },
    "diffusers": {"down": "lora_A.weight", "up": "lora_B.weight"},
    "kohya": {"down": "lora_down.weight", "up": "lora_up.weight", "alpha": "alpha"},
}
UNKNOWN = re.compile(r"(?:^|[._])lora(?:[._\d]|$)|\badapter\.linear_(?:in|out)\.", re.I)  # names as of other programs
_PART = re.compile(r"(?P<module>.+?)\.(?:" + "|".join(f"({pattern})" for pattern in _ROLES) + r")")
_ATTENTION_PROCESSOR = re.compile(r"(?P<module>.+)\.processor\.(?P<layer>to_\w+)_lora\.(?P<side>down|up)\.weight")
_GLORA = re.compile(r"(?P<module>(lora|lycoris)_\w+)\.(a1|a2|b1|b2|bm)\.weight")  # plain layers are called so, too
_EMBEDDING = re.compile(r"(embed(_tokens|_in)?|embeddings?|wte|wpe)$")
_PAIRS = (("down", "up"), ("embedding_down", "embedding_up"), ("down_turned", "up_turned"))  # roles of A and B
# The axis of the rank in a role.
_RANKED = {"down": 0, "embedding_down": 0, "down_turned": -1, "hada_w1_b": 0, "lokr_w1_b": 0, "lokr_w2_b": 0}
_DECISIVE = ("down", "up", "embedding_", "hada_", "lokr_", "difference", "unread")


def part_of(name: str) -> tuple[str, str] | None:
    """Return the module and the role of a stored tensor in its update; None if the name is that of no part."""
    if (early := _ATTENTION_PROCESSOR.fullmatch(name)) is not None:  # Diffusers before 0.22
        layer = "to_out.0" if early["layer"] == "to_out" else early["layer"]
        return f"{early['module']}.{layer}", early["side"]
    if (glora := _GLORA.fullmatch(name)) is not None:
        return glora["module"], "unread"
    found = _PART.fullmatch(name)
    if found is None:
        return None
    pattern = next(one for one in _ROLES if re.fullmatch(one, name[len(found["module"]) + 1 :]))
    role = _ROLES[pattern]
    if role in ("hada", "lokr"):
        role = name[len(found["module"]) + 1 :].removesuffix(".default")
    return found["module"], role


def not_understood(path: Path, names: Iterable[str]) -> InputError:
    """Return the error on tensors with names of `UNKNOWN`."""
    return InputError(
        f"{path} must have adapters that are merged, or under the names of PEFT, Diffusers, kohya, LyCORIS, torchtune "
        f"or mlx; got {first_few(names)}. Merge them with the program that trained them."
    )


def is_decisive(role: str) -> bool:
    """Return True for a role that no parameter of a full model has."""
    return role.startswith(_DECISIVE)


@dataclass(frozen=True)
class ModuleUpdate:
    """Stored update of one module.

    Attributes:
        module: name of the module in its model.
        parts: names of the stored tensors by their roles.
        scale: s.
        expert: its number, and that of all experts of one parameter, whose factors PEFT stacks; None for a layer. The
            name of the module is then that of the parameter, with the number in brackets.
    """

    module: str
    parts: Mapping[str, str]
    scale: float
    expert: tuple[int, int] | None = None

    @property
    def weight(self) -> str:
        """Name of the weight."""
        return self.module if self.expert else f"{self.module}.weight"

    def own_part(self, role: str, stored: Tensor) -> Tensor:
        """Return the part of a stored tensor that belongs to this update."""
        if self.expert is None:
            return stored
        number, count = self.expert
        return stored.chunk(count)[number] if role == "down" else stored[:, number::count]

    @property
    def factors(self) -> tuple[str, str] | None:
        """Roles of A and B, if the update is s B A; None for other formulas."""
        pairs = (pair for pair in _PAIRS if set(pair) <= self.parts.keys())
        return None if "core" in self.parts else next(pairs, None)

    @property
    def has_alpha(self) -> bool:
        """True if the formula has a scale: not that of a difference, nor of Kronecker's product of two matrices."""
        return not ("difference" in self.parts or {"lokr_w1", "lokr_w2"} <= self.parts.keys())

    @property
    def embedding(self) -> bool:
        """True if B A is the transpose of the update of an embedding."""
        mlx = "down_turned" in self.parts and _EMBEDDING.search(self.module)  # lora_a is then (entries, rank)
        return "embedding_down" in self.parts or bool(mlx)

    @property
    def magnitude(self) -> str | None:
        """Name of DoRA's lengths, or None."""
        return self.parts.get("magnitude", self.parts.get("lengths"))

    def delta(self, read: Callable[[str], Tensor]) -> Float[Tensor, "outputs ..."]:
        """Return the update in float64, in the shape of the weight.

        Args:
            read: function from a role to its tensor, in float64.

        Raises:
            InputError: shapes that do not fit.
        """
        try:
            found = self._delta(read)
        except (RuntimeError, IndexError) as error:
            shapes = ", ".join(f"{role} {tuple(read(role).shape)}" for role in self.parts if role != "alpha")
            raise InputError(f"{self.module} must have factors whose shapes fit; got {shapes}.") from error
        return found.mT if self.embedding else found

    def _delta(self, read: Callable[[str], Tensor]) -> Tensor:
        if "difference" in self.parts:
            return read("difference")
        if (roles := self.factors) is not None:
            down, up = (read(role) for role in roles)
            if roles[0].endswith("turned"):
                down, up = down.mT, up.mT
            return self.scale * (up.flatten(1) @ down.flatten(1)).reshape(up.shape[0], *down.shape[1:])
        if "core" in self.parts:
            return self.scale * _with_core(read("core"), read("up").flatten(1), read("down").flatten(1).T)
        if "hada_w1_a" in self.parts:
            return self.scale * self._product(read, "hada_w1", "hada_t1") * self._product(read, "hada_w2", "hada_t2")
        first, second = self._product(read, "lokr_w1", ""), self._product(read, "lokr_w2", "lokr_t2")
        return self.scale * torch.kron(first[(...,) + (None,) * (second.ndim - first.ndim)], second.contiguous())

    def _product(self, read: Callable[[str], Tensor], name: str, core: str) -> Tensor:
        if name in self.parts:
            return read(name)
        a, b = read(f"{name}_a"), read(f"{name}_b")
        if core in self.parts:
            return _with_core(read(core), a.T, b.T)
        return (a @ b.flatten(1)).reshape(a.shape[0], *b.shape[1:])


def _with_core(core: Tensor, left: Float[Tensor, "outputs rank"], right: Float[Tensor, "inputs rank"]) -> Tensor:
    return torch.einsum("ij...,pi,qj->pq...", core, left, right)


def rank_of(parts: Mapping[str, tuple[int, ...]]) -> int | None:
    """Return the rank by which alpha is divided, from the shapes of parts by role; None for updates without alpha.

    Raises:
        InputError: factors without their partners, or without entries.
    """
    needed: list[tuple[str, ...]] = [pair for pair in _PAIRS if not parts.keys().isdisjoint(pair)]
    if any(role.startswith("hada") for role in parts):
        needed.append(tuple(f"hada_{side}" for side in ("w1_a", "w1_b", "w2_a", "w2_b")))
    if any(role.startswith("lokr") for role in parts):
        needed += [(side,) if side in parts else (f"{side}_a", f"{side}_b") for side in ("lokr_w1", "lokr_w2")]
    if any(role not in parts for roles in needed for role in roles):
        raise InputError("all factors")
    role = next((role for role in _RANKED if role in parts), None)
    if role is None:
        return None
    shape = parts[role]
    if len(shape) < 2 or not math.prod(shape):
        raise InputError("factors of rank 1 or more")
    return shape[_RANKED[role]]


def with_lengths(
    weight: Float[Tensor, "outputs ..."], magnitude: Tensor, *, by_shape: bool = False
) -> Float[Tensor, "outputs ..."]:
    """Return a weight with its rows scaled to given lengths; its columns, where the shape of these says so.

    Args:
        weight: base plus update.
        magnitude: lengths; PEFT stores one per row.
        by_shape: LyCORIS stores one per row, (outputs, 1, ...), or one per column, (1, inputs, ...).
    """
    lengths = magnitude.double()
    columns = by_shape and lengths.ndim > 1 and lengths.shape[0] == 1 and lengths.numel() == weight.shape[1]
    if lengths.numel() != weight.shape[1 if columns else 0]:
        raise InputError(f"lengths of DoRA must be one per row; got {lengths.numel()} for {tuple(weight.shape)}.")
    rows = weight.transpose(0, 1) if columns else weight
    found = rows * (lengths.flatten() / torch.linalg.norm(rows.flatten(1), dim=1)).reshape(-1, *[1] * (rows.ndim - 1))
    return found.transpose(0, 1) if columns else found
