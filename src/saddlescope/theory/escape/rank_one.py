"""Largest escape speed of networks whose layers all have rank one: the same at any depth, and exact in the plane.

Let W_1 = p v^T with unit vectors p and v, and t = v.x. Then Zs_1 = p+ relu(t) + p- relu(-t) with the positive and
negative parts p+ and p- of p, which do not overlap. The next layer of rank one computes r.Zs_1 = a relu(t) + b relu(-t)
from it, with |a| + |b| <= 1, and every such pair (a, b) occurs. One layer further the same holds of the two functions
relu(y) and relu(-y) of y = a relu(t) + b relu(-t), whose coefficients are the positive parts of (a, b) and of (-a, -b):
again a pair with |a| + |b| <= 1. So at every depth L >= 2 the networks with |W_l| = 1 and rank one are exactly

    f(x) = q (a relu(v.x) + b relu(-v.x)),    |q| = |v| = 1,    |a| + |b| <= 1,

and not only the functions of one neuron, a = 0 or b = 0, as the proof of Example 1 says: W_1 = [v; -v] / sqrt 2 gives
|v.x| / 2. But the speed is linear in (a, b), so that one neuron attains the largest one,

    max over |v| = 1 of |G h(v)|,    h_j(v) = relu(v.x_j).

At depth 2 every network is a mixture of such neurons, so there this is the optimum over all networks. If there is one
output and no G_j has the other's sign, it is the optimum over all networks at every depth: say -G >= 0. By Proposition
3.2's argument a fastest network ends in one neuron, f = relu(sum_i w_i relu(z_i)) <= sum_i max(w_i, 0) relu(z_i), and
the right side is a network of one layer less on its own sphere, at least as fast.
"""

import numpy as np
from numpy.typing import ArrayLike

from saddlescope._shared.arguments import validate_arguments
from saddlescope.theory.escape.plane_inputs import Arcs, PlaneSaddle
from saddlescope.theory.escape.speed import CertifiedSpeed, on_sphere, speed_of, validate_depth, validate_saddle


@validate_arguments
def rank_one_escape_speed(inputs: ArrayLike, gradients: ArrayLike, *, depth: int = 3) -> CertifiedSpeed:
    """Return the largest escape speed with every layer of rank one, in closed form; at depth 2 that of all networks.

    It does not depend on the depth (see the module). On an arc of directions v between the lines v.x_j = 0 the vector
    G h(v) is M v with a matrix M (d_out, 2), so that its length is largest at M's first singular vector, if that points
    into the arc, or at an end.

    Args:
        inputs: (N, d_in), any d_in, but the inputs must span at most a plane.
        gradients: (N, d_out), any d_out, the loss gradients at the zero output.
        depth: L, at least 2, of the network returned, which has one neuron per layer.

    Raises:
        InputError: invalid inputs or gradients, see `validate_saddle`; inputs that span more than a plane, where no
            closed form is known; a depth below 2.
    """
    X, G = validate_saddle(inputs, gradients)
    depth = validate_depth(depth)
    plane = PlaneSaddle.of(X, G)
    arcs = Arcs.of(plane.inputs)
    maps = np.einsum("oj,kj,dj->kod", plane.gradients, arcs.active, plane.inputs)
    _, spectra, right = np.linalg.svd(maps, full_matrices=False)
    first = right[:, 0]
    inside = [sign * first[arcs.contain(sign * first)] for sign in (1.0, -1.0)]
    tops = [spectra[arcs.contain(sign * first), 0] for sign in (1.0, -1.0)]
    directions = np.concatenate([arcs.ends, *inside])
    outputs = arcs.activations(directions) @ plane.gradients.T
    lengths = np.linalg.norm(outputs, axis=1)
    best = int(np.argmax(lengths))
    answer = -outputs[best] / lengths[best] if lengths[best] > 0 else np.eye(len(G))[0]
    weights = on_sphere(((plane.basis @ directions[best])[None], *[np.eye(1)] * (depth - 2), answer[:, None]))
    return CertifiedSpeed(
        lower=speed_of(weights, X, G),
        upper=float(np.max(np.concatenate([lengths, *tops]))) + plane.slack,
        weights=weights,
    )
