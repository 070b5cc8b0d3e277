"""Escape directions of the saddle at the origin of deep ReLU networks, their speeds and their bounds.

    L_0     the localised loss Tr[G^T Y_theta(X)], homogeneous of degree L in the weights theta
    rho     an escape direction: weights with |rho|^2 = L and grad L_0(rho) = -s rho (Definition 2.1)
    s       its escape speed, -L_0(rho)
    L       depth; X inputs (d_in, N); G loss gradients at the zero output (d_out, N)

Bantzis, Simon and Jacot (2025), "Saddle-to-saddle dynamics in deep ReLU networks". Its Theorem 3.1, Propositions 2.2 to
3.4 and Example 1 are meant by those names throughout.
"""

from saddlescope.theory.escape.bounds import (
    LayerRatios,
    SpentBudget,
    budget,
    first_layer_with_content,
    layer_ratios,
    low_rank_activations,
    nearly_rank_one_bound,
    optimal_layer_bound,
    spent_budget,
)
from saddlescope.theory.escape.certificate import certified_escape_speed
from saddlescope.theory.escape.clarke_subgradient import clarke_residual
from saddlescope.theory.escape.column_generation import column_generation
from saddlescope.theory.escape.deeper_network import deepen
from saddlescope.theory.escape.directions import EscapeDirections, escape_directions, gradient_at_zero
from saddlescope.theory.escape.newton import Polished, polish
from saddlescope.theory.escape.norm_growth import escape_time, grown_norm
from saddlescope.theory.escape.rank_one import rank_one_escape_speed
from saddlescope.theory.escape.speed import CertifiedSpeed, escape_speed, on_sphere

__all__ = [
    "CertifiedSpeed",
    "EscapeDirections",
    "LayerRatios",
    "Polished",
    "SpentBudget",
    "budget",
    "certified_escape_speed",
    "clarke_residual",
    "column_generation",
    "deepen",
    "escape_directions",
    "escape_speed",
    "escape_time",
    "first_layer_with_content",
    "gradient_at_zero",
    "grown_norm",
    "layer_ratios",
    "low_rank_activations",
    "nearly_rank_one_bound",
    "on_sphere",
    "optimal_layer_bound",
    "polish",
    "rank_one_escape_speed",
    "spent_budget",
]
