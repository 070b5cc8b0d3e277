"""The margin systems of `saddlescope.flow.margin` in JAX, as pytrees, for a compiled loop.

Each is the twin of the system in NumPy of the same name, which is its specification; the state is [x, E, coordinates].
Products that the energy needs are shared: with w = r / (L - L*) the slope of E is -sum w du/dx, a quadratic form of
the rates, and in the Newton equations E follows from the coordinates by two vectors, formed once per matrix.
"""

from abc import abstractmethod
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

Stored = Any  # arrays of NumPy as a system is made, of JAX in compiled code
Scalar = Float[Array, ""]
Vector = Float[Array, "N"]


@runtime_checkable
class LossInJax(Protocol):
    """A loss of margins as a pytree, with the functions of a `MarginLoss` on JAX arrays."""

    def log_rates(self, margins: Float[Array, "n m"]) -> tuple[Float[Array, "n m"], Float[Array, "n m"]]:
        """Return ln|r| and the signs of r."""
        ...

    def rate_jacobian(
        self, margins: Float[Array, "n m"], log_factor: Scalar
    ) -> tuple[Float[Array, "n m"], Float[Array, "n m m"]]:
        """Return R = e^log_factor r and dR_il / du_ik."""
        ...

    def log_excess(self, margins: Float[Array, "n m"]) -> Scalar:
        """Return ln(L - L*)."""
        ...


@runtime_checkable
class CompilableLoss(Protocol):
    """A `MarginLoss` that is also written in JAX."""

    def in_jax(self) -> LossInJax:
        """Return the same loss as a pytree."""
        ...


class _Factors(NamedTuple):
    """Newton matrix of a system: of the coordinates, and the vectors that give E."""

    inner: Any
    by_change: Vector
    by_right: Vector
    c: Scalar


class _Triangles(NamedTuple):
    """LU decomposition of a matrix with its rows permuted.

    The triangles are transposed: loops carry arrays by rows, and LAPACK reads them by columns, so nothing is copied.
    """

    transposed: Float[Array, "N N"]
    rows: Int[Array, "N"]


def _factorised(matrix: Float[Array, "N N"]) -> _Triangles:
    both, _, rows = lax.linalg.lu(matrix)
    return _Triangles(both.T, rows)


def _solved(factors: _Triangles, right: Float[Array, "N k"]) -> Float[Array, "N k"]:
    both = factors.transposed.T
    lower = lax.linalg.triangular_solve(both, right[factors.rows], left_side=True, lower=True, unit_diagonal=True)
    return lax.linalg.triangular_solve(both, lower, left_side=True)


class Seen(NamedTuple):
    """Inputs of the slope of E, besides the motion of the coordinates and of their image."""

    margins: Float[Array, "n m"]
    log_speed: Scalar
    stretch: Float[Array, "s"]


class AbstractCompiledMargins(eqx.Module):
    """System of any parametrisation.

    Attributes:
        loss: of the margins.
        log_unit: ln ts, of the time coordinate.
    """

    loss: LossInJax
    log_unit: Float[Stored, ""]

    def image(self, coordinates: Vector) -> Float[Array, "q"]:
        """Return a linear function of the coordinates, or of their motion, that takes a product; here nothing."""
        return jnp.zeros(0)

    @abstractmethod
    def margins_by(self, coordinates: Vector, image: Float[Array, "q"]) -> Float[Array, "n m"]:
        """Return the margins u, given the image of the coordinates."""

    def margins(self, coordinates: Vector) -> Float[Array, "n m"]:
        """Return the margins u."""
        return self.margins_by(coordinates, self.image(coordinates))

    @abstractmethod
    def moved(self, coordinates: Vector, rates: Float[Array, "n m"]) -> Vector:
        """Return the velocity of the coordinates under these rates of the margins."""

    @abstractmethod
    def work(self, stretch: Float[Array, "s"], motion: Vector, image: Float[Array, "q"]) -> Scalar:
        """Return sum_il r_il du_il/dx for the motion under the rates r, given the image of the motion."""

    def stretch(self, image: Float[Array, "q"]) -> Float[Array, "s"]:
        """Return what `work` needs of the coordinates; here nothing."""
        return jnp.zeros(0)

    @abstractmethod
    def margin_errors(
        self, coordinates: Vector, error: Vector, image: Float[Array, "q"], stretch: Float[Array, "s"]
    ) -> Float[Array, "n m"]:
        """Return the errors of the margins by an error of the coordinates, given its image and the stretch there."""

    @abstractmethod
    def factorise(
        self, coordinates: Vector, rates: Float[Array, "n m"], rates_by_margins: Float[Array, "n m m"], c: Scalar
    ) -> Any:
        """Return what `solve_coordinates` needs of 1 - c J, J the coordinates' Jacobian."""

    @abstractmethod
    def solve_coordinates(self, factors: Any, right: Vector) -> Vector:
        """Return the solution x of (1 - c J) x = right."""

    @property
    def image_size(self) -> int:
        """Number of entries of an image; here none."""
        return 0

    def log_speed(self, x: Scalar) -> Scalar:
        """Return the logarithm of dt/dx."""
        return self.log_unit + jnp.expm1(x) + x

    def margins_jvp(self, coordinates: Vector, motion: Vector) -> Float[Array, "n m"]:
        """Return the velocity of the margins for a velocity of the coordinates."""
        return jax.jvp(self.margins, (coordinates,), (motion,))[1]

    def slope(self, y: Float[Array, "N2"]) -> Float[Array, "N2"]:
        """Return the right-hand side; NaN where a trial state overflows."""
        return self.completed(*self.driven(self.widened(y)))[: len(y)]

    def widened(self, y: Float[Array, "N2"]) -> Float[Array, "N2q"]:
        """Return a state, or a slope, with the image of its coordinates behind it."""
        return jnp.concatenate([y, self.image(y[2:])])

    def _parts(self, wide: Float[Array, "N2q"]) -> tuple[Vector, Float[Array, "q"]]:
        count = len(wide) - self.image_size
        return wide[2:count], wide[count:]

    def driven(self, wide: Float[Array, "N2q"]) -> tuple[Float[Array, "N2q"], Seen]:
        """Return the wide right-hand side with 0 for that of E, on which nothing depends, and what E's needs."""
        coordinates, image = self._parts(wide)
        log_speed, margins = self.log_speed(wide[0]), self.margins_by(coordinates, image)
        log_rates, signs = self.loss.log_rates(margins)
        motion = self.moved(coordinates, signs * jnp.exp(log_rates + log_speed))
        slope = jnp.concatenate([jnp.array([1.0, 0.0]), motion, self.image(motion)])
        sound = jnp.where(jnp.all(jnp.isfinite(margins)), slope, jnp.nan)
        return sound, Seen(margins, log_speed, self.stretch(image))

    def completed(self, slope: Float[Array, "N2q"], seen: Seen) -> Float[Array, "N2q"]:
        """Return the wide right-hand side with that of E."""
        log_scale = -self.loss.log_excess(seen.margins) - seen.log_speed
        return slope.at[1].set(-jnp.exp(log_scale) * self.work(seen.stretch, *self._parts(slope)))

    def watched(self, wide: Float[Array, "N2q"], error: Float[Array, "N2q"], seen: Seen) -> Float[Array, "nm"]:
        """Return the errors of the margins, which may be large where those of the coordinates are small."""
        errors = self.margin_errors(self._parts(wide)[0], *self._parts(error), seen.stretch)
        return (errors / (1 + jnp.abs(seen.margins))).ravel()

    def newton(self, y: Float[Array, "N2"], c: Scalar) -> _Factors:
        """Return the Newton matrix.

        With w = r / (L - L*) and du/dx = U dc/dx, it is d(dE/dx) = -dw . du/dx - w . (dU dc/dx + U d(dc/dx)).
        """
        coordinates, log_speed = y[2:], self.log_speed(y[0])
        margins = self.margins(coordinates)
        rates, rates_by_margins = self.loss.rate_jacobian(margins, log_speed)
        motion = self.moved(coordinates, rates)
        inner = self.factorise(coordinates, rates, rates_by_margins, c)

        scale = jnp.exp(-self.loss.log_excess(margins) - log_speed)
        pulls, pulls_by_margins = scale * rates, scale * rates_by_margins
        speeds = self.margins_jvp(coordinates, motion)
        weights = jnp.einsum("ilk,il->ik", pulls_by_margins, speeds) + pulls * jnp.sum(pulls * speeds)

        def pulled(at: Vector) -> Scalar:
            return jnp.sum(pulls * self.margins(at)) / c

        def speed(at: Vector) -> Scalar:
            return jnp.sum(weights * self.margins(at)) + jnp.sum(pulls * self.margins_jvp(at, motion))

        by_right = jax.grad(pulled)(coordinates)
        return _Factors(inner, jax.grad(speed)(coordinates) + by_right, by_right, c)

    def solve(self, factors: _Factors, right: Float[Array, "N2"]) -> Float[Array, "N2"]:
        """Return the solution x of (1 - c J) x = right."""
        change = self.solve_coordinates(factors.inner, right[2:])
        energy = jnp.sum(factors.by_change * change) - jnp.sum(factors.by_right * right[2:])
        return jnp.concatenate([right[:1], (right[1] - factors.c * energy)[None], change])


class CompiledDiagonal(AbstractCompiledMargins):
    """System of diagonal weights in phi.

    Attributes:
        features: B, (N, d).
        log_plus, log_minus: ln w_+^2 and ln w_-^2 at time 0, (d,).
    """

    features: Float[Stored, "N d"]
    log_plus: Float[Stored, "d"]
    log_minus: Float[Stored, "d"]
    shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def image_size(self) -> int:
        """Number of entries of psi."""
        return self.features.shape[1]

    def image(self, coordinates: Vector) -> Float[Array, "d"]:
        """Return psi = B^T phi."""
        return coordinates @ self.features

    def _halves(self, psi: Float[Array, "d"]) -> tuple[Float[Array, "d"], Float[Array, "d"]]:
        return jnp.exp(self.log_plus + psi) / 2, jnp.exp(self.log_minus - psi) / 2

    def margins_by(self, coordinates: Vector, image: Float[Array, "d"]) -> Float[Array, "n m"]:
        """Return B beta."""
        plus, minus = self._halves(image)
        return (self.features @ (plus - minus)).reshape(self.shape)

    def moved(self, coordinates: Vector, rates: Float[Array, "n m"]) -> Vector:
        """Return dphi/dx."""
        return 2 * rates.ravel()

    def stretch(self, image: Float[Array, "d"]) -> Float[Array, "d"]:
        """Return dbeta/dpsi."""
        plus, minus = self._halves(image)
        return plus + minus

    def work(self, stretch: Float[Array, "d"], motion: Vector, image: Float[Array, "d"]) -> Scalar:
        """Return sum_j (dbeta/dpsi)_j (B^T r)_j (B^T dphi/dx)_j."""
        return jnp.sum(stretch * image**2) / 2

    def margin_errors(
        self, coordinates: Vector, error: Vector, image: Float[Array, "d"], stretch: Float[Array, "d"]
    ) -> Float[Array, "n m"]:
        """Return B (dbeta/dpsi) B^T error."""
        return (self.features @ (stretch * image)).reshape(self.shape)

    def factorise(
        self, coordinates: Vector, rates: Float[Array, "n m"], rates_by_margins: Float[Array, "n m m"], c: Scalar
    ) -> _Triangles:
        """Return the LU decomposition of the full matrix, with du/dphi = B (dbeta/dpsi) B^T."""
        by_integrals = (self.features * self.stretch(self.image(coordinates))[None]) @ self.features.T
        return _factorised(_integral_matrix(rates_by_margins, by_integrals, 2 * c))

    def solve_coordinates(self, factors: _Triangles, right: Vector) -> Vector:
        """Solve by the LU decomposition."""
        return _solved(factors, right[:, None])[:, 0]


class CompiledMatrix(AbstractCompiledMargins):
    """System of W alone in phi.

    Attributes:
        gram: G, (N, N).
        first: u at time 0, (n, m).
    """

    gram: Float[Stored, "N N"]
    first: Float[Stored, "n m"]

    @property
    def image_size(self) -> int:
        """Number of the margins."""
        return self.gram.shape[0]

    def image(self, coordinates: Vector) -> Float[Array, "N"]:
        """Return G phi."""
        return self.gram @ coordinates

    def margins_by(self, coordinates: Vector, image: Float[Array, "N"]) -> Float[Array, "n m"]:
        """Return u(0) + G phi."""
        return self.first + image.reshape(self.first.shape)

    def moved(self, coordinates: Vector, rates: Float[Array, "n m"]) -> Vector:
        """Return dphi/dx."""
        return rates.ravel()

    def work(self, stretch: Float[Array, "s"], motion: Vector, image: Float[Array, "N"]) -> Scalar:
        """Return r^T G dphi/dx."""
        return jnp.sum(motion * image)

    def margin_errors(
        self, coordinates: Vector, error: Vector, image: Float[Array, "N"], stretch: Float[Array, "s"]
    ) -> Float[Array, "n m"]:
        """Return G error."""
        return image.reshape(self.first.shape)

    def factorise(
        self, coordinates: Vector, rates: Float[Array, "n m"], rates_by_margins: Float[Array, "n m m"], c: Scalar
    ) -> _Triangles:
        """Return the LU decomposition of the full matrix, with du/dphi = G."""
        return _factorised(_integral_matrix(rates_by_margins, self.gram, c))

    def solve_coordinates(self, factors: _Triangles, right: Vector) -> Vector:
        """Solve by the LU decomposition."""
        return _solved(factors, right[:, None])[:, 0]


def _integral_matrix(
    rates_by_margins: Float[Array, "n m m"], by_integrals: Float[Array, "N N"], c: Scalar
) -> Float[Array, "N N"]:
    """Return 1 - c R (du/dphi), R of the blocks of derivatives of the rates."""
    n, m, _ = rates_by_margins.shape
    size = n * m
    inner = jnp.einsum("ilk,ikj->ilj", rates_by_margins, by_integrals.reshape(n, m, size)).reshape(size, size)
    return jnp.eye(size) - c * inner


class _KeyQueryFactors(NamedTuple):
    """Parts of the solution by Sherman, Morrison and Woodbury."""

    coordinates: Vector
    rates_by_margins: Float[Array, "n m m"]
    inverse: Float[Array, "M M"]
    inner: _Triangles
    c: Scalar


class CompiledKeyQuery(AbstractCompiledMargins):
    """System of the reduced keys and queries, stacked and flattened.

    Attributes:
        differences: D, (n, m, m_x).
        queries: z, (n, m_z).
        width: columns of K and Q.
    """

    differences: Float[Stored, "n m m_x"]
    queries: Float[Stored, "n m_z"]
    width: int = eqx.field(static=True)

    def _pair(self, coordinates: Vector) -> tuple[Float[Array, "m_x r"], Float[Array, "m_z r"]]:
        both, split = coordinates.reshape(-1, self.width), self.differences.shape[2]
        return both[:split], both[split:]

    def margins_by(self, coordinates: Vector, image: Float[Array, "q"]) -> Float[Array, "n m"]:
        """Return D^T K Q^T z."""
        K, Q = self._pair(coordinates)
        return jnp.einsum("imx,ix->im", self.differences, (self.queries @ Q) @ K.T)

    def moved(self, coordinates: Vector, rates: Float[Array, "n m"]) -> Vector:
        """Return A Q and A^T K."""
        K, Q = self._pair(coordinates)
        pulled = jnp.einsum("im,imx->ix", rates, self.differences)
        return jnp.concatenate([pulled.T @ (self.queries @ Q), self.queries.T @ (pulled @ K)]).ravel()

    def work(self, stretch: Float[Array, "s"], motion: Vector, image: Float[Array, "q"]) -> Scalar:
        """Return |(K', Q')|^2."""
        return jnp.sum(motion**2)

    def margin_errors(
        self, coordinates: Vector, error: Vector, image: Float[Array, "q"], stretch: Float[Array, "s"]
    ) -> Float[Array, "n m"]:
        """Return the derivative of the margins along the error."""
        return self.margins_jvp(coordinates, error)

    def factorise(
        self, coordinates: Vector, rates: Float[Array, "n m"], rates_by_margins: Float[Array, "n m m"], c: Scalar
    ) -> _KeyQueryFactors:
        """Return the parts of S^-1 b + c S^-1 P w with (1 - c R P^T S^-1 P) w = R P^T S^-1 b."""
        A = jnp.einsum("im,imx->ix", rates, self.differences).T @ self.queries
        inverse = self._inverse(c * A)
        inner = _integral_matrix(rates_by_margins, self._projected(coordinates, inverse), c)
        return _KeyQueryFactors(coordinates, rates_by_margins, inverse, _factorised(inner), c)

    def solve_coordinates(self, factors: _KeyQueryFactors, right: Vector) -> Vector:
        """Solve by Sherman, Morrison and Woodbury."""
        first = factors.inverse @ right.reshape(-1, self.width)
        moved = self.margins_jvp(factors.coordinates, first.ravel())
        pulled = jnp.einsum("ilk,ik->il", factors.rates_by_margins, moved)
        weights = _solved(factors.inner, pulled.reshape(-1, 1)).reshape(moved.shape)
        pushed = self.moved(factors.coordinates, weights).reshape(-1, self.width)
        return (first + factors.c * (factors.inverse @ pushed)).ravel()

    @staticmethod
    def _inverse(A: Float[Array, "m_x m_z"]) -> Float[Array, "M M"]:
        """Return (1 - N)^-1 for N = [[0, A], [A^T, 0]], by the Schur complement of the queries."""
        rows, columns = A.shape
        small = _solved(_factorised(jnp.eye(columns) - A.T @ A), jnp.eye(columns))
        corner = A @ small
        return jnp.block([[jnp.eye(rows) + corner @ A.T, corner], [corner.T, small]])

    def _projected(self, coordinates: Vector, inverse: Float[Array, "M M"]) -> Float[Array, "nm nm"]:
        """Return P^T S^-1 P, from products of the data and of the projected keys and queries."""
        K, Q = self._pair(coordinates)
        n, m, split = self.differences.shape
        D, z = self.differences.reshape(n * m, split), self.queries
        owner = jnp.repeat(jnp.arange(n), m)
        keys, queries = D @ K, (z @ Q)[owner]
        first, second, last = inverse[:split, :split], inverse[:split, split:], inverse[split:, split:]
        mixed = (D @ second @ z.T)[:, owner] * (queries @ keys.T)
        return (
            (D @ first @ D.T) * (queries @ queries.T)
            + mixed
            + mixed.T
            + (z @ last @ z.T)[owner][:, owner] * (keys @ keys.T)
        )
