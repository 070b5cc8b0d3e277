"""Start of an orbit at a saddle: where new coordinates are still small, and the support's linear response to them.

Near theta^k coordinate j outside the support grows as x_j = e^{2 |g_j| (t - d_j)}, with d_j its delay. The support
responds with delta_x = Z_j x_j, where d delta_x / dt = -2 X (H_SS delta_x + H_Sj x_j) gives

    (|g_j| + X H_SS) Z_j = -X H_Sj,    X = diag(x_S)

and the gradient everywhere changes by the columns H_j + H_S Z_j. All of this is exact to first order in x_j.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from saddlescope.theory.incremental.stationary_point import Face
from saddlescope.theory.incremental.transition import SaddleDeparture
from saddlescope.theory.saddle.path import NonFiniteLossError

SMALL = 1e-3  # the orbit starts where the new coordinates change the rates by this fraction of their own
_SAME = 1e-9  # relative difference of two coordinates' second derivatives that are equal but for rounding
_ATTEMPTS = 100


@dataclass(frozen=True, eq=False, kw_only=True)
class OrbitStart:
    """Point of the orbit shortly after the saddle, with the integral of g up to it.

    Attributes:
        face: the face of the orbit.
        x: the point.
        time: t; 0 where the first of the new coordinates would have |beta| = 1.
        new: True for the face's coordinates that enter.
        gradient: g there, shape (p,).
        before: for each coordinate of the face, log x at t = 0 if g stayed as at the saddle.
        shift: the integral of g - g(theta^k) from -infinity to `time`, shape (p,).
    """

    face: Face
    x: Float[np.ndarray, "m"]
    time: float
    new: Bool[np.ndarray, "m"]
    gradient: Float[np.ndarray, "p"]
    before: Float[np.ndarray, "m"]
    shift: Float[np.ndarray, "p"]


def tied_face(departure: SaddleDeparture) -> Face:
    """Return the face on which coordinates that seem to be tied count as one.

    They seem to be if at the saddle they have the same rate and the same second derivatives; the orbit shows if they
    are. Shares follow from the delays of those that enter, and from beta of those in the support.
    """
    face, g = departure.face(), departure.saddle.gradient
    H, new = face.hessian(face.sizes(departure.saddle.beta)), departure.new(face)
    r = np.where(new, face.rates(g), 0.0)
    delays = np.zeros(departure.saddle.beta.size)
    delays[list(departure.entering)] = departure.delays
    shares = np.where(new, -2 * r * delays[face.among], 0.0)  # logarithms, up to a constant
    shares[~new] = np.log(np.abs(departure.saddle.beta[face.among[~new]]))
    size = np.max(np.abs(H), axis=1)
    doubt = _SAME * size + 1e-14 * np.max(size)
    columns, seen = [], np.zeros(r.size, dtype=bool)
    for i in range(r.size):
        if seen[i]:
            continue
        same = ~seen & (new == new[i]) & (np.abs(r - r[i]) <= departure.noise) & (np.abs(np.diag(H) - H[i, i]) <= doubt)
        same[same] = np.all(np.abs(H[same] - H[i]) <= doubt[i], axis=1)
        seen |= same
        share = np.where(same, np.exp(shares - np.max(shares[same])), 0.0)
        columns.append(face.directions @ (share / np.sum(share)))
    return Face(face.oracle, face.among, np.stack(columns, axis=1))


def start_orbit(departure: SaddleDeparture, face: Face) -> OrbitStart:
    """Return a point where the new coordinates change the rates by about a fraction `SMALL`.

    Raises:
        InputError: the gradient jumps as the new coordinates enter.
    """
    saddle, new = departure.saddle, departure.new(face)
    at_saddle, r = face.sizes(saddle.beta), face.rates(saddle.gradient)[new]
    columns = face.oracle.hessian_columns(saddle.beta, face.among) @ face.directions
    H = face.directions.T @ columns[face.among]
    X = at_saddle[~new, None]
    moved = np.zeros((new.size, r.size))
    moved[new] = np.eye(r.size)
    for k, rate in enumerate(r):
        response = rate * np.eye(X.size) + X * H[np.ix_(~new, ~new)]
        moved[~new, k] = np.linalg.solve(response, -X[:, 0] * H[~new][:, np.flatnonzero(new)[k]])
    change = -columns @ moved  # of g, for each unit of a new coordinate
    delays = _delays(departure, face)[new]
    effect = np.maximum(np.max(np.abs(face.directions.T @ change[face.among]), axis=0), SMALL * r)
    time = float(np.min(delays + np.log(SMALL * r / effect) / (2 * r)))
    for _ in range(_ATTEMPTS):
        small = np.exp(2 * r * (time - delays))
        x = at_saddle + moved @ small
        # The new coordinates, with the change of their rates so far.
        x[new] = np.exp(2 * r * (time - delays) + (face.directions.T @ change[face.among])[new] @ (small / r))
        try:
            gradient = face.oracle.value_and_gradient(face.beta(x))[1]
        except NonFiniteLossError:
            gradient = None
        if gradient is not None:
            first = change @ small
            actual = gradient - saddle.gradient
            if np.max(np.abs(actual[face.among] @ face.directions)) <= 3 * SMALL * departure.entering_rate:
                before = np.where(new, 0.0, np.log(np.where(new, 1.0, at_saddle)))
                before[new] = -2 * r * delays
                # The second-order remainder of g is proportional to x^2, and so decays twice as fast into the past.
                shift = change @ (small / (2 * r)) + (actual - first) / (4 * float(np.max(r)))
                return OrbitStart(face=face, x=x, time=time, new=new, gradient=gradient, before=before, shift=shift)
        time -= float(np.log(100.0) / (2 * np.max(r)))
    raise departure.jump()


def _delays(departure: SaddleDeparture, face: Face) -> Float[np.ndarray, "m"]:
    """Return the time at which each new coordinate of the face would have x = 1, if g stayed; 0 for the support.

    Tied coordinates add up: sum_j e^{-2 |g| d_j} = e^{-2 |g| d}.
    """
    r = face.rates(departure.saddle.gradient)
    delays = np.zeros(r.size)
    for k in np.flatnonzero(departure.new(face)):
        members = np.isin(departure.entering, face.among[face.directions[:, k] != 0])
        exponents = -2 * r[k] * np.array(departure.delays)[members]
        delays[k] = -np.logaddexp.reduce(exponents) / (2 * r[k])
    return delays
