"""Classification data for one softmax attention head, with one optimal token per sequence.

    n, L, d    samples, tokens of each, dimension; m = L - 1 tokens of a sample are not optimal
    X, z, y    tokens x_il (n, L, d), query vectors z_i (n, d), labels y_i = +-1 (n,)
    v          the fixed linear prediction head (d,)
    gamma_il   y_i v.x_il, the score of a token; opt(i) is the token of the highest one, which must be unique
    delta_il   gamma_i,opt - gamma_il > 0, the gaps (n, m)
    D_il       x_i,opt - x_il, the differences (n, m, d);  B_il = z_i * D_il, entry by entry, the features (n, m, d)
    u_il       D_il^T W z_i, the margins of the optimal tokens in attention (n, m); B_il . beta for W = diag(beta)

The head's output, y v^T X^T softmax(X W z), tends to its best value gamma_opt as all the margins grow.

Sheen, Chen, Wang and Zhou (2024), "Implicit regularization of gradient flow on one-layer softmax attention",
section 3.1 and Definitions 3.1 and 4.1.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.npz_files import is_npy, npz_names, read_npz
from saddlescope._shared.real_arrays import real_array
from saddlescope._shared.reprs import ReprMixin

_ROUNDING = 32 * np.finfo(float).eps  # error of a score, in units of sum_k |v_k x_k|
_LARGEST = 1e75  # entry whose fourth power does not overflow
_ARRAYS = ("X", "z", "y", "v")

HeadWeights = ArrayLike | tuple[ArrayLike, ArrayLike]
"""Weights of a head: beta (d,) for W = diag(beta); W (d, d); or (K, Q), both (d, d_e), for W = K Q^T."""


@validate_arguments
@dataclass(frozen=True, eq=False, repr=False)
class TokenData(ReprMixin):
    """Sequences with queries and labels, and the head that scores their tokens.

    Arrays of any real type are copied as float64; the copies cannot be written to.

    Attributes:
        X: tokens, (n, L, d) with L of at least 2.
        z: query vectors, (n, d).
        y: labels, 1 or -1, (n,).
        v: prediction head, (d,).

    Raises:
        InputError: arrays of other shapes, numbers that are not finite, X, z or v whose largest entry is above 1e75 or
            below 1e-75, other labels, or a sample in which two tokens share the highest score, to rounding.
    """

    X: np.ndarray
    z: np.ndarray
    y: np.ndarray
    v: np.ndarray

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            array = real_array(name, getattr(self, name))
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if self.X.ndim != 3 or self.X.shape[1] < 2 or 0 in self.X.shape:
            raise InputError(
                f"X must have shape (samples, tokens, dimension) with two tokens or more; got {self.X.shape!r}."
            )
        n, _, d = self.X.shape
        for name, shape in (("z", (n, d)), ("y", (n,)), ("v", (d,))):
            if getattr(self, name).shape != shape:
                raise InputError(
                    f"{name} must have shape {shape!r} to go with X of shape {self.X.shape!r};"
                    f" got {getattr(self, name).shape!r}."
                )
        for name in ("X", "z", "v"):
            largest = float(np.abs(getattr(self, name)).max())
            if largest > 0 and not 1 / _LARGEST <= largest <= _LARGEST:
                raise InputError(
                    f"{name} must be of a size whose products float64 can hold, its largest entry between"
                    f" {1 / _LARGEST:g} and {_LARGEST:g}; got {largest:.3g}. Divide {name} by it: that changes only the"
                    " unit of scores and weights."
                )
        wrong = np.flatnonzero(np.abs(self.y) != 1)
        if len(wrong):
            raise InputError(
                f"y must be 1 or -1 for every sample; got {float(self.y[wrong[0]])!r} for sample {wrong[0]}."
            )
        self._check_unique()

    def _check_unique(self) -> None:
        top_two = np.argsort(self.scores, axis=1)[:, -2:]
        rows = np.arange(self.samples)
        gap = self.scores[rows, top_two[:, 1]] - self.scores[rows, top_two[:, 0]]
        tied = np.flatnonzero(gap <= np.take_along_axis(self._score_errors, top_two, axis=1).max(axis=1))
        if len(tied):
            i = int(tied[0])
            first, second = sorted(top_two[i].tolist())
            raise InputError(
                f"X and v must give every sample one optimal token, of the highest score y v.x; got the tokens {first}"
                f" and {second} of sample {i} with the same score {float(self.scores[i].max()):.6g}."
            )

    def __repr__(self) -> str:
        return f"TokenData({self.samples} samples of {self.tokens} tokens in dimension {self.dim})"

    @property
    def samples(self) -> int:
        """Number of sequences, n."""
        return self.X.shape[0]

    @property
    def tokens(self) -> int:
        """Number of tokens in a sequence, L."""
        return self.X.shape[1]

    @property
    def dim(self) -> int:
        """Dimension of tokens and queries, d."""
        return self.X.shape[2]

    @cached_property
    def scores(self) -> Float[np.ndarray, "n L"]:
        """Scores gamma_il = y_i v.x_il (Definition 3.1)."""
        return self.y[:, None] * (self.X @ self.v)

    @cached_property
    def _score_errors(self) -> Float[np.ndarray, "n L"]:
        """Bound on the rounding error of each score."""
        return _ROUNDING * (np.abs(self.X) @ np.abs(self.v))

    @cached_property
    def optimal(self) -> Int[np.ndarray, "n"]:
        """Index opt(i) of the optimal token of each sample."""
        return np.argmax(self.scores, axis=1)

    @cached_property
    def others(self) -> Int[np.ndarray, "n m"]:
        """Indices of the tokens that are not optimal, ascending: the columns of gaps and margins."""
        every = np.broadcast_to(np.arange(self.tokens), (self.samples, self.tokens))
        return every[every != self.optimal[:, None]].reshape(self.samples, self.tokens - 1)

    @cached_property
    def optimal_scores(self) -> Float[np.ndarray, "n"]:
        """Scores gamma_i,opt of the optimal tokens."""
        return self.scores.max(axis=1)

    @cached_property
    def gaps(self) -> Float[np.ndarray, "n m"]:
        """Gaps delta_il = gamma_i,opt - gamma_il > 0; gaps of one sample that differ only by rounding are set equal.

        Unequal gaps decide the sign of the rates where the softmax has left the optimal token: rounding must not.
        """
        gaps = self.optimal_scores[:, None] - np.take_along_axis(self.scores, self.others, axis=1)
        spread = gaps.max(axis=1) - gaps.min(axis=1)
        alike = spread <= 2 * self._score_errors.max(axis=1)
        return np.where(alike[:, None], gaps.mean(axis=1, keepdims=True), gaps)

    @cached_property
    def differences(self) -> Float[np.ndarray, "n m d"]:
        """Differences D_il = x_i,opt - x_il."""
        optimal = self.X[np.arange(self.samples), self.optimal]
        return optimal[:, None, :] - np.take_along_axis(self.X, self.others[:, :, None], axis=1)

    @cached_property
    def features(self) -> Float[np.ndarray, "n m d"]:
        """Features B_il = z_i * D_il, in which a head with diagonal weights is linear (section 4.1)."""
        return self.z[:, None, :] * self.differences

    def margins(self, weights: HeadWeights) -> Float[np.ndarray, "n m"]:
        """Return the margins u_il = D_il^T W z_i; mu(W) of Definition 4.1 is the smallest.

        Args:
            weights: beta (d,) for W = diag(beta), W (d, d), or a pair (K, Q) of (d, d_e) for W = K Q^T.

        Raises:
            InputError: weights of other shapes, or numbers that are not finite.
        """
        if isinstance(weights, tuple):
            if len(weights) != 2:
                raise InputError(f"weights must be beta, W or a pair (K, Q); got {len(weights)} arrays.")
            K, Q = (self._checked_weights(name, each, 2) for name, each in zip(("K", "Q"), weights, strict=True))
            if K.shape != Q.shape:
                raise InputError(f"K and Q must have the same shape; got {K.shape!r} and {Q.shape!r}.")
            return np.einsum("ime,ie->im", self.differences @ K, self.z @ Q)
        array = real_array("weights", weights)
        if array.ndim == 1:
            return self.features @ self._checked_weights("weights", array, 1)
        W = self._checked_weights("weights", array, 2)
        if W.shape != (self.dim, self.dim):
            raise InputError(f"weights must have shape {(self.dim, self.dim)!r} for W; got {W.shape!r}.")
        return np.einsum("imd,id->im", self.differences, self.z @ W.T)

    def _checked_weights(self, name: str, given: ArrayLike, ndim: int) -> Float[np.ndarray, "..."]:
        array = real_array(name, given)
        if array.ndim != ndim or array.shape[0] != self.dim:
            wanted = f"({self.dim},)" if ndim == 1 else f"({self.dim}, columns)"
            raise InputError(f"{name} must have shape {wanted}; got {array.shape!r}.")
        return array


def load_tokens(path: str | Path) -> TokenData:
    """Load token data from an .npz file with the arrays X, z, y and v.

    `numpy.savez(path, X=X, z=z, y=y, v=v)` writes such a file.

    Raises:
        InputError: the file does not exist or is no .npz, an array is missing or not numeric, or `TokenData` rejects
            the arrays.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"path must be an existing .npz file; got {str(file)!r}.")
    try:
        if is_npy(file):
            raise InputError(f"path must be an .npz file with the arrays X, z, y and v; got one array, {str(file)!r}.")
        found = npz_names(file)
        missing = [name for name in _ARRAYS if name not in found]
        if missing:
            raise InputError(
                f"path must be an .npz file with the arrays X, z, y and v; got {str(file)!r} with"
                f" {', '.join(found) or 'none'}, without {', '.join(missing)}."
            )
        arrays = read_npz(file, _ARRAYS)
    except InputError:
        raise
    except (ValueError, OSError) as error:
        raise InputError(
            f"path must be an .npz file of numbers, without pickled objects; got {str(file)!r} ({error})."
        ) from error
    return TokenData(*(arrays[name] for name in _ARRAYS))
