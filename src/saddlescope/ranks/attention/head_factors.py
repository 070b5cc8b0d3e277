"""Factors of the heads of one attention module, with keys and values that several query heads share kept once."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import in_line


class HeadFactors(NamedTuple):
    """Factors of all heads of one attention module: X W_K are the keys, and so on. Views where possible.

    With fewer key heads than heads (grouped queries), query head h uses key head h // (heads / key_heads), or
    h mod key_heads if `strided`.
    """

    key: Float[Tensor, "key_heads key_inputs width"]
    query: Float[Tensor, "heads query_inputs width"]
    value: Float[Tensor, "key_heads value_inputs value_width"]
    output: Float[Tensor, "heads outputs value_width"]
    strided: bool = False

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return len(self.query)

    @property
    def key_heads(self) -> int:
        """Number of key heads."""
        return len(self.key)

    def of_queries(self, shared: Tensor, dim: int = 0) -> Tensor:
        """Repeat what belongs to key heads along an axis, once for each query head."""
        times = self.heads // shared.shape[dim]
        if times == 1:
            return shared
        return torch.cat([shared] * times, dim) if self.strided else shared.repeat_interleave(times, dim)

    def product(self, index: int) -> tuple[Tensor, Tensor]:
        """Return the factors of W_K W_Q^T (index 0) or W_V W_O^T (index 1) of all query heads."""
        return (self.of_queries(self.key), self.query) if index == 0 else (self.of_queries(self.value), self.output)

    def __repr__(self) -> str:
        return in_line("HeadFactors", self._asdict().items())


def cut_into_heads(
    key: Float[Tensor, "key_inputs key_columns"],
    query: Float[Tensor, "query_inputs query_columns"],
    value: Float[Tensor, "value_inputs value_columns"],
    output: Float[Tensor, "read_columns outputs"],
    *,
    heads: int,
    key_heads: int | None,
    strided: bool,
    names: str,
) -> HeadFactors:
    """Cut (in, out) matrices into heads, which are contiguous in their columns.

    Args:
        key: matrix of all key heads; also
        query: of all query heads,
        value: of all key heads,
        output: of all query heads.
        heads: number of query heads.
        key_heads: number of key heads; None if the width of a query head determines it.
        strided: query head h uses key head h mod key_heads.
        names: of the weights, for messages.

    Raises:
        InputError: the matrices do not split into heads.
    """
    width, unfit = divmod(query.shape[1], heads)
    value_width, unfit_output = divmod(output.shape[0], heads)
    if unfit or unfit_output or not width or not value_width or key.shape[1] % width or value.shape[1] % value_width:
        shapes = ", ".join(str(tuple(matrix.shape)) for matrix in (key, query, value, output))
        raise InputError(f"{names} must split into {heads} heads; got (in, out) shapes {shapes}.")
    found, of_values = key.shape[1] // width, value.shape[1] // value_width
    if heads % found or found != of_values or key_heads not in (None, found):
        raise InputError(
            f"{names} must have {key_heads or f'a divisor of its {heads} heads'} for keys, and as many for values; got "
            f"{found} and {of_values}."
        )
    return HeadFactors(
        key=key.unflatten(1, (found, width)).permute(1, 0, 2),
        query=query.unflatten(1, (heads, width)).permute(1, 0, 2),
        value=value.unflatten(1, (found, value_width)).permute(1, 0, 2),
        output=output.unflatten(0, (heads, value_width)).permute(0, 2, 1),
        strided=strided,
    )
