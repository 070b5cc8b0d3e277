"""Escape directions of the saddle at the origin of deep ReLU networks, their speeds and their bounds.

    L_0     the localised loss Tr[G^T Y_theta(X)], homogeneous of degree L in the weights theta
    rho     an escape direction: weights with |rho|^2 = L and grad L_0(rho) = -s rho (Definition 2.1)
    s       its escape speed, -L_0(rho)
    L       depth; X inputs (d_in, N); G loss gradients at the zero output (d_out, N): a column per sample

Functions take samples as rows: `inputs` (N, d_in) is X^T, and `gradients` (N, d_out) is G^T.

Bantzis, Simon and Jacot (2025), "Saddle-to-saddle dynamics in deep ReLU networks": Theorem 3.1, Propositions 2.2 to 3.4
and Example 1 are those of this paper throughout.
"""

from saddlescope.theory.escape.bounds import (
    LayerDeficits,
    LayerRatios,
    first_layer_with_content,
    layer_deficits,
    layer_ratios,
    low_rank_activations,
    nearly_rank_one_bound,
    optimal_layer_bound,
    speed_deficit,
)
from saddlescope.theory.escape.certificate import certified_escape_speed
from saddlescope.theory.escape.column_generation import column_generation
from saddlescope.theory.escape.deeper_network import deepen
from saddlescope.theory.escape.directions import EscapeDirections, escape_directions, gradient_at_zero
from saddlescope.theory.escape.norm_growth import escape_time, norm_at
from saddlescope.theory.escape.rank_one import rank_one_escape_speed
from saddlescope.theory.escape.speed import CertifiedSpeed, escape_speed, on_sphere

__all__ = [
    "CertifiedSpeed",
    "EscapeDirections",
    "LayerDeficits",
    "LayerRatios",
    "certified_escape_speed",
    "column_generation",
    "deepen",
    "escape_directions",
    "escape_speed",
    "escape_time",
    "first_layer_with_content",
    "gradient_at_zero",
    "layer_deficits",
    "layer_ratios",
    "low_rank_activations",
    "nearly_rank_one_bound",
    "norm_at",
    "on_sphere",
    "optimal_layer_bound",
    "rank_one_escape_speed",
    "speed_deficit",
]
