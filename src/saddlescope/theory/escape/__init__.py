"""Escape directions of the saddle at the origin of deep ReLU networks, their speeds and their bounds.

    L_0     the localised loss Tr[G^T Y_theta(X)], homogeneous of degree L in the weights theta
    rho     an escape direction: weights with |rho|^2 = L and grad L_0(rho) = -s rho (Definition 2.1)
    s       its escape speed, -L_0(rho)
    L       depth; X inputs (d_in, N); G loss gradients at the zero output (d_out, N): a column per sample

Functions take samples as rows: `inputs` (N, d_in) is X^T, and `gradients` (N, d_out) is G^T.

Bantzis, Simon and Jacot (2025), "Saddle-to-saddle dynamics in deep ReLU networks": Theorem 3.1, Propositions 2.2 to 3.4
and Example 1 are those of this paper throughout.
"""
