"""Structured identity mapping (SIM) task: learn x -> x on a Gaussian mixture with one cluster per concept.

    d, s    dimension of the inputs; number of concepts, s <= d
    mu_p    distance of cluster p's mean mu_p e_p from the origin: the strength of the concept's signal, (s,)
    sigma_p standard deviation of all clusters along e_p, 0 beyond the s concepts, (s,)
    c       number of clusters: s, or s + 1 with the optional one at the origin, all equally likely
    R       an optional rotation (d, d): the samples are R x, so that concept p has the direction R e_p
    A       the second moment E[x x^T] = R diag(a) R^T with a_p = sigma_p^2 + mu_p^2 / c, and 0 beyond the s concepts

The models are tested out of the distribution, at the point x^ = R sum_p mu_p e_p that combines all means, or at the 2^s
points x^(v) = R sum_p v_p mu_p e_p, v in {0, 1}^s, that combine some.

Yang, Park, Lubana, Okawa, Hu and Tanaka (2024), "Dynamics of concept learning and compositional generalization",
section 2.1 and appendices B and C.1. Its text has the standard deviation sigma; the authors' programs pass the same
numbers as variances: pass the square roots of those.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.reprs import ReprMixin


@dataclass(frozen=True, eq=False, repr=False)
class ConceptCube(ReprMixin):
    """Hypercube of test points x^(v) of appendix B, with the partial order of their indices.

    Attributes:
        indices: (2^s, s) of 0 and 1, one row v per point, in counting order with v_1 the fastest: the first is the
            origin, the last the test point x^.
        points: (2^s, d), the points x^(v).
    """

    indices: Int[np.ndarray, "points s"]
    points: Float[np.ndarray, "points d"]

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs (u, v) of points with u below v and only one concept between them: the edges of Figure 7."""
        points, concepts = self.indices.shape
        return tuple((k, k + (1 << p)) for k, p in itertools.product(range(points), range(concepts)) if not k >> p & 1)


@validate_arguments
@dataclass(frozen=True, eq=False, repr=False)
class StructuredIdentityTask(ReprMixin):
    """Data law of the SIM task, with its exact moments, its samples and its test points.

    Attributes:
        mu: mu_1, ..., mu_s, at least 0.
        sigma: sigma_1, ..., sigma_s, standard deviations, at least 0.
        samples_per_cluster: n, the number of samples that `draw` takes from every cluster.
        dim: d, at least s.
        origin: True adds a cluster around the origin.
        rotation: R, orthogonal (d, d); None for the identity.

    Raises:
        InputError: no concepts, more concepts than dimensions, different numbers of mu and sigma, a negative or
            infinite value, no samples, or a rotation that is not an orthogonal d x d matrix.
    """

    mu: Sequence[float]
    sigma: Sequence[float]
    samples_per_cluster: int
    dim: int
    origin: bool = False
    rotation: ArrayLike | None = None

    def __post_init__(self) -> None:
        for name in ("mu", "sigma"):
            given = np.asarray(getattr(self, name), float)
            values = tuple(given.tolist()) if given.ndim == 1 else ()
            if not values or not all(0 <= value < float("inf") for value in values):
                raise InputError(f"{name} must be one or more finite numbers of at least 0; got {given.tolist()!r}.")
            object.__setattr__(self, name, values)
        if len(self.sigma) != len(self.mu):
            raise InputError(f"sigma must have a value for each of the {len(self.mu)} mu; got {len(self.sigma)}.")
        if self.dim < len(self.mu):
            raise InputError(f"dim must be at least the number of concepts, {len(self.mu)}; got {self.dim!r}.")
        if self.samples_per_cluster < 1:
            raise InputError(f"samples_per_cluster must be at least 1; got {self.samples_per_cluster!r}.")
        if self.rotation is not None:
            object.__setattr__(self, "rotation", _checked_rotation(self.rotation, self.dim))

    @property
    def concepts(self) -> int:
        """Number of concepts, s."""
        return len(self.mu)

    @property
    def clusters(self) -> int:
        """Number of clusters, c, including the one at the origin."""
        return self.concepts + self.origin

    @property
    def directions(self) -> Float[np.ndarray, "d d"]:
        """Matrix R: column p is the direction of concept p; beyond the s concepts, a direction without information."""
        return np.eye(self.dim) if self.rotation is None else np.array(self.rotation, float)

    @property
    def centers(self) -> Float[np.ndarray, "c d"]:
        """Means of the clusters, one per row; the one at the origin is the last."""
        centers = np.zeros((self.clusters, self.dim))
        centers[: self.concepts, : self.concepts] = np.diag(self.mu)
        return centers @ self.directions.T

    @property
    def strengths(self) -> Float[np.ndarray, "d"]:
        """Eigenvalues a of A in the order of `directions`: the rate at which each concept is learned."""
        strengths = np.zeros(self.dim)
        strengths[: self.concepts] = np.square(self.sigma) + np.square(self.mu) / self.clusters
        return strengths

    @property
    def second_moment(self) -> Float[np.ndarray, "d d"]:
        """Second moment A = E[x x^T], exact: the mean over infinitely many samples."""
        return (self.directions * self.strengths) @ self.directions.T

    @property
    def test_point(self) -> Float[np.ndarray, "d"]:
        """Test point x^, which combines all concepts."""
        return self.directions[:, : self.concepts] @ np.array(self.mu)

    @property
    def test_points(self) -> ConceptCube:
        """All 2^s points that combine some of the concepts."""
        indices = np.arange(2**self.concepts)[:, None] >> np.arange(self.concepts) & 1
        return ConceptCube(indices, (indices * np.array(self.mu)) @ self.directions[:, : self.concepts].T)

    def draw(self, seed: int) -> Float[np.ndarray, "N d"]:
        """Draw samples, one per row: n of the first cluster, then n of the next; N = c n.

        Raises:
            InputError: a negative seed.
        """
        if seed < 0:
            raise InputError(f"seed must be at least 0; got {seed!r}.")
        normal = np.random.default_rng(seed).standard_normal((self.clusters * self.samples_per_cluster, self.concepts))
        noise = (normal * np.array(self.sigma)) @ self.directions[:, : self.concepts].T
        return np.repeat(self.centers, self.samples_per_cluster, axis=0) + noise


@validate_arguments
def random_rotation(dim: int, *, seed: int) -> Float[np.ndarray, "d d"]:
    """Draw an orthogonal matrix of the uniform (Haar) law, for the rotated tasks of appendix F.1.

    Raises:
        InputError: a dimension below 1 or a negative seed.
    """
    for name, value, least in (("dim", dim, 1), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"{name} must be at least {least}; got {value!r}.")
    Q, upper = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))
    return Q * np.sign(np.diag(upper))  # QR alone fixes signs by its algorithm, and is not uniform


def _checked_rotation(rotation: ArrayLike, dim: int) -> Float[np.ndarray, "d d"]:
    R = np.array(rotation, float)
    if R.shape != (dim, dim):
        raise InputError(f"rotation must have shape {(dim, dim)!r}; got {R.shape!r}.")
    off = float(np.max(np.abs(R.T @ R - np.eye(dim)))) if np.all(np.isfinite(R)) else float("nan")
    if not off <= 1e-8:
        raise InputError(f"rotation must be orthogonal, with R^T R = I; got R^T R off the identity by {off!r}.")
    return R
